#include "sym/memo.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "base/table.h"

#define HEAD_SIZE 32u
#define FILE_SIZE 48u
#define ANSWER_SIZE 24u
#define LEVEL_SIZE 16u

static const char magic[8] = "SPMEMO1\n";

static size_t padded(size_t n)
{
	return (n + 7) & ~(size_t)7;
}

int sp_memo_open(struct sp_memo *m, const void *data, size_t size, const void *key, size_t key_len)
{
	const uint8_t *p = data;
	if (size < HEAD_SIZE || size > UINT32_MAX || memcmp(p, magic, sizeof magic) != 0 ||
	    sp_get32(p + 12) != key_len || key_len > size)
		return 0;
	struct sp_memo out = {.data = p,
			      .size = size,
			      .n_files = sp_get32(p + 16),
			      .n_answers = sp_get32(p + 20),
			      .n_levels = sp_get32(p + 24),
			      .n_strings = sp_get32(p + 28)};
	uint64_t at = HEAD_SIZE + padded(key_len);
	out.files = at;
	at += (uint64_t)out.n_files * FILE_SIZE;
	out.answers = at;
	at += (uint64_t)out.n_answers * ANSWER_SIZE;
	out.levels = at;
	at += (uint64_t)out.n_levels * LEVEL_SIZE;
	out.strings = at;
	at += out.n_strings;
	if (at != size || !out.n_strings || p[size - 1] != 0 ||
	    memcmp(p + HEAD_SIZE, key, key_len) != 0 ||
	    libdeflate_crc32(0, p + 12, size - 12) != sp_get32(p + 8))
		return 0;
	*m = out;
	return 1;
}

/* NULL for none; false when it lies outside. The last byte is a NUL, so every string ends. */
static bool string_at(const struct sp_memo *m, uint32_t off, const char **out)
{
	*out = off ? (const char *)m->data + m->strings + off : NULL;
	return off < m->n_strings;
}

bool sp_memo_file(const struct sp_memo *m, uint32_t i, struct sp_memo_file *out)
{
	if (i >= m->n_files)
		return false;
	const uint8_t *p = m->data + m->files + (size_t)i * FILE_SIZE;
	*out = (struct sp_memo_file){
		.dev = sp_get64(p),
		.ino = sp_get64(p + 8),
		.size = sp_get64(p + 16),
		.mtime_ns = (int64_t)sp_get64(p + 24),
		.ctime_ns = (int64_t)sp_get64(p + 32),
	};
	return string_at(m, sp_get32(p + 40), &out->path) && out->path;
}

static const uint8_t *answer_at(const struct sp_memo *m, size_t i)
{
	return m->data + m->answers + i * ANSWER_SIZE;
}

static bool read_level(const struct sp_memo *m, size_t i, struct sp_name *out)
{
	const uint8_t *p = m->data + m->levels + i * LEVEL_SIZE;
	*out = (struct sp_name){.line = sp_get32(p + 8), .inlined = sp_get32(p + 12) != 0};
	return string_at(m, sp_get32(p), &out->function) &&
	       string_at(m, sp_get32(p + 4), &out->file);
}

int sp_memo_find(const struct sp_memo *m, uint64_t svma, struct sp_name levels[SP_MEMO_LEVELS_MAX],
		 struct sp_memo_answer *out)
{
	size_t lo = 0, hi = m->n_answers;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (sp_get64(answer_at(m, mid)) < svma)
			lo = mid + 1;
		else
			hi = mid;
	}
	const uint8_t *p = answer_at(m, lo);
	if (lo == m->n_answers || sp_get64(p) != svma)
		return 0;
	uint32_t first = sp_get32(p + 16), n = sp_get32(p + 20);
	if (n > SP_MEMO_LEVELS_MAX || first > m->n_levels || n > m->n_levels - first)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		if (!read_level(m, (size_t)first + i, &levels[i]))
			return 0;
	*out = (struct sp_memo_answer){svma, sp_get64(p + 8), levels, n};
	return 1;
}

/* --- writing --- */

struct writer {
	struct sp_buf files, answers, levels, strings;
	struct sp_intern added; /* id: index in offsets */
	uint32_t *offsets;      /* owned */
	size_t n_offsets, offsets_cap;
	bool failed;
};

static uint32_t add_string(struct writer *w, const char *s)
{
	if (!s)
		return 0;
	bool is_new = false;
	size_t len = strlen(s);
	uint32_t id = sp_intern_add(&w->added, s, len, &is_new);
	if (id != SP_NOT_FOUND && is_new) {
		uint32_t *slot = SP_PUSH(&w->offsets, &w->n_offsets, &w->offsets_cap);
		if (slot)
			*slot = (uint32_t)w->strings.len;
		else
			id = SP_NOT_FOUND;
		sp_buf_add(&w->strings, s, len + 1);
	}
	w->failed |= id == SP_NOT_FOUND || w->strings.len > SP_MEMO_MAX;
	return w->failed ? 0 : w->offsets[id];
}

