#include <string.h>

#include "spell.h"

#define LONGEST 63

static inline unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;
	return m < c ? m : c;
}

static inline unsigned substitution_cost(char a, char b)
{
	return (a | 0x20) != (b | 0x20);
}

/* The hot spot: one row of the table for every letter of a, and every word of the text meets every
 * word of the dictionary here. */
unsigned edit_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	unsigned row[LONGEST + 1];

	if (a_len > LONGEST || b_len > LONGEST)
		return (unsigned)(a_len > b_len ? a_len : b_len);
	for (size_t j = 0; j <= b_len; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= a_len; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_len; j++) {
			unsigned above = row[j];

			row[j] = min3(row[j - 1] + 1, above + 1,
				      diagonal + substitution_cost(a[i - 1], b[j - 1]));
			diagonal = above;
		}
	}
	return row[b_len];
}
