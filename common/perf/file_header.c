#include "perf/file_header.h"

#include <string.h>

#include "perf/attr.h"
#include "perf/swap.h"

#define OLD_HEADER_BYTES 72 /* before the feature bits: perf 2.6.31 */
#define PIPE_HEADER_BYTES 16

static uint64_t get64(const uint8_t *p, bool swap)
{
	uint64_t v = sp_get64(p);
	return swap ? __builtin_bswap64(v) : v;
}

static struct sp_file_section get_section(const uint8_t *p, bool swap)
{
	return (struct sp_file_section){get64(p, swap), get64(p + 8, swap)};
}

/* n bytes at offset, or NULL when the part does not hold them. */
static const uint8_t *part_at(const struct sp_file_part *part, uint64_t offset, uint64_t n)
{
	if (offset < part->offset || offset - part->offset > part->size ||
	    n > part->size - (offset - part->offset))
		return NULL;
	return part->data + (offset - part->offset);
}

/* The bits are an array of longs: which size they had shows in HOSTNAME's, which every perf sets
 * (perf_file_header__read). */
static void get_features(uint8_t *out, const uint8_t *p, bool swap)
{
	if (!swap) {
		memcpy(out, p, SP_N_FEATURES / 8);
		return;
	}
	for (size_t i = 0; i < SP_N_FEATURES / 8; i += 8)
		sp_put64(out + i, __builtin_bswap64(sp_get64(p + i)));
	if (out[0] & 1u << SP_FEATURE_HOSTNAME)
		return;
	for (size_t i = 0; i < SP_N_FEATURES / 8; i += 4)
		sp_put32(out + i, __builtin_bswap32(sp_get32(p + i)));
}

int sp_file_header_parse(struct sp_file_layout *out, const uint8_t *p, size_t n, struct sp_err *err)
{
	if (n < PIPE_HEADER_BYTES)
		return 0;
	struct sp_file_layout l = {0};
	uint64_t size = sp_get64(p + 8);
	if (memcmp(p, "2ELIFREP", 8) == 0)
		l.swapped = true;
	else if (memcmp(p, "PERFFILE", 8) == 0) /* the first version says no byte order */
		l.swapped = size > UINT32_MAX;
	else if (memcmp(p, "PERFILE2", 8) != 0)
		return 0;
	l.header_size = l.swapped ? __builtin_bswap64(size) : size;
	if (l.header_size == PIPE_HEADER_BYTES) {
		l.is_pipe = true;
		*out = l;
		return 1;
	}
	if (l.header_size != SP_FILE_HEADER_BYTES && l.header_size != OLD_HEADER_BYTES)
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "its header claims %llu bytes",
				  (unsigned long long)l.header_size);
	if (n < l.header_size)
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "it is cut inside its header");
	l.attr_size = get64(p + 16, l.swapped);
	l.attrs = get_section(p + 24, l.swapped);
	l.data = get_section(p + 40, l.swapped);
	l.event_types = get_section(p + 56, l.swapped);
	if (l.header_size == SP_FILE_HEADER_BYTES)
		get_features(l.features, p + OLD_HEADER_BYTES, l.swapped);
	if (l.attr_size < SP_ATTR_MIN_BYTES + 16 || l.attr_size > 4096 ||
	    l.data.offset < l.header_size || l.data.offset + l.data.size < l.data.offset)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "its header claims attributes of %llu bytes and data at %llu",
				  (unsigned long long)l.attr_size,
				  (unsigned long long)l.data.offset);
	*out = l;
	return 1;
}

/* The old table of event names: u64 config and 64 bytes each. */
static void read_event_types(struct sp_events *e, const struct sp_file_layout *l,
			     const struct sp_file_part *part)
{
	const uint8_t *p = part_at(part, l->event_types.offset, l->event_types.size);
	for (uint64_t i = 0; p && i < l->event_types.size / 72; i++) {
		uint8_t rec[8 + 72] = {0};
		sp_put32(rec, SP_PERF_HEADER_EVENT_TYPE);
		sp_put64(rec + 8, get64(p + i * 72, l->swapped));
		memcpy(rec + 16, p + i * 72 + 8, 63);
		sp_events_record(e, rec, sizeof rec, NULL);
	}
}

