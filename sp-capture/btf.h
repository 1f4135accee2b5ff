/* Types that a kernel tells of (Documentation/bpf/btf.rst), by name: what libbpf would take 11 ms
 * of CPU to read a second time. */
#ifndef CAP_BTF_H
#define CAP_BTF_H

#include <linux/btf.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct cap_btf {
	struct sp_buf file;
	void *map; /* owned; the file, where it can be mapped */
	size_t map_bytes;
	const uint8_t *types, *strings; /* in file or map */
	size_t types_bytes, strings_bytes;
};

/* Without a copy: the kernel's own can be mapped since Linux 6.16. */
int cap_btf_map(struct cap_btf *b, const char *path, struct sp_err *err);
/* Mapped or read. */
int cap_btf_read(struct cap_btf *b, const char *path, struct sp_err *err);
void cap_btf_deinit(struct cap_btf *b);

/* The id of the type of a kind (BTF_KIND_*) and name, or 0. */
uint32_t cap_btf_find(const struct cap_btf *b, const char *name, unsigned kind);
/* The arguments of the functions that a typedef of a pointer to them stands for, or 0. */
unsigned cap_btf_n_args(const struct cap_btf *b, const char *name);

#endif
