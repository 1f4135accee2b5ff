#define _GNU_SOURCE
#include "embed.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cli.h"
#include "elf/content_hash.h"
#include "elf/elf_file.h"
#include "embed_jit.h"
#include "kernel.h"
#include "maps/procs.h"

#define VDSO_MAX (UINT64_C(16) << 20)

void cap_embed_init(struct cap_embed_state *s, struct cap_emit *emit, enum cap_embed what,
		    uint64_t start_ns, uint64_t start_wall_ns)
{
	*s = (struct cap_embed_state){
		.emit = emit, .what = what, .start_ns = start_ns, .start_wall_ns = start_wall_ns};
}

static void object_drop(struct cap_object *o)
{
	sp_buf_deinit(&o->head);
	sp_buf_deinit(&o->bytes);
	sp_map_file_close(&o->map);
}

void cap_embed_deinit(struct cap_embed_state *s)
{
	for (size_t i = s->at; i < s->n; i++)
		object_drop(&s->queue[i]);
	cap_jits_free(s);
	free(s->queue);
	sp_map64_deinit(&s->seen);
}

/* Whether so many bytes may still travel; says once when not. */
bool cap_embed_may(struct cap_embed_state *s, uint64_t bytes, const char *name)
{
	if (bytes <= CAP_EMBED_ONE && bytes <= CAP_EMBED_ALL_MAX - s->total) {
		s->total += bytes;
		return true;
	}
	if (!s->full)
		sp_note("not embedded: %s (%llu MiB); at most %llu MiB a file and %llu MiB in all "
			"travel in the stream",
			name, (unsigned long long)(bytes >> 20),
			(unsigned long long)(CAP_EMBED_ONE >> 20),
			(unsigned long long)(CAP_EMBED_ALL_MAX >> 20));
	s->full = true;
	return false;
}

void cap_embed_add(struct cap_embed_state *s, const struct sp_ext_object *what,
		   struct sp_map_file *map, struct sp_buf *bytes)
{
	struct cap_object *o = SP_PUSH(&s->queue, &s->n, &s->cap);
	struct sp_ext_object head = *what;
	head.data = NULL;
	head.size = 0;
	if (o) {
		sp_ext_object_encode(&o->head, &head);
		o->kind = SP_EXT_OBJECT;
		o->number = ++s->emit->object;
		if (map)
			o->map = *map;
		if (bytes)
			o->bytes = *bytes;
	} else {
		if (map)
			sp_map_file_close(map);
		if (bytes)
			sp_buf_deinit(bytes);
	}
}

/* A part of the payload: head, then the file's bytes. */
static void object_part(const struct cap_object *o, uint64_t at, size_t n, uint8_t *out)
{
	const uint8_t *rest = o->map.data ? o->map.data : o->bytes.data;
	if (at < o->head.len) {
		size_t part = o->head.len - at < n ? o->head.len - at : n;
		memcpy(out, o->head.data + at, part);
		out += part;
		at += part;
		n -= part;
	}
	if (n)
		memcpy(out, rest + (at - o->head.len), n);
}

bool cap_embed_pump(struct cap_embed_state *s, size_t budget)
{
	static uint8_t part[SP_EXT_PAYLOAD_MAX];
	size_t done = 0;
	while (s->at < s->n && done < budget) {
		struct cap_object *o = &s->queue[s->at];
		uint64_t total = o->head.len + (o->map.data ? o->map.size : o->bytes.len);
		size_t n = total - o->at < sizeof part ? (size_t)(total - o->at) : sizeof part;
		if (!cap_output_has_room(s->emit->out))
			return true;
		object_part(o, o->at, n, part);
		if (!cap_emit_part(s->emit, SP_EXT_OBJECT, o->number, o->at, total, part, n))
			return true;
		o->at += n;
		done += n;
		if (o->at < total)
			continue;
		object_drop(o);
		if (++s->at == s->n)
			s->at = s->n = 0;
	}
	return s->at < s->n;
}

/* --- the vdso --- */

static uint64_t own_mapping_bytes(uint64_t start)
{
	struct sp_buf b = {0};
	uint64_t len = 0;
	if (sp_file_read("/proc/self/maps", 64 << 20, &b, NULL) >= 0) {
		const char *p = (const char *)b.data, *end = p + b.len;
		while (p < end && !len) {
			const char *nl = memchr(p, '\n', (size_t)(end - p));
			const char *stop = nl ? nl : end;
			struct sp_perf_mmap m;
			if (sp_maps_line(p, (size_t)(stop - p), &m) && m.start == start)
				len = m.len;
			p = stop + 1;
		}
	}
	sp_buf_deinit(&b);
	return len;
}

