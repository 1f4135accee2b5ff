/* DATA blocks, first pass: definitions into the reader's tables. */
#include "spool/decode.h"

#include <stdlib.h>

bool sp_load_afford(struct sp_spool *s, uint64_t bytes)
{
	/* A real spool needs about 10 bytes of memory per stored byte. */
	uint64_t limit = (UINT64_C(64) << 20) + s->stored * 256;
	if (bytes > limit || s->used > limit - bytes)
		return false;
	s->used += bytes;
	return true;
}

/* Make a table longer by n zeroed entries. */
#define EXTEND(s, name, count)                                                                     \
	(sp_load_afford((s), (uint64_t)(count) * sizeof *(s)->name) &&                             \
	 sp_grow(&(s)->name, &(s)->cap_##name, (s)->n_##name + (count), sizeof *(s)->name))

const char *sp_data_parse(struct sp_data *d, const uint8_t *payload, size_t n)
{
	if (!sp_cols_parse(&d->cols, payload, n))
		return "its columns are malformed";
	size_t len;
	const uint8_t *p = sp_cols_bytes(&d->cols, SP_COL_HEAD, &len);
	struct sp_cursor c = sp_cursor(p, len);
	for (unsigned i = 0; i < SP_HEAD_N; i++)
		d->head[i] = i < SP_HEAD_WAIT || sp_cur_left(&c) ? sp_cur_uleb(&c) : 0;
	if (c.bad)
		return "its head is malformed";
	static const enum sp_head counts[] = {
		SP_HEAD_N_STRINGS, SP_HEAD_N_ORIGINS, SP_HEAD_N_FILES,   SP_HEAD_N_SEGS,
		SP_HEAD_N_EVENTS,  SP_HEAD_N_THREADS, SP_HEAD_N_SETS,    SP_HEAD_N_MODULES,
		SP_HEAD_N_COUNTS,  SP_HEAD_N_WAITS,
	};
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		if (d->head[counts[i]] > SP_SPOOL_MAX_DEFS)
			return "it claims too many definitions";
	if (d->head[SP_HEAD_N_SAMPLES] > SP_SPOOL_MAX_SAMPLES ||
	    d->head[SP_HEAD_N_GROUPS] > d->head[SP_HEAD_N_SAMPLES] ||
	    d->head[SP_HEAD_N_NODES] > SP_SPOOL_MAX_NODES ||
	    d->head[SP_HEAD_N_FRAMES] > d->head[SP_HEAD_N_NODES])
		return "it claims too much";
	if (d->head[SP_HEAD_EPOCH] >= SP_NONE || !d->head[SP_HEAD_RESOLUTION] ||
	    d->head[SP_HEAD_RESOLUTION] > UINT64_C(1000000000000))
		return "its head is out of range";
	return NULL;
}

struct sp_repoch *sp_load_epoch(struct sp_spool *s, uint64_t number, const char **why)
{
	/* A missing INFO block: the dictionaries begin anew all the same. */
	uint64_t missing = number + 1 > s->n_epoch ? number + 1 - s->n_epoch : 0;
	if (number + 1 < s->n_epoch) {
		*why = "it belongs to an earlier epoch";
		return NULL;
	}
	if (!EXTEND(s, epoch, missing)) {
		*why = "it asks for too much memory";
		return NULL;
	}
	while (missing--) {
		uint64_t samples = s->n_epoch ? s->info.n_samples : 0;
		s->epoch[s->n_epoch++] = (struct sp_repoch){
			.string = (uint32_t)s->n_str,
			.origin = (uint32_t)s->n_origin,
			.file = (uint32_t)s->n_file,
			.seg = (uint32_t)s->n_seg,
			.event = (uint32_t)s->n_event,
			.thread = (uint32_t)s->n_thread,
			.set = (uint32_t)s->n_set,
			.frame = (uint32_t)s->n_frame,
			.node = (uint32_t)s->n_node,
			.wait = (uint32_t)s->n_wait,
			.samples = samples,
			.resolution = 1,
		};
		/* Frame 0 is the marker; string 0 comes with the first block. */
		if (!EXTEND(s, frame, 1)) {
			*why = "memory ended";
			return NULL;
		}
		s->frame[s->n_frame++] = (struct sp_rframe){.kind = SP_FKIND_TRUNCATED};
	}
	return &s->epoch[number];
}

/* How many entries were lost before the one that a block begins with; UINT32_MAX when the block
 * begins before the end of what is there. */
static uint32_t gap(uint64_t base, uint64_t first, size_t n)
{
	uint64_t have = n - base;
	if (first < have || first - have >= SP_NONE - n)
		return UINT32_MAX;
	return (uint32_t)(first - have);
}

/* The global id of a local one, or SP_NONE when it is not below the table's end. */
static uint32_t global(uint64_t base, uint64_t local, size_t n)
{
	return local < n - base ? (uint32_t)(base + local) : SP_NONE;
}

static bool string_lost(const struct sp_spool *s, uint32_t id)
{
	return id == SP_NONE || s->str[id].len == SP_NONE;
}

bool sp_load_text(struct sp_spool *s, const void *text, size_t n, size_t *at)
{
	if (!sp_load_afford(s, n + 1) || !sp_buf_reserve(&s->bytes, n + 1))
		return false;
	*at = s->bytes.len;
	sp_buf_add(&s->bytes, text, n);
	sp_buf_u8(&s->bytes, 0);
	return true;
}

static const char *load_strings(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e)
{
	uint32_t lost = gap(e->string, d->head[SP_HEAD_STRING], s->n_str);
	uint32_t n = (uint32_t)d->head[SP_HEAD_N_STRINGS];
	if (lost == UINT32_MAX || !EXTEND(s, str, (size_t)lost + n))
		return "its strings do not continue those before";
	while (lost--)
		s->str[s->n_str++] = (struct sp_rstring){.len = SP_NONE};
	size_t left;
	const uint8_t *p = sp_cols_bytes(&d->cols, SP_COL_STR_BYTES, &left);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t len = sp_col_next(&d->cols.c[SP_COL_STR_LEN]);
		struct sp_rstring one = {.len = (uint32_t)len};
		if (len > left || len > SP_SPOOL_MAX_STRING ||
		    !sp_load_text(s, p, (size_t)len, &one.at))
			return "its strings are longer than their bytes";
		p += len;
		left -= (size_t)len;
		s->str[s->n_str++] = one;
	}
	lost = gap(e->origin, d->head[SP_HEAD_ORIGIN], s->n_origin);
	n = (uint32_t)d->head[SP_HEAD_N_ORIGINS];
	if (lost == UINT32_MAX || !EXTEND(s, origin, (size_t)lost + n))
		return "its origins do not continue those before";
	for (; lost; lost--, s->n_origin++)
		s->origin[s->n_origin].host = s->origin[s->n_origin].boot = SP_NONE;
	for (; n; n--, s->n_origin++) {
		uint64_t host = sp_col_next(&d->cols.c[SP_COL_ORIGIN_HOST]);
		uint64_t boot = sp_col_next(&d->cols.c[SP_COL_ORIGIN_BOOT]);
		s->origin[s->n_origin].host = global(e->string, host - 1, s->n_str);
		s->origin[s->n_origin].boot = global(e->string, boot - 1, s->n_str);
	}
	return NULL;
}

static const char *load_files(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e)
{
	struct sp_col *c = d->cols.c;
	uint32_t lost = gap(e->file, d->head[SP_HEAD_FILE], s->n_file);
	uint32_t n = (uint32_t)d->head[SP_HEAD_N_FILES];
	if (lost == UINT32_MAX || !EXTEND(s, file, (size_t)lost + n))
		return "its files do not continue those before";
	while (lost--)
		s->file[s->n_file++] = (struct sp_rfile){.lost = true};
	size_t left;
	const uint8_t *ids = sp_cols_bytes(&d->cols, SP_COL_FILE_ID, &left);
	size_t contents_left;
	const uint8_t *contents = sp_cols_bytes(&d->cols, SP_COL_FILE_CONTENT, &contents_left);
	while (n--) {
		struct sp_rfile f = {
			.path = global(e->string, sp_col_next(&c[SP_COL_FILE_PATH]), s->n_str),
			.maj = (uint32_t)sp_col_next(&c[SP_COL_FILE_MAJ]),
			.min = (uint32_t)sp_col_next(&c[SP_COL_FILE_MIN]),
			.ino = sp_col_next(&c[SP_COL_FILE_INO]),
			.gen = sp_col_next(&c[SP_COL_FILE_GEN]),
			.flags = (uint32_t)sp_col_next(&c[SP_COL_FILE_FLAGS]),
			.number = (uint32_t)s->n_file,
		};
		uint64_t id_len = sp_col_next(&c[SP_COL_FILE_ID_LEN]);
		if (id_len > left || id_len > 64)
			return "its build-ids are malformed";
		if (!sp_load_text(s, ids, (size_t)id_len, &f.id_at))
			return "it asks for too much memory";
		f.id_len = (uint8_t)id_len;
		ids += id_len;
		left -= (size_t)id_len;
		if (f.flags & SP_SPOOL_FILE_CONTENT) {
			if (contents_left < SP_CONTENT_HASH_BYTES)
				return "its content hashes are malformed";
			if (!sp_load_text(s, contents, SP_CONTENT_HASH_BYTES, &f.content_at))
				return "it asks for too much memory";
			contents += SP_CONTENT_HASH_BYTES;
			contents_left -= SP_CONTENT_HASH_BYTES;
		}
		f.lost = string_lost(s, f.path);
		s->file[s->n_file++] = f;
	}
	return NULL;
}

static const char *load_segs(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e)
{
	struct sp_col *c = d->cols.c;
	uint32_t lost = gap(e->seg, d->head[SP_HEAD_SEG], s->n_seg);
	uint32_t n = (uint32_t)d->head[SP_HEAD_N_SEGS];
	if (lost == UINT32_MAX || !EXTEND(s, seg, (size_t)lost + n))
		return "its segments do not continue those before";
	while (lost--)
		s->seg[s->n_seg++] = (struct sp_rseg){.file = SP_NONE};
	while (n--) {
		struct sp_rseg g = {
			.file = global(e->file, sp_col_next(&c[SP_COL_SEG_FILE]), s->n_file),
			.foff = sp_col_next(&c[SP_COL_SEG_FOFF]),
			.len = sp_col_next(&c[SP_COL_SEG_LEN]),
		};
		if (g.file != SP_NONE && s->file[g.file].lost)
			g.file = SP_NONE;
		s->seg[s->n_seg++] = g;
	}
	lost = gap(e->event, d->head[SP_HEAD_EVENT], s->n_event);
	n = (uint32_t)d->head[SP_HEAD_N_EVENTS];
	if (lost == UINT32_MAX || !EXTEND(s, event, (size_t)lost + n))
		return "its events do not continue those before";
	while (lost--)
		s->event[s->n_event++] = (struct sp_revent){.name = SP_NONE, .lost = true};
	while (n--) {
		struct sp_revent v = {
			.name = global(e->string, sp_col_next(&c[SP_COL_EVENT_NAME]), s->n_str),
			.is_time = sp_col_next(&c[SP_COL_EVENT_FLAGS]) & 1,
		};
		v.lost = string_lost(s, v.name);
		s->event[s->n_event++] = v;
	}
	return NULL;
}

uint32_t sp_load_origin(const struct sp_repoch *e, uint64_t local)
{
	return local && local < SP_NONE - e->origin ? e->origin + (uint32_t)local : 0;
}

static const char *load_threads(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e)
{
	struct sp_col *c = d->cols.c;
	uint32_t lost = gap(e->thread, d->head[SP_HEAD_THREAD], s->n_thread);
	uint32_t n = (uint32_t)d->head[SP_HEAD_N_THREADS];
	if (lost == UINT32_MAX || !EXTEND(s, thread, (size_t)lost + n))
		return "its threads do not continue those before";
	for (; lost; lost--, s->n_thread++)
		s->thread[s->n_thread] = (struct sp_rthread){
			.pub = {.id = (uint32_t)s->n_thread, .pid = -1, .tid = -1}, .lost = true};
	int64_t pid = 0;
	for (; n; n--, s->n_thread++) {
		pid += sp_unzigzag(sp_col_next(&c[SP_COL_THREAD_PID]));
		int64_t step = sp_unzigzag(sp_col_next(&c[SP_COL_THREAD_TID]));
		if (pid < INT32_MIN || pid > INT32_MAX || step < -(INT64_C(1) << 32) ||
		    step > INT64_C(1) << 32 || pid + step < INT32_MIN || pid + step > INT32_MAX)
			return "a pid or tid is out of range";
		s->thread[s->n_thread] = (struct sp_rthread){
			.pub = {.id = (uint32_t)s->n_thread, .pid = (int32_t)pid,
				.tid = (int32_t)(pid + step)},
		};
		struct sp_rthread *t = &s->thread[s->n_thread];
		t->pub.origin = t->origin = sp_load_origin(e, sp_col_next(&c[SP_COL_THREAD_ORIGIN]));
	}
	return NULL;
}

static void link_module(struct sp_spool *s, uint32_t set, const struct sp_rmodule *m)
{
	struct sp_rset *t = &s->set[set];
	uint32_t id = (uint32_t)s->n_module++;
	s->module[id] = *m;
	s->module[id].set = set;
	s->module[id].next = SP_NONE;
	if (t->n++)
		s->module[t->last].next = id;
	else
		t->first = id;
	t->last = id;
}

static const char *copy_set(struct sp_spool *s, uint32_t to, uint32_t from, uint64_t n)
{
	if (from == SP_NONE || s->set[from].lost || n > s->set[from].n) {
		s->set[to].lost = true;
		return NULL;
	}
	if (!EXTEND(s, module, n))
		return "it asks for too much memory";
	for (uint32_t m = s->set[from].first; n; n--) {
		struct sp_rmodule one = s->module[m];
		m = one.next;
		link_module(s, to, &one);
	}
	return NULL;
}

static const char *load_sets(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e)
{
	struct sp_col *c = d->cols.c;
	uint32_t lost = gap(e->set, d->head[SP_HEAD_SET], s->n_set);
	uint32_t n = (uint32_t)d->head[SP_HEAD_N_SETS];
	if (lost == UINT32_MAX || !EXTEND(s, set, (size_t)lost + n))
		return "its module sets do not continue those before";
	uint32_t number = (uint32_t)(e - s->epoch);
	for (; lost; lost--)
		s->set[s->n_set++] = (struct sp_rset){.pid = -1, .epoch = number, .lost = true,
						      .first = SP_NONE, .last = SP_NONE};
	int64_t pid = 0;
	d->next_copy = (uint32_t)s->n_set;
	while (n--) {
		pid += sp_unzigzag(sp_col_next(&c[SP_COL_SET_PID]));
		if (pid < INT32_MIN || pid > INT32_MAX)
			return "a pid is out of range";
		s->set[s->n_set++] = (struct sp_rset){
			.pid = (int32_t)pid,
			.origin = sp_load_origin(e, sp_col_next(&c[SP_COL_SET_ORIGIN])),
			.epoch = number,
			.first = SP_NONE,
			.last = SP_NONE,
		};
	}
	return NULL;
}

/* The new sets up to `last` begin as the copies that they are. Their parents are complete: modules
 * come in the order of their sets, and a parent is older than its copy. */
static const char *make_copies(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e,
			       uint32_t last)
{
	for (; d->next_copy < s->n_set && d->next_copy <= last; d->next_copy++) {
		uint64_t parent = sp_col_next(&d->cols.c[SP_COL_SET_PARENT]);
		uint64_t n = sp_col_next(&d->cols.c[SP_COL_SET_COPIED]);
		const char *why = parent ? copy_set(s, d->next_copy,
						    global(e->set, parent - 1, d->next_copy), n)
					 : NULL;
		if (why)
			return why;
	}
	return NULL;
}

static const char *load_modules(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e)
{
	struct sp_col *c = d->cols.c;
	uint32_t n = (uint32_t)d->head[SP_HEAD_N_MODULES];
	uint64_t set = 0, start = 0;
	const char *why = NULL;
	if (!EXTEND(s, module, n))
		return "it asks for too much memory";
	for (uint32_t i = 0; i < n; i++) {
		uint64_t step = sp_col_next(&c[SP_COL_MOD_SET]);
		set += step;
		uint32_t to = step <= s->n_set ? global(e->set, set, s->n_set) : SP_NONE;
		uint32_t seg = global(e->seg, sp_col_next(&c[SP_COL_MOD_SEG]), s->n_seg);
		uint64_t place = sp_col_next(&c[SP_COL_MOD_PLACE]);
		start += (uint64_t)sp_unzigzag(sp_col_next(&c[SP_COL_MOD_START]));
		if (to == SP_NONE || seg == SP_NONE)
			return "a module refers to nothing";
		why = make_copies(s, d, e, to);
		if (why)
			return why;
		const struct sp_rset *t = &s->set[to];
		if (t->lost)
			continue;
		const struct sp_rseg *g = &s->seg[seg];
		if (place < t->n || place - t->n > SP_SPOOL_MAX_DEFS)
			return "a module has a wrong place in its set";
		struct sp_rmodule lost = {.file = SP_NONE};
		/* Only what was lost costs anew; the copies took of the room that was made above. */
		uint64_t gone = place - t->n;
		if (!sp_load_afford(s, gone * sizeof *s->module) ||
		    !sp_grow(&s->module, &s->cap_module, s->n_module + gone + 1, sizeof *s->module))
			return "it asks for too much memory";
		while (s->set[to].n < place)
			link_module(s, to, &lost); /* one whose block was lost */
		struct sp_rmodule m = {.file = g->file, .start = start, .len = g->len,
				       .foff = g->foff};
		if (g->file != SP_NONE && (!g->len || start + g->len - 1 < start))
			return "a module's range is malformed";
		link_module(s, to, &m);
	}
	return make_copies(s, d, e, SP_NONE);
}

static const char *load_frames(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e)
{
	struct sp_col *c = d->cols.c;
	uint32_t lost = gap(e->frame, d->head[SP_HEAD_FRAME], s->n_frame);
	uint32_t n = (uint32_t)d->head[SP_HEAD_N_FRAMES];
	size_t n_last = 8 + s->n_file;
	if (lost == UINT32_MAX || !EXTEND(s, frame, (size_t)lost + n))
		return "its frames do not continue those before";
	uint64_t *last = n ? calloc(n_last, sizeof *last) : NULL;
	if (n && !last)
		return "memory ended";
	while (lost--)
		s->frame[s->n_frame++] = (struct sp_rframe){.kind = SP_FKIND_LOST};
	const char *why = NULL;
	for (; n && !why; n--) {
		struct sp_rframe f = {0};
		uint64_t kind = sp_col_next(&c[SP_COL_FRAME_KIND]);
		bool has_file = kind == SP_FKIND_FILE || kind == SP_FKIND_COPY;
		uint32_t file = 0;
		if (kind == SP_FKIND_TRUNCATED || kind >= SP_FKIND_LOST)
			why = "a frame is of an unknown kind";
		if (has_file)
			file = global(e->file, sp_col_next(&c[SP_COL_FRAME_FILE]), s->n_file);
		if (file == SP_NONE) {
			why = "a frame refers to no file";
			break;
		}
		if (kind == SP_FKIND_COPY)
			f.copy = (uint16_t)sp_col_next(&c[SP_COL_FRAME_COPY]);
		uint64_t *before = &last[has_file ? 8 + file : kind & 7];
		*before += (uint64_t)sp_unzigzag(sp_col_next(&c[SP_COL_FRAME_OFF]));
		f.kind = (uint16_t)kind;
		f.file = file;
		f.off = *before;
		if (has_file && s->file[file].lost)
			f.kind = SP_FKIND_LOST;
		s->frame[s->n_frame++] = f;
	}
	free(last);
	lost = gap(e->node, d->head[SP_HEAD_NODE], s->n_node);
	if (!why && (lost == UINT32_MAX ||
		     !EXTEND(s, node, (size_t)lost + d->head[SP_HEAD_N_NODES])))
		why = "its stacks do not continue those before";
	s->has_lost_nodes |= lost > 0;
	for (; !why && lost; lost--)
		s->node[s->n_node++] = (struct sp_rnode){.parent = SP_NONE, .frame = SP_NONE};
	return why;
}

static const char *load_waits(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e)
{
	struct sp_col *c = d->cols.c;
	uint32_t lost = gap(e->wait, d->head[SP_HEAD_WAIT], s->n_wait);
	uint32_t n = (uint32_t)d->head[SP_HEAD_N_WAITS];
	if (lost == UINT32_MAX || !EXTEND(s, wait, (size_t)lost + n))
		return "its waits do not continue those before";
	while (lost--)
		s->wait[s->n_wait++] = (struct sp_rwait){.comm = SP_NONE, .lost = true};
	while (n--)
		s->wait[s->n_wait++] = (struct sp_rwait){
			.state = (uint32_t)sp_col_next(&c[SP_COL_WAIT_STATE]),
			.waker_pid = (int32_t)sp_col_next(&c[SP_COL_WAIT_PID]),
			.waker_tid = (int32_t)sp_col_next(&c[SP_COL_WAIT_TID]),
			.comm = global(e->string, sp_col_next(&c[SP_COL_WAIT_COMM]), s->n_str),
		};
	return NULL;
}

static const char *load_counts(struct sp_spool *s, struct sp_data *d, struct sp_repoch *e)
{
	for (uint64_t n = d->head[SP_HEAD_N_COUNTS]; n; n--) {
		uint32_t name = global(e->string, sp_col_next(&d->cols.c[SP_COL_COUNT_NAME]),
				       s->n_str);
		int64_t delta = sp_unzigzag(sp_col_next(&d->cols.c[SP_COL_COUNT_DELTA]));
		if (name == SP_NONE)
			return "a counter has no name";
		if (string_lost(s, name))
			continue;
		enum sp_counter which =
			sp_counter_find((const char *)s->bytes.data + s->str[name].at);
		if (which == SP_N_COUNTERS)
			continue; /* of a later version */
		e->counters.v[which] += (uint64_t)delta;
		e->counters.known |= UINT64_C(1) << which;
	}
	return NULL;
}

static bool columns_overrun(const struct sp_data *d)
{
	for (unsigned i = 0; i < 256; i++)
		if (d->cols.c[i].bad)
			return true;
	return false;
}

/* Lengths of all tables, to take back what a bad block began. */
struct marks {
	size_t str, origin, file, seg, event, thread, set, module, frame, node, wait, epoch, bytes;
};

static struct marks mark(const struct sp_spool *s)
{
	return (struct marks){s->n_str,    s->n_origin, s->n_file,   s->n_seg,   s->n_event,
			      s->n_thread, s->n_set,    s->n_module, s->n_frame, s->n_node,
			      s->n_wait,   s->n_epoch,  s->bytes.len};
}

static void take_back(struct sp_spool *s, const struct marks *m)
{
	s->n_str = m->str;
	s->n_origin = m->origin;
	s->n_file = m->file;
	s->n_seg = m->seg;
	s->n_event = m->event;
	s->n_thread = m->thread;
	s->n_frame = m->frame;
	s->n_node = m->node;
	s->n_wait = m->wait;
	s->n_epoch = m->epoch;
	s->bytes.len = m->bytes;
	s->n_set = m->set;
	if (s->n_module == m->module)
		return;
	/* Modules are linked into older sets too: those become unusable rather than half true. */
	for (size_t i = m->module; i < s->n_module; i++)
		if (s->module[i].set < s->n_set)
			s->set[s->module[i].set] = (struct sp_rset){
				.pid = s->set[s->module[i].set].pid,
				.origin = s->set[s->module[i].set].origin,
				.epoch = s->set[s->module[i].set].epoch,
				.first = SP_NONE,
				.last = SP_NONE,
				.lost = true,
			};
	s->n_module = m->module;
}

static void note_times(struct sp_spool *s, struct sp_repoch *e, uint64_t first, uint64_t last)
{
	if (last < first || !last || last > UINT64_MAX / e->resolution)
		return;
	first = first * e->resolution + (uint64_t)e->shift_ns;
	last = last * e->resolution + (uint64_t)e->shift_ns;
	if (!e->first_ns || first < e->first_ns)
		e->first_ns = first;
	if (!s->info.first_ns || first < s->info.first_ns)
		s->info.first_ns = first;
	if (last > s->info.last_ns)
		s->info.last_ns = last;
}

const char *sp_load_data(struct sp_spool *s, const uint8_t *payload, size_t n, uint64_t at)
{
	static const struct sp_data zero;
	struct sp_data *d = &s->data;
	*d = zero;
	const char *why = sp_data_parse(d, payload, n);
	if (why)
		return why;
	struct marks before = mark(s);
	struct sp_repoch *e = sp_load_epoch(s, d->head[SP_HEAD_EPOCH], &why);
	if (!e)
		return why;
	e->resolution = d->head[SP_HEAD_RESOLUTION];
	static const char *(*const steps[])(struct sp_spool *, struct sp_data *,
					    const struct sp_repoch *) = {
		load_strings, load_files, load_segs,   load_threads,
		load_sets,    load_modules, load_frames, load_waits,
	};
	for (size_t i = 0; !why && i < sizeof steps / sizeof *steps; i++)
		why = steps[i](s, d, e);
	if (!why)
		why = sp_load_stacks(s, d, e);
	if (!why && columns_overrun(d))
		why = "a column is shorter than its entries";
	if (!why)
		why = load_counts(s, d, e);
	if (why) {
		take_back(s, &before);
		return why;
	}
	uint64_t known = s->info.n_samples - e->samples;
	if (d->head[SP_HEAD_SAMPLE] > known) { /* samples of lost blocks */
		s->n_lost += d->head[SP_HEAD_SAMPLE] - known;
		e->samples -= d->head[SP_HEAD_SAMPLE] - known;
	}
	if (!d->head[SP_HEAD_N_SAMPLES])
		return NULL;
	uint64_t first = d->head[SP_HEAD_FIRST], last = d->head[SP_HEAD_LAST];
	uint32_t epoch = (uint32_t)d->head[SP_HEAD_EPOCH];
	/* The samples are decoded once now, so that a bad one is known before any is given. */
	why = sp_load_samples(s, payload, n, epoch);
	if (why)
		return why;
	struct sp_rblock *b = SP_PUSH(&s->block, &s->n_block, &s->cap_block);
	if (!b)
		return "memory ended";
	*b = (struct sp_rblock){.at = at, .epoch = epoch};
	for (size_t i = 0; i < s->cur->n_sample && s->state != SP_SPOOL_DAMAGED; i++)
		if (s->cur->sample[i].stack == SP_STACK_LOST) {
			s->state = SP_SPOOL_DAMAGED;
			sp_load_complain(s, "samples of the block at offset %llu refer to what is "
					    "not there", (unsigned long long)at);
		}
	s->info.n_samples += s->cur->n_sample;
	note_times(s, &s->epoch[epoch], first, last);
	return NULL;
}
