#include "perf/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/ext.h"
#include "perf/parse.h"

/* perf opens one event per counter and CPU: thousands of ids are usual, millions are not. */
#define EVENTS_MAX 4096u
#define IDS_MAX ((size_t)4 << 20)
#define BUILD_IDS_MAX ((size_t)1 << 20)
#define PATHS_BYTES_MAX ((size_t)128 << 20)
#define FEATURES_BYTES_MAX ((size_t)64 << 20)
/* Names by type and config are compared with every event: so often in all. */
#define NAME_LOOKS_MAX (UINT64_C(1) << 22)

void sp_events_init(struct sp_events *e)
{
	*e = (struct sp_events){.sample_id_at = -1, .trailer_id_at = -1};
	e->info.clockid = -1;
}

static void event_free(struct sp_event *ev)
{
	if (!ev)
		return;
	free(ev->ids);
	free(ev->name);
	free(ev);
}

void sp_events_deinit(struct sp_events *e)
{
	for (size_t i = 0; i < e->n; i++)
		event_free(e->v[i]);
	free(e->v);
	sp_map64_deinit(&e->by_id);
	for (size_t i = 0; i < sizeof e->strings / sizeof *e->strings; i++)
		free(e->strings[i]);
	for (size_t i = 0; i < SP_N_FEATURES; i++)
		sp_buf_deinit(&e->raw_features[i]);
	sp_intern_deinit(&e->paths);
	free(e->build_ids);
	sp_intern_deinit(&e->contents);
	free(e->content_hashes);
	*e = (struct sp_events){0};
}

static struct sp_event *event_new(const uint8_t *attr, const uint8_t *ids, size_t n_ids, bool swap)
{
	struct sp_event *ev = calloc(1, sizeof *ev);
	char name[64];
	if (!ev || sp_attr_decode(&ev->attr, attr, SP_ATTR_BYTES, false, NULL) < 0) {
		free(ev);
		return NULL;
	}
	memcpy(ev->attr_bytes, attr, SP_ATTR_BYTES);
	sp_attr_name(&ev->attr, name, sizeof name);
	ev->name = strdup(name);
	ev->ids = n_ids ? malloc(n_ids * 8) : NULL;
	if (!ev->name || (n_ids && !ev->ids)) {
		event_free(ev);
		return NULL;
	}
	ev->n_ids = ev->cap_ids = n_ids;
	for (size_t i = 0; i < n_ids; i++) {
		uint64_t id = sp_get64(ids + i * 8);
		ev->ids[i] = swap ? __builtin_bswap64(id) : id;
	}
	return ev;
}

int sp_events_add(struct sp_events *e, const uint8_t *attr, const uint8_t *ids, size_t n_ids,
		  bool swap, struct sp_err *err)
{
	if (e->n >= EVENTS_MAX || n_ids > IDS_MAX - e->n_ids)
		return sp_err_set(err, SP_ERR_LIMIT, 0,
				  "cannot read events: more than %u, or more than %zu ids",
				  EVENTS_MAX, IDS_MAX);
	struct sp_event *ev = event_new(attr, ids, n_ids, swap);
	struct sp_event **slot = ev ? SP_PUSH(&e->v, &e->n, &e->cap) : NULL;
	if (!slot) {
		event_free(ev);
		return sp_err_nomem(err);
	}
	*slot = ev;
	ev->index = (uint32_t)(e->n - 1);
	e->n_ids += n_ids;
	for (size_t i = 0; i < n_ids; i++)
		if (!sp_map64_put(&e->by_id, ev->ids[i], ev->index))
			return sp_err_nomem(err);
	const struct sp_attr *first = &e->v[0]->attr;
	if (e->n == 1) {
		e->sample_id_at = sp_sample_id_offset(first);
		e->trailer_id_at = sp_trailer_id_offset(first);
		if (first->flags & SP_ATTR_USE_CLOCKID)
			e->info.clockid = first->clockid;
	}
	return 0;
}

struct sp_event *sp_events_find(const struct sp_events *e, uint64_t id)
{
	uint32_t i = sp_map64_get(&e->by_id, id);
	return i == SP_NOT_FOUND ? NULL : e->v[i];
}