static void add_answer(struct writer *w, const struct sp_memo_answer *a)
{
	sp_buf_u64(&w->answers, a->svma);
	sp_buf_u64(&w->answers, a->func_start);
	sp_buf_u32(&w->answers, (uint32_t)(w->levels.len / LEVEL_SIZE));
	sp_buf_u32(&w->answers, a->n_levels);
	for (uint32_t i = 0; i < a->n_levels; i++) {
		const struct sp_name *l = &a->levels[i];
		sp_buf_u32(&w->levels, add_string(w, l->function));
		sp_buf_u32(&w->levels, add_string(w, l->file));
		sp_buf_u32(&w->levels, l->line);
		sp_buf_u32(&w->levels, l->inlined);
	}
}

static int by_svma(const void *a, const void *b)
{
	const struct sp_memo_answer *x = a, *y = b;
	return x->svma < y->svma ? -1 : x->svma > y->svma;
}

/* Old levels and strings stay where they are, at the beginning. */
static void add_answers(struct writer *w, const struct sp_memo *old, struct sp_memo_answer *fresh,
			size_t n_fresh)
{
	size_t i = 0, n_old = old ? old->n_answers : 0;
	if (n_fresh)
		qsort(fresh, n_fresh, sizeof *fresh, by_svma);
	for (size_t k = 0; k < n_fresh; k++) {
		uint64_t svma = fresh[k].svma;
		if (k && svma == fresh[k - 1].svma)
			continue;
		for (; i < n_old && sp_get64(answer_at(old, i)) < svma; i++)
			sp_buf_add(&w->answers, answer_at(old, i), ANSWER_SIZE);
		if (i < n_old && sp_get64(answer_at(old, i)) == svma)
			i++;
		if (fresh[k].n_levels <= SP_MEMO_LEVELS_MAX)
			add_answer(w, &fresh[k]);
	}
	if (i < n_old)
		sp_buf_add(&w->answers, answer_at(old, i), (n_old - i) * ANSWER_SIZE);
}

static void add_files(struct writer *w, const struct sp_memo_file *files, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		sp_buf_u64(&w->files, files[i].dev);
		sp_buf_u64(&w->files, files[i].ino);
		sp_buf_u64(&w->files, files[i].size);
		sp_buf_u64(&w->files, (uint64_t)files[i].mtime_ns);
		sp_buf_u64(&w->files, (uint64_t)files[i].ctime_ns);
		sp_buf_u32(&w->files, add_string(w, files[i].path));
		sp_buf_u32(&w->files, 0);
	}
}

static void put_all(struct sp_buf *out, const struct writer *w, const void *key, size_t key_len)
{
	out->len = 0;
	sp_buf_add(out, magic, sizeof magic);
	sp_buf_u32(out, 0);
	sp_buf_u32(out, (uint32_t)key_len);
	sp_buf_u32(out, (uint32_t)(w->files.len / FILE_SIZE));
	sp_buf_u32(out, (uint32_t)(w->answers.len / ANSWER_SIZE));
	sp_buf_u32(out, (uint32_t)(w->levels.len / LEVEL_SIZE));
	sp_buf_u32(out, (uint32_t)w->strings.len);
	sp_buf_add(out, key, key_len);
	sp_buf_zero(out, padded(key_len) - key_len);
	sp_buf_add(out, w->files.data, w->files.len);
	sp_buf_add(out, w->answers.data, w->answers.len);
	sp_buf_add(out, w->levels.data, w->levels.len);
	sp_buf_add(out, w->strings.data, w->strings.len);
	if (!out->failed)
		sp_put32(out->data + 8, libdeflate_crc32(0, out->data + 12, out->len - 12));
}

bool sp_memo_write(struct sp_buf *out, const void *key, size_t key_len,
		   const struct sp_memo_file *files, size_t n_files, const struct sp_memo *old,
		   struct sp_memo_answer *fresh, size_t n_fresh)
{
	struct writer w = {0};
	if (old) {
		sp_buf_add(&w.levels, old->data + old->levels, (size_t)old->n_levels * LEVEL_SIZE);
		sp_buf_add(&w.strings, old->data + old->strings, old->n_strings);
	} else {
		sp_buf_u8(&w.strings, 0);
	}
	add_answers(&w, old, fresh, n_fresh);
	add_files(&w, files, n_files);
	put_all(out, &w, key, key_len);
	bool ok = !w.failed && !w.files.failed && !w.answers.failed && !w.levels.failed &&
		  !w.strings.failed && !out->failed && out->len <= SP_MEMO_MAX;
	sp_buf_deinit(&w.files);
	sp_buf_deinit(&w.answers);
	sp_buf_deinit(&w.levels);
	sp_buf_deinit(&w.strings);
	sp_intern_deinit(&w.added);
	free(w.offsets);
	return ok;
}
