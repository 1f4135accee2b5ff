#define _GNU_SOURCE
#include "modules.h"

#include <stdio.h>
#include <stdlib.h>

#include "image.h"
#include "live.h"

#define MAX_OPEN 8192u   /* images; each is a guarded map of base/file.c, which has 16384 */
#define MAX_PER_FILE 64u /* images of one archive */
#define MAX_ATTEMPTS 2u  /* a file may appear late (behaviour.md 1.9) */
#define EMBEDDED_MAX ((size_t)512 << 20)

enum file_state { FILE_UNKNOWN, FILE_OPEN, FILE_NONE };

struct file_entry {
	struct un_image *images; /* owned */
	uint8_t state, attempts, n_images;
	bool said, is_python, is_jvm, is_memfd;
};

/* What a map of a part was made of. */
struct side {
	uint64_t foff;
	struct un_image *image; /* held by the part, or NULL */
};

/* The engine's maps for a chunk of mappings, attached to it, and shared by the views of all spaces
 * that have the chunk. */
struct part {
	_Atomic uint32_t refs;
	uint32_t n, n_images;
	uint64_t embed_generation;
	bool has_python, has_jvm;
	bool again;               /* a file is looked for once more */
	struct un_image **images; /* held, each once; this and sides lie behind maps */
	struct side *sides;
	struct uw_map maps[];
};

/* The engine's view of a space, attached to it. */
struct view {
	struct uw_space space;
	_Atomic uint32_t refs;
	struct view *older; /* held: of the same space, from before a file was embedded */
	uint64_t embed_generation;
	struct part **held; /* lies behind maps */
	struct uw_maps maps[];
};

/* The last view of a process: in a chunk that changed the next one differs in a few maps. */
#define N_BASES 64u
struct basis {
	int32_t pid;
	struct view *view; /* held */
};

struct un_modules {
	struct sp_procs *procs;
	struct un_modules_options o;
	struct un_origin origin;
	int64_t boot_offset_ns;   /* CLOCK_BOOTTIME - CLOCK_MONOTONIC */
	struct file_entry *files; /* by file id */
	size_t n_files, cap_files;
	struct un_embedded embedded;
	uint32_t n_open;
	uint64_t clock, builds, n_views, embed_generation;
	unsigned n_by_path;
	struct basis bases[N_BASES]; /* by pid */
};

struct un_modules *un_modules_new(struct sp_procs *procs, const struct un_modules_options *o)
{
	struct un_modules *m = calloc(1, sizeof *m);
	if (!m)
		return NULL;
	m->procs = procs;
	m->o = *o;
	m->embedded.max_bytes = EMBEDDED_MAX;
	return m;
}

static void release_part(void *attached)
{
	struct part *p = attached;
	if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (uint32_t i = 0; i < p->n_images; i++)
		atomic_fetch_sub_explicit(&p->images[i]->refs, 1, memory_order_release);
	free(p);
}

static void release_view(struct view *v)
{
	if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (uint32_t i = 0; i < v->space.n; i++)
		release_part(v->held[i]);
	free(v);
}

static void close_image(struct un_modules *m, struct un_image *i)
{
	un_image_free(i);
	m->n_open--;
}

void un_modules_free(struct un_modules *m)
{
	if (!m)
		return;
	for (unsigned i = 0; i < N_BASES; i++)
		release_view(m->bases[i].view);
	for (size_t i = 0; i < m->n_files; i++) {
		for (struct un_image *im = m->files[i].images, *next; im; im = next) {
			next = im->next;
			close_image(m, im);
		}
	}
	free(m->files);
	un_embedded_deinit(&m->embedded);
	free(m);
}

void un_modules_origin(struct un_modules *m, const struct un_origin *origin)
{
	m->origin = *origin;
	m->boot_offset_ns = un_boot_offset_ns();
}

unsigned un_modules_n_by_path(const struct un_modules *m)
{
	return m->n_by_path;
}

int un_modules_embed(struct un_modules *m, const struct sp_ext_object *o, struct sp_err *err)
{
	int rc = un_embedded_add(&m->embedded, o, err);
	if (rc <= 0)
		return rc;
	/* Files that were looked for in vain may be this one. */
	m->embed_generation++;
	for (size_t i = 0; i < m->n_files; i++) {
		if (m->files[i].state == FILE_NONE) {
			m->files[i].state = FILE_UNKNOWN;
			m->files[i].attempts = 0;
		}
	}
	return 0;
}