const struct sp_event *sp_events_of(const struct sp_events *e, const uint8_t *raw, size_t size)
{
	if (e->n < 2)
		return e->n ? e->v[0] : NULL;
	bool sample = sp_get32(raw) == SP_PERF_SAMPLE;
	int at = sample ? e->sample_id_at : e->trailer_id_at;
	/* perf's own records and those without ids count as the first event's, as in perf. */
	if (at < 0 || (size_t)at + 8 > size)
		return e->v[0];
	const struct sp_event *ev =
		sp_events_find(e, sp_get64(sample ? raw + at : raw + size - at));
	return ev ? ev : e->v[0];
}

static int rename_event(struct sp_event *ev, const char *name)
{
	if (!*name || strcmp(ev->name, name) == 0)
		return 1;
	char *copy = strdup(name);
	if (!copy)
		return 0;
	free(ev->name);
	ev->name = copy;
	return 1;
}

/* Names that are not told by id: those of all events of a type and config. */
static void rename_like(struct sp_events *e, uint32_t type, uint64_t config, const char *name)
{
	if (e->n_name_looks > NAME_LOOKS_MAX)
		return;
	e->n_name_looks += e->n;
	for (size_t i = 0; i < e->n; i++)
		if (e->v[i]->attr.type == type && e->v[i]->attr.config == config)
			rename_event(e->v[i], name);
}

/* --- features --- */

struct desc_arg {
	struct sp_events *e;
	size_t index;
};

static int on_desc(void *arg, const uint8_t *attr, const char *name, const uint8_t *ids,
		   size_t n_ids, struct sp_err *err)
{
	struct desc_arg *d = arg;
	struct sp_event *ev = n_ids ? sp_events_find(d->e, sp_get64(ids)) : NULL;
	(void)attr;
	(void)err;
	if (!ev && d->index < d->e->n)
		ev = d->e->v[d->index];
	d->index++;
	if (ev)
		rename_event(ev, name);
	return 0;
}

static void set_string(struct sp_events *e, size_t slot, const char **where, const char *s,
		       size_t len)
{
	char *copy = malloc(len + 1);
	if (!copy)
		return;
	memcpy(copy, s, len);
	copy[len] = 0;
	free(e->strings[slot]);
	e->strings[slot] = copy;
	*where = copy;
}

static void set_cmdline(struct sp_events *e, struct sp_cursor *c)
{
	struct sp_buf b = {0};
	uint32_t n = sp_cur_u32(c);
	for (uint32_t i = 0; i < n && !c->bad; i++) {
		const char *s = sp_feature_string(c);
		if (s && i)
			sp_buf_u8(&b, ' ');
		if (s)
			sp_buf_str(&b, s);
	}
	if (!c->bad && !b.failed)
		set_string(e, 4, &e->info.cmdline, b.data ? (const char *)b.data : "", b.len);
	sp_buf_deinit(&b);
}

/* simpleperf keeps the names of its events in one value: lines "NAME,TYPE,CONFIG". */
static void set_simpleperf_names(struct sp_events *e, const char *lines)
{
	char line[320], name[256]; /* sscanf looks for the end of what it is given first */
	unsigned type;
	unsigned long long config;
	for (size_t n; *lines; lines += n, lines += *lines == '\n') {
		n = strcspn(lines, "\n");
		snprintf(line, sizeof line, "%.*s", n < sizeof line ? (int)n : 0, lines);
		if (sscanf(line, "%255[^,],%u,%llu", name, &type, &config) == 3)
			rename_like(e, type, config, name);
	}
}

static void read_simpleperf_meta(struct sp_events *e, struct sp_cursor *c)
{
	while (sp_cur_left(c)) {
		const char *key = sp_cur_str(c), *value = sp_cur_str(c);
		if (c->bad)
			return;
		if (!strcmp(key, "event_type_info"))
			set_simpleperf_names(e, value);
	}
}

