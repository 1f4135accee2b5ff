/* Names of code that was made at run time: perf maps (tools/perf/Documentation/jit-interface.txt
 * of Linux) and jitdumps (jitdump-specification.txt there).
 *
 * Perf map, a line: start, length (hexadecimal, 0x or not), name up to the end of the line.
 * Separators are blanks and tabs. Lines that are no entry are skipped: no name, length 0, a length
 * that wraps, digits that are none. An address belongs to the entry with the highest start that
 * holds it; of equal starts the last one counts. Names may be any bytes.
 *
 * A jitdump's records bear times (CLOCK_MONOTONIC, or the processor's counter when the header's
 * flag says so: those are not used). */
#ifndef SP_SYM_JITMAP_H
#define SP_SYM_JITMAP_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "sym/ranges.h"
#include "sym/strpool.h"

struct sp_jit_line {
	uint64_t avma;
	const char *file; /* in the map's pool */
	uint32_t line;
};

struct sp_jitmap {
	struct sp_ranges ranges; /* id: index in entries */
	struct sp_jit_entry {
		const char *name; /* NUL-terminated, in the map's pool; valid UTF-8 */
		uint32_t first_line, n_lines;
		uint64_t from_ns; /* when the code was there; 0 = always */
	} * entries; /* owned */
	size_t n_entries, entries_cap;
	uint64_t *changes; /* owned: sorted times after which an address may have another name */
	size_t n_changes, changes_cap;
	struct sp_jit_line *lines; /* owned */
	size_t n_lines, lines_cap;
	struct sp_strpool pool;
};

void sp_jitmap_deinit(struct sp_jitmap *m);

/* Add what the text of a perf map, or the bytes of a jitdump, say; then sort, before finding. A cut
 * file gives what comes before the cut. Only SP_ERR_NOMEM and, for a jitdump, SP_ERR_CORRUPT (not
 * one at all). */
int sp_jitmap_add_perf_map(struct sp_jitmap *m, const void *text, size_t size, struct sp_err *err);
int sp_jitmap_add_jitdump(struct sp_jitmap *m, const void *data, size_t size, struct sp_err *err);
int sp_jitmap_sort(struct sp_jitmap *m, struct sp_err *err);

struct sp_jit_found {
	const char *name;
	uint32_t entry;
	uint64_t start;
	const char *file; /* of a jitdump with lines, or NULL */
	uint32_t line;
};
/* Of code that replaced other code at the same address, what was there at that time: what was
 * loaded last before it, or, before everything, first. UINT64_MAX: what was loaded last of all. */
bool sp_jitmap_find(const struct sp_jitmap *m, uint64_t avma, uint64_t time_ns,
		    struct sp_jit_found *out);
/* How many of the changes had happened: between two of them all names stay. */
uint32_t sp_jitmap_epoch(const struct sp_jitmap *m, uint64_t time_ns);
/* Times say nothing: they are of another clock than the samples. */
void sp_jitmap_forget_times(struct sp_jitmap *m);

/* CPython's names: "py::FUNCTION:FILE". True and the parts when name is one; *file_len is 0 when no
 * file is said. A line number behind the file is left out. */
bool sp_python_name(const char *name, const char **function, size_t *function_len,
		    const char **file, size_t *file_len);

/* Append len bytes with U+FFFD in place of what is not UTF-8. */
void sp_utf8_clean(struct sp_buf *out, const char *s, size_t len);

#endif
