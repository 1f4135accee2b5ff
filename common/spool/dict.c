#include "spool/dict.h"

#include <stdlib.h>

uint32_t sp_spool_put_string(struct sp_spool_writer *w, const char *s, size_t len)
{
	if (len > SP_SPOOL_MAX_STRING)
		len = SP_SPOOL_MAX_STRING;
	return sp_intern_add(&w->strings, s, len, NULL);
}

uint32_t sp_spool_put_file(struct sp_spool_writer *w, const struct sp_spool_wfile *f)
{
	struct sp_wfile_rec rec;
	memset(&rec, 0, sizeof rec); /* interned as bytes: padding must be defined */
	rec.path = sp_spool_put_string(w, f->path, strlen(f->path));
	rec.maj = f->maj;
	rec.min = f->min;
	rec.ino = f->ino;
	rec.gen = f->ino_gen;
	rec.flags = (f->is_kernel ? SP_SPOOL_FILE_KERNEL : 0) | (f->is_anon ? SP_SPOOL_FILE_ANON : 0);
	rec.id_len = f->build_id_len <= sizeof rec.id ? f->build_id_len : 0;
	if (rec.id_len)
		memcpy(rec.id, f->build_id, rec.id_len);
	if (f->content_hash) {
		rec.flags |= SP_SPOOL_FILE_CONTENT;
		memcpy(rec.content, f->content_hash, sizeof rec.content);
	}
	if (rec.path == SP_NONE)
		return SP_NONE;
	bool is_new;
	uint32_t id = sp_intern_add(&w->files, &rec, sizeof rec, &is_new);
	if (is_new) {
		struct sp_wfile_rec *p = SP_PUSH(&w->file, &w->n_file, &w->cap_file);
		if (!p) {
			sp_spool_nomem(w, NULL);
			return SP_NONE;
		}
		*p = rec;
	}
	return id;
}

uint32_t sp_spool_put_event(struct sp_spool_writer *w, const char *name, bool weight_is_time)
{
	uint32_t key[2] = {sp_spool_put_string(w, name, strlen(name)), weight_is_time};
	return key[0] == SP_NONE ? SP_NONE : sp_intern_add(&w->events, key, sizeof key, NULL);
}

uint32_t sp_spool_put_origin(struct sp_spool_writer *w, const char *host, const char *boot_id)
{
	uint32_t key[2] = {sp_spool_put_string(w, host, strlen(host)),
			   sp_spool_put_string(w, boot_id, strlen(boot_id))};
	if (key[0] == SP_NONE || key[1] == SP_NONE)
		return SP_NONE;
	uint32_t id = sp_intern_add(&w->origins, key, sizeof key, NULL);
	return id == SP_NONE ? SP_NONE : id + 1;
}

uint32_t sp_spool_put_wait(struct sp_spool_writer *w, uint32_t state, int32_t waker_pid,
			   int32_t waker_tid, uint32_t waker_comm)
{
	struct sp_wwait key = {state, waker_comm, waker_pid, waker_tid};
	uint32_t id = sp_intern_add(&w->waits, &key, sizeof key, NULL);
	return id == SP_NONE ? SP_NONE : id + 1;
}

uint32_t sp_spool_put_thread(struct sp_spool_writer *w, uint32_t origin, int32_t pid, int32_t tid)
{
	uint32_t key[3] = {(uint32_t)pid, (uint32_t)tid, origin};
	bool is_new;
	uint32_t id = sp_intern_add(&w->threads, key, sizeof key, &is_new);
	if (is_new) {
		struct sp_wthread *t = SP_PUSH(&w->thread, &w->n_thread, &w->cap_thread);
		if (!t) {
			sp_spool_nomem(w, NULL);
			return SP_NONE;
		}
		*t = (struct sp_wthread){
			.pid = pid, .tid = tid, .origin = origin, .block = SP_NONE};
	}
	return id;
}

uint32_t sp_spool_put_set(struct sp_spool_writer *w, uint32_t origin, int32_t pid, uint32_t parent)
{
	if (w->n_set >= SP_NONE - 1)
		return SP_NONE;
	struct sp_wset *s = SP_PUSH(&w->set, &w->n_set, &w->cap_set);
	if (!s)
		return SP_NONE;
	*s = (struct sp_wset){.pid = pid, .origin = origin, .parent = SP_NONE};
	if (parent < w->n_set - 1 && w->set[parent].n) {
		const struct sp_wset *from = &w->set[parent];
		if (!sp_grow(&s->mods, &s->cap, from->n, sizeof *s->mods)) {
			w->n_set--;
			return SP_NONE;
		}
		memcpy(s->mods, from->mods, from->n * sizeof *s->mods);
		s->n = from->n;
		s->n_copied = (uint32_t)from->n;
		s->parent = parent;
	}
	return (uint32_t)w->n_set - 1;
}