/* --- opening --- */

static void say(struct un_modules *m, struct file_entry *f, int level, const char *path,
		const char *what)
{
	if (f->said || !m->o.say)
		return;
	f->said = true;
	m->o.say(level, path, what);
}

/* Close the least recently used images that no view needs, a quarter of all. */
static void make_room(struct un_modules *m)
{
	while (m->n_open > MAX_OPEN / 4 * 3) {
		struct un_image **oldest = NULL;
		struct file_entry *of = NULL;
		for (size_t i = 0; i < m->n_files; i++) {
			for (struct un_image **at = &m->files[i].images; *at; at = &(*at)->next) {
				if (!atomic_load_explicit(&(*at)->refs, memory_order_acquire) &&
				    (!oldest || (*at)->used < (*oldest)->used)) {
					oldest = at;
					of = &m->files[i];
				}
			}
		}
		if (!oldest)
			return;
		struct un_image *gone = *oldest;
		*oldest = gone->next;
		close_image(m, gone);
		if (--of->n_images == 0)
			of->state = FILE_UNKNOWN;
	}
}

static void set_build_id(struct un_modules *m, const struct sp_file_id *file,
			 struct sp_build_id *id)
{
	uint8_t len = 0;
	const uint8_t *bytes = !id->len && m->origin.build_id
				       ? m->origin.build_id(m->origin.ctx, file, &len)
				       : NULL;
	if (bytes && len <= SP_BUILD_ID_MAX) {
		id->len = len;
		memcpy(id->bytes, bytes, len);
	}
}

static bool is_host(const struct un_modules *m)
{
	return m->origin.is_host && m->origin.is_host(m->origin.ctx);
}

/* The file's ELF image, open in malloc'ed memory, or NULL; *keep: bytes that the image owns. */
static struct sp_elf *find_elf(struct un_modules *m, struct file_entry *f,
			       const struct sp_mapping *map, int32_t pid, uint64_t time_ns,
			       struct sp_err *err)
{
	const struct sp_file_id *id = sp_procs_file(m->procs, map->file);
	struct sp_elf *elf = calloc(1, sizeof *elf);
	if (!elf)
		return NULL;
	struct sp_file_query q = {.path = id->path,
				  .maj = id->maj,
				  .min = id->min,
				  .ino = id->ino,
				  .build_id = id->build_id,
				  .live_pid = -1,
				  .start = map->start,
				  .end = map->end,
				  .foff = map->foff,
				  .sections_later = true};
	set_build_id(m, id, &q.build_id);
	if (!q.build_id.len && m->origin.content_hash)
		q.content_hash = m->origin.content_hash(m->origin.ctx, id);
	char why[200] = "";
	int rc;
	if (un_embedded_open(&m->embedded, elf, &q, pid)) {
		rc = SP_FOUND;
	} else if (!strcmp(id->path, "[vdso]")) {
		bool ours = un_own_vdso(elf, map->end - map->start, &q.build_id);
		if (ours && !m->origin.is_live && !is_host(m)) {
			sp_elf_close(elf);
			ours = false;
		}
		rc = ours ? SP_FOUND : sp_find_elf(elf, &m->o.find, &q, why, err);
		if (rc != SP_FOUND)
			snprintf(why, sizeof why, "not embedded, and not of this kernel");
	} else {
		if (m->origin.is_live && un_is_alive(pid, time_ns, m->boot_offset_ns))
			q.live_pid = pid;
		rc = sp_find_elf(elf, &m->o.find, &q, why, err);
		bool missing = rc == SP_FOUND_NOTHING || rc == SP_FOUND_OTHER;
		if (missing && q.build_id.len &&
		    sp_file_of_build_id(elf, &q.build_id, true, &m->o.debug_dirs, err) == 1)
			rc = SP_FOUND;
	}
	if (rc == SP_FOUND_BY_PATH) {
		m->n_by_path += !f->said;
		say(m, f, 1, id->path, why);
	} else if (rc == SP_FOUND_OTHER) {
		say(m, f, 0, id->path, why);
	} else if (rc == SP_FOUND_NOTHING && f->attempts + 1u >= MAX_ATTEMPTS) {
		say(m, f, 1, id->path, why);
	}
	if (rc == SP_FOUND || rc == SP_FOUND_BY_PATH)
		return elf;
	free(elf);
	return NULL;
}

