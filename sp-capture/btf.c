#define _GNU_SOURCE
#include "btf.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/le.h"

#define HEAD_BYTES 24u
#define TYPE_BYTES 12u
#define FILE_MAX (64u << 20)

static int find_parts(struct cap_btf *b, const char *path, const uint8_t *p, size_t n,
		      struct sp_err *err)
{
	uint64_t head = n >= HEAD_BYTES ? sp_get32(p + 4) : n + 1;
	uint64_t types = n >= HEAD_BYTES ? head + sp_get32(p + 8) : 0;
	uint64_t strings = n >= HEAD_BYTES ? head + sp_get32(p + 16) : 0;
	if (head > n || sp_get16(p) != BTF_MAGIC || types > n || sp_get32(p + 12) > n - types ||
	    strings > n || sp_get32(p + 20) > n - strings) {
		cap_btf_deinit(b);
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "cannot read %s: no BTF", path);
	}
	b->types = p + types;
	b->types_bytes = sp_get32(p + 12);
	b->strings = p + strings;
	b->strings_bytes = sp_get32(p + 20);
	return 0;
}

int cap_btf_map(struct cap_btf *b, const char *path, struct sp_err *err)
{
	struct stat st;
	*b = (struct cap_btf){0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size <= FILE_MAX) {
		b->map_bytes = (size_t)st.st_size;
		b->map = mmap(NULL, b->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	}
	bool mapped = b->map && b->map != MAP_FAILED;
	if (!mapped) {
		sp_err_errno(err, "cannot map %s", path);
		b->map = NULL;
	}
	if (fd >= 0)
		close(fd);
	return mapped ? find_parts(b, path, b->map, b->map_bytes, err) : SP_ERR_IO;
}

int cap_btf_read(struct cap_btf *b, const char *path, struct sp_err *err)
{
	if (cap_btf_map(b, path, err) == 0)
		return 0;
	int rc = sp_file_read(path, FILE_MAX, &b->file, err);
	return rc < 0 ? rc : find_parts(b, path, b->file.data, b->file.len, err);
}

void cap_btf_deinit(struct cap_btf *b)
{
	if (b->map)
		munmap(b->map, b->map_bytes);
	sp_buf_deinit(&b->file);
	*b = (struct cap_btf){0};
}

static unsigned kind_of(const uint8_t *type)
{
	return sp_get32(type + 4) >> 24 & 0x1f;
}

/* What follows the three words that all types have. */
static size_t more_bytes(const uint8_t *type)
{
	size_t n = sp_get32(type + 4) & 0xffff;
	switch (kind_of(type)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return 4;
	case BTF_KIND_ARRAY:
		return 12;
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
	case BTF_KIND_DATASEC:
	case BTF_KIND_ENUM64:
		return n * 12;
	case BTF_KIND_ENUM:
	case BTF_KIND_FUNC_PROTO:
		return n * 8;
	default:
		return 0;
	}
}

/* The type at *at, which moves on to the next; NULL at the end. */
static const uint8_t *next_type(const struct cap_btf *b, size_t *at)
{
	if (b->types_bytes - *at < TYPE_BYTES)
		return NULL;
	const uint8_t *type = b->types + *at;
	size_t more = more_bytes(type), left = b->types_bytes - *at - TYPE_BYTES;
	*at += TYPE_BYTES + (more < left ? more : left);
	return type;
}

/* Where a name stands among the strings, each of which follows a NUL; 0: nowhere. */
static uint32_t name_offset(const struct cap_btf *b, const char *name)
{
	char key[128] = {0};
	size_t len = strlen(name);
	if (len > sizeof key - 2)
		return 0;
	memcpy(key + 1, name, len);
	const uint8_t *p = memmem(b->strings, b->strings_bytes, key, len + 2);
	return p ? (uint32_t)(p - b->strings) + 1 : 0;
}

uint32_t cap_btf_find(const struct cap_btf *b, const char *name, unsigned kind)
{
	uint32_t offset = name_offset(b, name), id = 1;
	size_t at = 0;
	for (const uint8_t *t; offset && (t = next_type(b, &at)); id++)
		if (sp_get32(t) == offset && kind_of(t) == kind)
			return id;
	return 0;
}

static const uint8_t *type_of(const struct cap_btf *b, uint32_t id)
{
	const uint8_t *t = NULL;
	size_t at = 0;
	for (uint32_t i = 0; i < id && (i == 0 || t); i++)
		t = next_type(b, &at);
	return t;
}

unsigned cap_btf_n_args(const struct cap_btf *b, const char *name)
{
	const uint8_t *t = type_of(b, cap_btf_find(b, name, BTF_KIND_TYPEDEF));
	t = t ? type_of(b, sp_get32(t + 8)) : NULL; /* the pointer */
	t = t ? type_of(b, sp_get32(t + 8)) : NULL;
	return t && kind_of(t) == BTF_KIND_FUNC_PROTO ? sp_get32(t + 4) & 0xffff : 0;
}