uint32_t sp_spool_put_module(struct sp_spool_writer *w, uint32_t set, uint64_t start, uint64_t end,
			     uint64_t foff, uint32_t file)
{
	if (set >= w->n_set)
		return SP_NONE;
	struct sp_wset *s = &w->set[set];
	for (size_t i = 0; i < s->n; i++) {
		const struct sp_wmodule *m = &s->mods[i];
		if (m->start == start && m->s.file == file && m->s.foff == foff &&
		    m->s.len == end - start)
			return (uint32_t)i;
	}
	struct sp_wseg seg;
	memset(&seg, 0, sizeof seg);
	seg.file = file;
	seg.foff = foff;
	seg.len = end - start;
	uint32_t id = sp_intern_add(&w->segs, &seg, sizeof seg, NULL);
	if (id == SP_NONE)
		return SP_NONE;
	struct sp_wmodule m = {
		.set = set, .seg = id, .place = (uint32_t)s->n, .start = start, .s = seg};
	if (!sp_grow(&w->mod_log, &w->cap_mod_log, w->n_mod_log + 1, sizeof m) ||
	    !sp_grow(&s->mods, &s->cap, s->n + 1, sizeof m))
		return SP_NONE;
	w->mod_log[w->n_mod_log++] = m;
	s->mods[s->n++] = m;
	return (uint32_t)s->n - 1;
}

size_t sp_spool_set_n(const struct sp_spool_writer *w, uint32_t set)
{
	return w->set[set].n;
}

bool sp_spool_set_has_start(const struct sp_spool_writer *w, uint32_t set, uint64_t start)
{
	const struct sp_wset *s = &w->set[set];
	for (size_t i = 0; i < s->n; i++)
		if (s->mods[i].start == start)
			return true;
	return false;
}

void sp_spool_set_module(const struct sp_spool_writer *w, uint32_t set, uint32_t n, uint64_t *start,
			 uint64_t *end, uint64_t *foff, uint32_t *file)
{
	const struct sp_wmodule *m = &w->set[set].mods[n];
	*start = m->start;
	*end = m->start + m->s.len;
	*foff = m->s.foff;
	*file = m->s.file;
}

void sp_spool_drop_set(struct sp_spool_writer *w, uint32_t set)
{
	struct sp_wset *s = &w->set[set];
	free(s->mods);
	s->mods = NULL;
	s->n = s->cap = 0;
}

static uint32_t put_frame(struct sp_spool_writer *w, enum sp_fkind kind, uint32_t copy,
			  uint32_t file, uint64_t off)
{
	struct sp_wframe f;
	memset(&f, 0, sizeof f);
	f.kind = (uint16_t)kind;
	f.copy = (uint16_t)copy;
	f.file = file;
	f.off = off;
	bool is_new;
	uint32_t id = sp_intern_add(&w->frames, &f, sizeof f, &is_new);
	if (is_new && !SP_PUSH(&w->frame_out, &w->n_frame_out, &w->cap_frame_out)) {
		sp_spool_nomem(w, NULL);
		return SP_NONE;
	}
	return id;
}

uint32_t sp_spool_put_site(struct sp_spool_writer *w, uint32_t set, uint32_t n, uint64_t addr)
{
	const struct sp_wset *s = &w->set[set];
	const struct sp_wmodule *m = &s->mods[n];
	if (w->file[m->s.file].flags & SP_SPOOL_FILE_ANON)
		return put_frame(w, SP_FKIND_ANON, 0, 0, addr);
	uint64_t off = addr - m->start + m->s.foff;
	/* The reader takes the first module of the set that maps this offset of the file. A file
	 * that is mapped twice at a time needs its place among those. */
	uint32_t copy = 0;
	for (uint32_t i = 0; i < n; i++)
		copy += s->mods[i].s.file == m->s.file &&
			off - s->mods[i].s.foff < s->mods[i].s.len;
	if (copy > UINT16_MAX)
		return put_frame(w, SP_FKIND_ADDR, 0, 0, addr);
	return put_frame(w, copy ? SP_FKIND_COPY : SP_FKIND_FILE, copy, m->s.file, off);
}

uint32_t sp_spool_put_addr(struct sp_spool_writer *w, uint64_t addr, bool is_kernel)
{
	return put_frame(w, is_kernel ? SP_FKIND_KERNEL : SP_FKIND_ADDR, 0, 0, addr);
}

uint32_t sp_spool_put_node(struct sp_spool_writer *w, uint32_t prefix, uint32_t frame)
{
	uint64_t key = (uint64_t)(prefix + 1) << 32 | frame;
	/* The newest node has none behind it: a stack looks for none below its first new one. */
	bool newest = prefix != SP_NONE && prefix + 1 == w->n_node;
	uint32_t id = newest ? SP_NOT_FOUND : sp_map64_get(&w->node_map, key);
	if (id != SP_NOT_FOUND)
		return id;
	uint32_t depth = prefix == SP_NONE ? 1 : w->node[prefix].depth + 1;
	if (frame == SP_NONE || depth > SP_SPOOL_MAX_DEPTH)
		return SP_NONE;
	struct sp_wnode *n = SP_PUSH(&w->node, &w->n_node, &w->cap_node);
	if (!n || !sp_map64_put(&w->node_map, key, (uint32_t)w->n_node - 1)) {
		sp_spool_nomem(w, NULL);
		return SP_NONE;
	}
	*n = (struct sp_wnode){.prefix = prefix, .frame = frame, .depth = depth};
	return (uint32_t)w->n_node - 1;
}