void cap_embed_vdso(struct cap_embed_state *s)
{
	static const char name[] = "[vdso]";
	uint64_t start = getauxval(AT_SYSINFO_EHDR);
	uint64_t len = start ? own_mapping_bytes(start) : 0;
	const void *image = (const void *)(uintptr_t)start; /* NOLINT: an address from the kernel */
	if (s->what == CAP_EMBED_NONE || !len || len > VDSO_MAX ||
	    memcmp(image, ELFMAG, SELFMAG) != 0)
		return;
	struct sp_buf bytes = {0};
	sp_buf_add(&bytes, image, len);
	struct sp_ext_object o = {.kind = SP_OBJECT_FILE,
				  .pid = -1,
				  .time_ns = s->emit->now_ns,
				  .path = name,
				  .path_len = sizeof name - 1};
	cap_embed_add(s, &o, NULL, &bytes);
}

/* --- mapped files --- */

static bool ends_deleted(const char *path, size_t len)
{
	static const char mark[] = " (deleted)";
	return len > sizeof mark - 1 &&
	       !memcmp(path + len - (sizeof mark - 1), mark, sizeof mark - 1);
}

/* Device numbers of btrfs and overlayfs differ between stat and maps: then the inode decides. */
static bool is_file(const struct stat *st, const struct cap_range *r, bool exact)
{
	return S_ISREG(st->st_mode) && st->st_ino == r->ino &&
	       (!exact || (major(st->st_dev) == r->maj && minor(st->st_dev) == r->min));
}

/* Whether a file that was found by its name is a later one, which got the number of the mapped
 * one's inode: file systems that use numbers again tell (ext4, xfs, btrfs). The kernel writes an
 * int. */
static bool is_later(int fd, const struct cap_range *r)
{
	uint32_t generation[2] = {0};
	return r->ino_gen && ioctl(fd, FS_IOC_GETVERSION, generation) == 0 &&
	       generation[0] != r->ino_gen;
}

/* The mapped file itself, by the ways that do not go by its name alone; by its name too when that
 * leads to the same device and inode (the process may have ended). -1 when none leads there. */