int sp_file_attrs_parse(struct sp_events *e, const struct sp_file_layout *l,
			const struct sp_file_part *part, struct sp_err *err)
{
	int outside = 0;
	uint64_t n = l->attrs.size / l->attr_size;
	const uint8_t *p = part_at(part, l->attrs.offset, n * l->attr_size);
	if (!p)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "its event attributes lie outside of it or behind its data");
	for (uint64_t i = 0; i < n; i++, p += l->attr_size) {
		uint8_t attr[SP_ATTR_BYTES];
		int rc = sp_attr_normalize(attr, p, l->attr_size - 16, l->swapped, err);
		if (rc < 0)
			return rc;
		struct sp_file_section ids = get_section(p + l->attr_size - 16, l->swapped);
		const uint8_t *words = part_at(part, ids.offset, ids.size);
		if (!words)
			outside = 1;
		rc = sp_events_add(e, attr, words, words ? ids.size / 8 : 0, l->swapped, err);
		if (rc < 0)
			return rc;
	}
	read_event_types(e, l, part);
	return outside;
}

/* The table of build-ids: HEADER_BUILD_ID records one after the other. */
static void read_build_ids(struct sp_events *e, const uint8_t *p, uint64_t n, bool swap)
{
	while (n >= 8) {
		uint16_t size = sp_get16(p + 6);
		if (swap)
			size = __builtin_bswap16(size);
		if (size < 8 || size > n)
			return;
		uint8_t rec[SP_MAX_RECORD];
		memcpy(rec, p, size);
		if (swap) {
			sp_swap_header(rec);
			sp_put32(rec, SP_PERF_HEADER_BUILD_ID); /* old tables have type 0 */
			sp_swap_body(rec, size, e);
		}
		sp_events_build_id(e, rec, size);
		p += size;
		n -= size;
	}
}

int sp_file_features_parse(struct sp_events *e, const struct sp_file_layout *l,
			   const struct sp_file_part *part)
{
	int outside = 0;
	uint64_t at = l->data.offset + l->data.size;
	for (unsigned i = 0; i < SP_N_FEATURES; i++) {
		if (!(l->features[i / 8] >> i % 8 & 1))
			continue;
		const uint8_t *entry = part_at(part, at, 16);
		at += 16;
		struct sp_file_section s = entry ? get_section(entry, l->swapped)
						 : (struct sp_file_section){UINT64_MAX, 0};
		const uint8_t *p = part_at(part, s.offset, s.size);
		if (!p) {
			outside = 1;
			continue;
		}
		if (i == SP_FEATURE_AUXTRACE)
			continue;
		if (i == SP_FEATURE_BUILD_ID) {
			read_build_ids(e, p, s.size, l->swapped);
		} else if (i == SP_FEATURE_TRACING_DATA) { /* tells its own byte order */
			sp_events_feature(e, i, p, s.size);
		} else if (l->swapped) {
			struct sp_buf native = {0};
			if (sp_feature_swap(&native, i, p, s.size))
				sp_events_feature(e, i, native.data, native.len);
			sp_buf_deinit(&native);
		} else {
			sp_events_feature(e, i, p, s.size);
		}
	}
	return outside;
}

/* --- not a recording --- */

static bool is_text(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] < 0x20 && p[i] != '\n' && p[i] != '\t' && p[i] != '\r' && p[i] != 0x1b)
			return false;
	return n > 0;
}

const char *sp_file_looks_like(const uint8_t *p, size_t n)
{
	static const struct {
		const char *magic;
		size_t len;
		const char *text;
	} known[] = {
		{"\177ELF", 4, "an ELF file: record the program with sp-capture -- first"},
		{"\217SPOOL\r\n", 8, "a spool: sp-sym reads it"},
		{"\037\213", 2, "gzip data: unpack it with zcat first"},
		{"\050\265\057\375", 4, "zstd data: unpack it with zstdcat first"},
		{"\3757zXZ", 5, "xz data: unpack it with xzcat first"},
		{"BZh", 3, "bzip2 data: unpack it with bzcat first"},
		{"PK\3\4", 4, "a zip archive: unpack it first"},
		{"JiTD", 4, "a jitdump: give the perf.data file it belongs to"},
		{"DTiJ", 4, "a jitdump: give the perf.data file it belongs to"},
		{"{", 1, "JSON text, not what perf record writes"},
	};
	if (n == 0)
		return "empty: what should have written it wrote nothing";
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (n >= known[i].len && memcmp(p, known[i].magic, known[i].len) == 0)
			return known[i].text;
	if (n >= 4 && memcmp(p, "PERF", 4) == 0)
		return "cut inside its header";
	if (n > 262 && memcmp(p + 257, "ustar", 5) == 0)
		return "a tar archive: unpack it first";
	if (is_text(p, n < 256 ? n : 256))
		return "text: give the file that perf record or sp-capture wrote, not a report of "
		       "it";
	return "of an unknown kind: give a file that perf record or sp-capture wrote";
}
