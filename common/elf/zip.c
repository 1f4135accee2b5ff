#include "elf/zip.h"

#include <string.h>

#include "base/le.h"

#define END_SIGNATURE 0x06054b50u
#define END_BYTES 22u
#define COMMENT_MAX 65535u
#define ENTRY_SIGNATURE 0x02014b50u
#define ENTRY_BYTES 46u
#define LOCAL_SIGNATURE 0x04034b50u
#define LOCAL_BYTES 30u

/* The end of the central directory: the last thing in the file but for a comment. */
static const uint8_t *find_end(const uint8_t *data, size_t size)
{
	if (size < END_BYTES)
		return NULL;
	size_t at = size - END_BYTES, stop = at > COMMENT_MAX ? at - COMMENT_MAX : 0;
	for (;; at--) {
		if (sp_get32(data + at) == END_SIGNATURE &&
		    sp_get16(data + at + 20) == size - END_BYTES - at)
			return data + at;
		if (at == stop)
			return NULL;
	}
}

/* The member's bytes behind its local header. */
static bool member_at(const uint8_t *data, size_t size, size_t header, size_t bytes, size_t *offset,
		      size_t *len)
{
	if (header > size || size - header < LOCAL_BYTES ||
	    sp_get32(data + header) != LOCAL_SIGNATURE)
		return false;
	size_t before = LOCAL_BYTES + (size_t)sp_get16(data + header + 26) +
			sp_get16(data + header + 28);
	if (before > size - header || bytes > size - header - before)
		return false;
	*offset = header + before;
	*len = bytes;
	return true;
}

bool sp_zip_stored(const uint8_t *data, size_t size, const char *name, size_t *offset, size_t *len)
{
	const uint8_t *end = find_end(data, size);
	size_t name_len = strlen(name);
	size_t at = end ? sp_get32(end + 16) : SIZE_MAX;
	unsigned n = end ? sp_get16(end + 10) : 0;
	for (unsigned i = 0; i < n; i++) {
		if (at > size || size - at < ENTRY_BYTES ||
		    sp_get32(data + at) != ENTRY_SIGNATURE)
			return false;
		const uint8_t *e = data + at;
		size_t own_name = sp_get16(e + 28);
		size_t bytes = ENTRY_BYTES + own_name + sp_get16(e + 30) + sp_get16(e + 32);
		if (bytes > size - at)
			return false;
		if (own_name == name_len && !memcmp(e + ENTRY_BYTES, name, name_len))
			return sp_get16(e + 10) == 0 &&
			       member_at(data, size, sp_get32(e + 42), sp_get32(e + 20), offset,
					 len);
		at += bytes;
	}
	return false;
}
