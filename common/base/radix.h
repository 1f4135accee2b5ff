/* Sorting many small numbers in linear time, which a comparison sort of a hundred thousand is not. */
#ifndef SP_BASE_RADIX_H
#define SP_BASE_RADIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_key {
	uint32_t key, at; /* at: whose key it is; goes along */
};

/* By key, in order of arrival where keys are equal; max: the largest key, or more. False when
 * memory ends. */
bool sp_keys_sort(struct sp_key *keys, size_t n, uint32_t max);

#endif