static bool read_feature(struct sp_events *e, unsigned feature, const uint8_t *data, size_t size)
{
	struct sp_cursor c = sp_cursor(data, size);
	const char **strings[] = {&e->info.hostname, &e->info.osrelease, &e->info.version,
				  &e->info.arch};
	switch (feature) {
	case SP_FEATURE_HOSTNAME:
	case SP_FEATURE_OSRELEASE:
	case SP_FEATURE_VERSION:
	case SP_FEATURE_ARCH: {
		unsigned slot = feature - SP_FEATURE_HOSTNAME;
		const char *s = sp_feature_string(&c);
		if (s)
			set_string(e, slot, strings[slot], s, strlen(s));
		break;
	}
	case SP_FEATURE_NRCPUS: {
		uint32_t avail = sp_cur_u32(&c);
		if (!c.bad)
			e->info.n_cpus = avail;
		break;
	}
	case SP_FEATURE_CMDLINE:
		set_cmdline(e, &c);
		break;
	case SP_FEATURE_EVENT_DESC: {
		struct desc_arg d = {.e = e};
		return sp_event_desc_parse(data, size, false, on_desc, &d, NULL) >= 0;
	}
	case SP_FEATURE_CLOCK_DATA: {
		sp_cur_skip(&c, 4); /* version */
		uint32_t clockid = sp_cur_u32(&c);
		uint64_t wall = sp_cur_u64(&c), clock = sp_cur_u64(&c);
		if (!c.bad) {
			e->info.clockid = (int32_t)clockid;
			e->info.wall_ns = wall;
			e->info.clock_ns = clock;
		}
		break;
	}
	case SP_FEATURE_SIMPLEPERF_META:
		read_simpleperf_meta(e, &c);
		break;
	case SP_FEATURE_COMPRESSED: {
		sp_cur_skip(&c, 16); /* version, type, level, ratio */
		uint32_t mmap_len = sp_cur_u32(&c);
		if (!c.bad)
			e->comp_mmap_len = mmap_len;
		break;
	}
	default:
		break;
	}
	return !c.bad;
}

int sp_events_feature(struct sp_events *e, unsigned feature, const uint8_t *data, size_t size)
{
	if (feature >= SP_N_FEATURES)
		return 0;
	struct sp_buf *keep = &e->raw_features[feature];
	if (size <= FEATURES_BYTES_MAX - (e->features_bytes - keep->len)) {
		e->features_bytes -= keep->len;
		keep->len = 0;
		sp_buf_add(keep, data, size);
		e->features_bytes += keep->len;
	}
	return read_feature(e, feature, data, size);
}

/* --- build-ids --- */

bool sp_build_id_lacks_pid(const uint8_t *rec, size_t size)
{
	return size >= 36 + 13 && memcmp(rec + 36, "nel.kallsyms]", 13) == 0;
}

/* What a build-id is known by: the path, and behind its NUL the file. 0: too long. */
#define KEY_MAX (4096u + 1 + 16)
static size_t build_id_key(uint8_t out[KEY_MAX], const char *path, size_t len, uint32_t maj,
			   uint32_t min, uint64_t ino)
{
	if (len > 4096)
		return 0;
	memcpy(out, path, len);
	if (!ino)
		return len;
	out[len++] = 0;
	sp_put32(out + len, maj);
	sp_put32(out + len + 4, min);
	sp_put64(out + len + 8, ino);
	return len + 16;
}

void sp_events_build_id(struct sp_events *e, const uint8_t *rec, size_t size)
{
	size_t id_at = sp_build_id_lacks_pid(rec, size) ? 8 : 12, path_at = id_at + 24;
	if (size <= path_at)
		return;
	size_t path_len = strnlen((const char *)rec + path_at, size - path_at);
	uint8_t len = sp_get16(rec + 4) & SP_MISC_BUILD_ID_SIZE ? rec[id_at + 20] : 20;
	if (!path_len || !len || len > 20 || e->paths.n >= BUILD_IDS_MAX ||
	    e->paths.bytes.len > PATHS_BYTES_MAX)
		return;
	struct events_build_id b = {.pid = id_at == 12 ? (int32_t)sp_get32(rec + 8) : -1,
				    .misc = sp_get16(rec + 4) & 7,
				    .len = len};
	memcpy(b.id, rec + id_at, len);
	const uint8_t *file = rec + size - SP_BUILD_ID_FILE_BYTES;
	if (size - path_at > path_len + SP_BUILD_ID_FILE_BYTES &&
	    !memcmp(file, SP_BUILD_ID_FILE_MAGIC, 8)) {
		b.maj = sp_get32(file + 8);
		b.min = sp_get32(file + 12);
		b.ino = sp_get64(file + 16);
	}
	uint8_t key[KEY_MAX];
	size_t key_len = build_id_key(key, (const char *)rec + path_at, path_len, b.maj, b.min, b.ino);
	bool is_new;
	uint32_t i = key_len ? sp_intern_add(&e->paths, key, key_len, &is_new) : SP_NOT_FOUND;
	if (i == SP_NOT_FOUND ||
	    !sp_grow(&e->build_ids, &e->cap_build_ids, (size_t)i + 1, sizeof *e->build_ids))
		return;
	if (is_new || b.pid == -1 || e->build_ids[i].pid != -1)
		e->build_ids[i] = b;
}