static struct un_image *open_image(struct un_modules *m, struct file_entry *f,
				   const struct sp_mapping *map, int32_t pid, uint64_t time_ns)
{
	if (m->n_open >= MAX_OPEN)
		make_room(m);
	if (m->n_open >= MAX_OPEN || f->n_images >= MAX_PER_FILE)
		return NULL;
	struct sp_err err;
	struct sp_elf *elf = find_elf(m, f, map, pid, time_ns, &err);
	struct un_image *i = elf ? un_image_new(elf, &m->o.debug_dirs, &err) : NULL;
	if (!i) {
		f->attempts++;
		if (!f->n_images && (elf || f->attempts >= MAX_ATTEMPTS))
			f->state = FILE_NONE;
		return NULL;
	}
	f->state = FILE_OPEN;
	i->next = f->images;
	f->images = i;
	f->n_images++;
	m->n_open++;
	return i;
}

/* The image that explains a mapping, and the mapping's bias. An ELF file has one image; an archive
 * one per library in it. */
static struct un_image *image_of(struct un_modules *m, const struct sp_mapping *map, int32_t pid,
				 uint64_t time_ns, uint64_t *bias)
{
	struct file_entry *f = &m->files[map->file];
	if (f->state == FILE_NONE)
		return NULL;
	bool plain = false;
	for (struct un_image *i = f->images; i; i = i->next) {
		if (un_image_bias(i, map, bias))
			return i;
		plain |= i->image_foff == 0;
	}
	struct un_image *i = plain ? NULL : open_image(m, f, map, pid, time_ns);
	return i && un_image_bias(i, map, bias) ? i : NULL;
}

/* --- views --- */

static void drop_view(void *attached)
{
	for (struct view *v = attached, *older; v; v = older) {
		older = v->older;
		release_view(v);
	}
}

static struct file_entry entry_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	return (struct file_entry){
		.is_python = !strncmp(base, "python", 6) || !strncmp(base, "libpython", 9),
		.is_jvm = !strcmp(base, "libjvm.so"),
		.is_memfd = !strncmp(path, "/memfd:", 7),
	};
}

static bool meet_files(struct un_modules *m)
{
	size_t n = sp_procs_n_files(m->procs);
	if (!sp_grow(&m->files, &m->cap_files, n, sizeof *m->files))
		return false;
	for (; m->n_files < n; m->n_files++)
		m->files[m->n_files] =
			entry_of(sp_procs_file(m->procs, (uint32_t)m->n_files)->path);
	return true;
}

static struct part *new_part(uint32_t n)
{
	size_t each = sizeof(struct uw_map) + sizeof(struct side) + sizeof(struct un_image *);
	struct part *p = malloc(sizeof *p + n * each);
	if (!p)
		return NULL;
	memset(p, 0, sizeof *p);
	atomic_init(&p->refs, 1);
	p->sides = (struct side *)(p->maps + n);
	p->images = (struct un_image **)(p->sides + n);
	p->n = n;
	return p;
}

static struct view *new_view(size_t n)
{
	struct view *v = malloc(sizeof *v + n * (sizeof *v->maps + sizeof *v->held));
	if (!v)
		return NULL;
	memset(v, 0, sizeof *v);
	atomic_init(&v->refs, 1);
	v->held = (struct part **)(v->maps + n);
	v->space.parts = v->maps;
	return v;
}

/* One map of a part. */
static void set_map(struct un_modules *m, const struct sp_mapping *map, int32_t pid,
		    uint64_t time_ns, struct uw_map *out, struct side *side)
{
	*out = (struct uw_map){.start = map->start, .end = map->end, .tag = map->file};
	*side = (struct side){.foff = map->foff};
	if (map->flags & SP_MAPPING_ANON) {
		out->flags = UW_MAP_ANON;
		return;
	}
	side->image = image_of(m, map, pid, time_ns, &out->bias);
	if (side->image)
		out->module = side->image->module;
	else /* runtimes map JIT code writable and executable from one memfd: BEAM's, .NET's */
		out->flags = UW_MAP_NOFILE | (m->files[map->file].is_memfd ? UW_MAP_ANON : 0);
}

static void hold_image(struct un_modules *m, struct part *p, struct un_image *i)
{
	if (!i || i->build == m->builds)
		return;
	i->build = m->builds;
	i->used = ++m->clock;
	atomic_fetch_add_explicit(&i->refs, 1, memory_order_relaxed);
	p->images[p->n_images++] = i;
}

/* A place in an older view, which goes forward. */
struct older {
	const struct view *view; /* or NULL */
	uint32_t part, at;
};