static int open_mapped(int32_t pid, const struct cap_range *r, const char *path)
{
	char ways[4][4200];
	snprintf(ways[0], sizeof ways[0], "/proc/%d/map_files/%llx-%llx", pid,
		 (unsigned long long)r->start, (unsigned long long)r->end);
	snprintf(ways[1], sizeof ways[1], "/proc/%d/exe", pid);
	snprintf(ways[2], sizeof ways[2], "/proc/%d/root%s", pid, path);
	snprintf(ways[3], sizeof ways[3], "%s", path);
	for (int i = 0; i < 4; i++) {
		struct stat st;
		int fd = open(ways[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd >= 0 && fstat(fd, &st) == 0 && is_file(&st, r, i >= 2) &&
		    (i < 2 || !is_later(fd, r)))
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

/* From the file's first page, where linkers put the note; else from wherever it is. */
static struct sp_build_id read_build_id(int fd, const char *path)
{
	uint8_t page[4096];
	struct sp_build_id id = {0};
	struct sp_map_file map;
	struct sp_elf elf;
	ssize_t n = pread(fd, page, sizeof page, 0);
	if (n < SELFMAG || memcmp(page, ELFMAG, SELFMAG) != 0)
		return id;
	if (sp_elf_init(&elf, page, (size_t)n, NULL) >= 0) {
		id = elf.build_id;
		sp_elf_close(&elf);
	}
	if (id.len || sp_map_file_fd(&map, fd, path, NULL) < 0)
		return id;
	if (sp_elf_init(&elf, map.data, map.size, NULL) >= 0) {
		id = elf.build_id;
		sp_elf_close(&elf);
	}
	sp_map_file_close(&map);
	return id;
}

/* What the file is, for those who look for it later: another may stand in its place by then. */
static void tell_build_id(struct cap_embed_state *s, const struct cap_range *r, const char *path,
			  const struct sp_build_id *id)
{
	struct sp_build_id_record b = {.pid = -1,
				       .misc = PERF_RECORD_MISC_USER,
				       .len = id->len < sizeof b.id ? id->len : sizeof b.id,
				       .maj = r->maj,
				       .min = r->min,
				       .ino = r->ino,
				       .path = path};
	memcpy(b.id, id->bytes, b.len);
	if (b.len)
		cap_emit_build_id(s->emit, &b);
}

/* Have what the hash reads in memory; false when that takes too long. */
static bool read_ahead(const struct sp_map_file *map, uint64_t until_ns)
{
	const volatile uint8_t *p = map->data;
	unsigned n_touched = 0;
	for (size_t i = 0, at, n; (n = sp_content_part(map->size, i, &at)) > 0; i++) {
		for (size_t end = at + n; at < end; at += 4096) {
			(void)p[at];
			if (++n_touched % 64 == 0 && cap_now_ns() > until_ns)
				return false;
		}
	}
	return true;
}

/* The same for a file without build-id: a hash of its content, unless that takes too long. Other
 * files than ELF are archives, whose times have to do. */
static void tell_content(struct cap_embed_state *s, int fd, const struct cap_range *r,
			 const char *path, size_t len)
{
	struct sp_map_file map;
	struct sp_ext_content c = {.maj = r->maj,
				   .min = r->min,
				   .ino = r->ino,
				   .path = path,
				   .path_len = (uint32_t)len};
	uint64_t begin_ns = cap_now_ns();
	if (s->hashed_ns >= CAP_HASH_ALL_NS || sp_map_file_fd(&map, fd, path, NULL) < 0)
		return;
	struct sp_buf b = {0};
	if (map.size >= SELFMAG && !memcmp(map.data, ELFMAG, SELFMAG) &&
	    read_ahead(&map, begin_ns + CAP_HASH_ONE_NS)) {
		sp_content_hash(map.data, map.size, c.hash);
		sp_ext_content_encode(&b, &c);
		if (!b.failed)
			cap_emit_ext(s->emit, SP_EXT_CONTENT, b.data, b.len);
	}
	sp_buf_deinit(&b);
	sp_map_file_close(&map);
	s->hashed_ns += cap_now_ns() - begin_ns;
}

static void embed_file(struct cap_embed_state *s, int fd, const struct cap_range *r,
		       const char *path, size_t len, const struct sp_build_id *id, uint64_t time_ns)
{
	struct sp_map_file map;
	if (sp_map_file_fd(&map, fd, path, NULL) < 0)
		return;
	if (!map.size || !cap_embed_may(s, map.size, path)) {
		sp_map_file_close(&map);
		return;
	}
	struct sp_ext_object o = {
		.kind = SP_OBJECT_FILE,
		.pid = -1,
		.time_ns = time_ns,
		.maj = r->maj,
		.min = r->min,
		.ino = r->ino,
		.path = path,
		.path_len = (uint32_t)len,
	};
	o.build_id_len = id->len < sizeof o.build_id ? id->len : sizeof o.build_id;
	memcpy(o.build_id, id->bytes, o.build_id_len);
	sp_detail("embedding %s", path);
	cap_embed_add(s, &o, &map, NULL);
}

/* Whether looking for the file by its name, from here, would not find it later. */
static bool would_be_missed(const struct cap_range *r, const char *path, size_t len)
{
	struct stat st;
	if (ends_deleted(path, len) || !strncmp(path, "/memfd:", 7))
		return true;
	return stat(path, &st) < 0 || !is_file(&st, r, false) || access(path, R_OK) < 0;
}

/* What identifies the mapped file, and the file itself when it would be missed. */
static void look_at(struct cap_embed_state *s, const struct cap_proc *q, const struct cap_range *r,
		    uint64_t time_ns)
{
	size_t len;
	const char *path = sp_intern_get(&s->emit->procs.paths, r->path, &len);
	if (!r->ino || path[0] != '/' || r->is_anon)
		return;
	uint64_t what[4] = {r->ino, (uint64_t)r->maj << 32 | r->min, r->path, r->ino_gen};
	uint64_t key = sp_hash(what, sizeof what, 0);
	if (sp_map64_get(&s->seen, key) != SP_NOT_FOUND)
		return;
	sp_map64_put(&s->seen, key, 0);
	int fd = open_mapped(q->pid, r, path);
	if (fd < 0)
		return;
	struct sp_build_id id = read_build_id(fd, path);
	tell_build_id(s, r, path, &id);
	if (!id.len)
		tell_content(s, fd, r, path, len);
	if (s->what == CAP_EMBED_ALL ||
	    (s->what == CAP_EMBED_AUTO && would_be_missed(r, path, len)))
		embed_file(s, fd, r, path, len, &id, time_ns);
	close(fd);
}

void cap_embed_map(struct cap_embed_state *s, struct cap_proc *q, const struct cap_range *r,
		   uint64_t time_ns)
{
	size_t len;
	const char *path = sp_intern_get(&s->emit->procs.paths, r->path, &len);
	cap_jit_map(s, q, path, len, time_ns);
	if (!s->lazy || q->sampled)
		look_at(s, q, r, time_ns);
}

void cap_embed_sampled(struct cap_embed_state *s, struct cap_proc *q, uint64_t time_ns)
{
	for (size_t i = 0; s->lazy && i < q->n; i++)
		look_at(s, q, &q->ranges[i], time_ns);
}