const struct events_build_id *sp_events_find_build_id(const struct sp_events *e, const char *path,
						      uint32_t maj, uint32_t min, uint64_t ino)
{
	uint8_t key[KEY_MAX];
	size_t len = strlen(path);
	size_t n = ino ? build_id_key(key, path, len, maj, min, ino) : 0;
	uint32_t i = n ? sp_intern_find(&e->paths, key, n) : SP_NOT_FOUND;
	if (i == SP_NOT_FOUND)
		i = sp_intern_find(&e->paths, path, len);
	return i == SP_NOT_FOUND ? NULL : &e->build_ids[i];
}

void sp_events_content(struct sp_events *e, const struct sp_ext_content *c)
{
	uint8_t key[KEY_MAX];
	size_t n = c->ino ? build_id_key(key, c->path, c->path_len, c->maj, c->min, c->ino) : 0;
	if (!n || e->contents.n >= BUILD_IDS_MAX || e->contents.bytes.len > PATHS_BYTES_MAX)
		return;
	if (!sp_grow(&e->content_hashes, &e->cap_content_hashes, (size_t)e->contents.n + 1,
		     sizeof *e->content_hashes))
		return;
	uint32_t i = sp_intern_add(&e->contents, key, n, NULL);
	if (i != SP_NOT_FOUND)
		memcpy(e->content_hashes[i], c->hash, sizeof c->hash);
}

const uint8_t *sp_events_find_content(const struct sp_events *e, const char *path, uint32_t maj,
				      uint32_t min, uint64_t ino)
{
	uint8_t key[KEY_MAX];
	size_t n = ino ? build_id_key(key, path, strlen(path), maj, min, ino) : 0;
	uint32_t i = n ? sp_intern_find(&e->contents, key, n) : SP_NOT_FOUND;
	return i == SP_NOT_FOUND ? NULL : e->content_hashes[i];
}

/* --- records --- */

static int on_attr(struct sp_events *e, const uint8_t *rec, size_t size, struct sp_err *err)
{
	uint8_t attr[SP_ATTR_BYTES];
	int attr_size = sp_attr_normalize(attr, rec + 8, size - 8, false, err);
	if (attr_size < 0)
		return attr_size;
	return sp_events_add(e, attr, rec + 8 + attr_size, (size - 8 - (size_t)attr_size) / 8,
			     false, err);
}

/* EVENT_UPDATE: u64 type, u64 id, data. */
static void on_update(struct sp_events *e, const uint8_t *rec, size_t size)
{
	if (size <= 24 || sp_get64(rec + 8) != 2 || !memchr(rec + 24, 0, size - 24))
		return;
	struct sp_event *ev = sp_events_find(e, sp_get64(rec + 16));
	if (!ev && e->n == 1)
		ev = e->v[0];
	if (ev)
		rename_event(ev, (const char *)rec + 24);
}

/* An old perf's HEADER_EVENT_TYPE: u64 config, name; meant for tracepoints. */
static void on_event_type(struct sp_events *e, const uint8_t *rec, size_t size)
{
	if (size > 16 && memchr(rec + 16, 0, size - 16))
		rename_like(e, 2, sp_get64(rec + 8), (const char *)rec + 16);
}

int sp_events_record(struct sp_events *e, const uint8_t *rec, size_t size, struct sp_err *err)
{
	switch (sp_get32(rec)) {
	case SP_PERF_HEADER_ATTR:
		return on_attr(e, rec, size, err);
	case SP_PERF_HEADER_FEATURE:
		if (size >= 16 && sp_get64(rec + 8) < SP_N_FEATURES)
			sp_events_feature(e, (unsigned)sp_get64(rec + 8), rec + 16, size - 16);
		return 0;
	case SP_PERF_EVENT_UPDATE:
		on_update(e, rec, size);
		return 0;
	case SP_PERF_HEADER_BUILD_ID:
		sp_events_build_id(e, rec, size);
		return 0;
	case SP_PERF_HEADER_EVENT_TYPE:
		on_event_type(e, rec, size);
		return 0;
	default:
		return 0;
	}
}