/* What the older view has of a mapping; false: nothing that stays true. */
static bool known(struct older *o, const struct sp_mapping *map, struct uw_map *out,
		  struct side *side)
{
	const struct part *p = NULL;
	while (o->view && o->part < o->view->space.n) {
		p = o->view->held[o->part];
		if (p->maps[p->n - 1].start >= map->start)
			break;
		o->part++;
		o->at = 0;
		p = NULL;
	}
	if (!p)
		return false;
	while (p->maps[o->at].start < map->start)
		o->at++;
	const struct uw_map *old = &p->maps[o->at];
	if (old->start != map->start || old->end != map->end || old->tag != map->file ||
	    p->sides[o->at].foff != map->foff || old->flags & UW_MAP_NOFILE)
		return false;
	*out = *old;
	*side = p->sides[o->at];
	return true;
}

static struct part *build_part(struct un_modules *m, const struct sp_chunk *c, struct older *old,
			       int32_t pid, uint64_t time_ns)
{
	struct part *p = new_part(c->n);
	if (!p)
		return NULL;
	p->embed_generation = m->embed_generation;
	m->builds++;
	for (uint32_t k = 0; k < c->n; k++) {
		const struct sp_mapping *map = &c->maps[k];
		const struct file_entry *f = &m->files[map->file];
		if (!known(old, map, &p->maps[k], &p->sides[k]))
			set_map(m, map, pid, time_ns, &p->maps[k], &p->sides[k]);
		p->again |= p->maps[k].flags & UW_MAP_NOFILE && f->state != FILE_NONE;
		p->has_python |= f->is_python;
		p->has_jvm |= f->is_jvm;
		hold_image(m, p, p->sides[k].image);
	}
	return p;
}

/* The part of a chunk, with a reference for the caller; NULL when memory ends. */
static struct part *part_of(struct un_modules *m, struct sp_chunk *c, struct older *old,
			    int32_t pid, uint64_t time_ns)
{
	struct part *p = c->attached;
	if (!p || p->embed_generation != m->embed_generation || p->again) {
		p = build_part(m, c, old, pid, time_ns);
		if (!p)
			return NULL;
		release_part(c->attached); /* views of before may still hold it */
		c->attached = p;
		c->drop = release_part;
	}
	atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
	return p;
}

/* A view of s; what it has in common with an older one of the process is taken from there. */
static struct view *build(struct un_modules *m, struct sp_space *s, int32_t pid, uint64_t time_ns)
{
	struct view *v = meet_files(m) ? new_view(s->n_chunks) : NULL;
	if (!v)
		return NULL;
	const struct basis *basis = &m->bases[(uint32_t)pid % N_BASES];
	struct older old = {.view = basis->pid == pid ? basis->view : NULL};
	if (old.view && old.view->embed_generation != m->embed_generation)
		old.view = NULL;
	v->embed_generation = m->embed_generation;
	for (size_t i = 0; i < s->n_chunks; i++) {
		struct part *p = part_of(m, s->chunks[i], &old, pid, time_ns);
		if (!p) {
			release_view(v);
			return NULL;
		}
		v->held[i] = p;
		v->maps[i] = (struct uw_maps){p->maps, p->n};
		v->space.n++;
		v->space.has_python |= p->has_python;
		v->space.has_jvm |= p->has_jvm;
	}
	v->space.id = ++m->n_views;
	return v;
}

const struct uw_space *un_modules_space(struct un_modules *m, struct sp_space *s, int32_t pid,
					uint64_t time_ns)
{
	struct view *v = s->attached;
	if (v && v->embed_generation == m->embed_generation)
		return &v->space;
	struct view *fresh = build(m, s, pid, time_ns);
	if (!fresh)
		return NULL;
	fresh->older = v; /* workers may still use it */
	s->attached = fresh;
	s->drop = drop_view;
	struct basis *basis = &m->bases[(uint32_t)pid % N_BASES];
	release_view(basis->view);
	atomic_fetch_add_explicit(&fresh->refs, 1, memory_order_relaxed);
	*basis = (struct basis){.pid = pid, .view = fresh};
	return &fresh->space;
}

uint16_t un_modules_machine(const struct uw_space *space)
{
	for (uint32_t i = 0; i < space->n; i++)
		for (uint32_t k = 0; k < space->parts[i].n; k++)
			if (space->parts[i].v[k].module)
				return uw_module_elf(space->parts[i].v[k].module)->machine;
	return EM_NONE;
}
