#define _GNU_SOURCE
#include "sym/symfile_memo.h"

#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Raised with every change of the answers; a build-id of this program says the same by itself. */
#define ANSWERS_VERSION 4u
/* A file that changed within one tick of the clock twice would look unchanged. */
#define FRESH_NS (INT64_C(100) * 1000 * 1000)

/* The build-id of the program or library that holds this code. */
static int find_own_id(struct dl_phdr_info *info, size_t size, void *out)
{
	uintptr_t here = (uintptr_t)&find_own_id;
	bool ours = false;
	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;
		ours |= p->p_type == PT_LOAD && here >= start && here - start < p->p_memsz;
	}
	for (unsigned i = 0; ours && i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const void *note = (const void *)(info->dlpi_addr + p->p_vaddr); /* NOLINT */
		if (p->p_type == PT_NOTE)
			sp_buf_add(out, note, p->p_memsz);
	}
	return ours;
}

static void add_file(struct sp_buf *key, const struct sp_elf *e)
{
	sp_buf_u8(key, e->build_id.len);
	sp_buf_add(key, e->build_id.bytes, e->build_id.len);
	sp_buf_u64(key, e->map.dev);
	sp_buf_u64(key, e->map.ino);
	sp_buf_u64(key, e->map.size);
	sp_buf_u64(key, (uint64_t)e->map.mtime_ns);
	sp_buf_u64(key, (uint64_t)e->map.ctime_ns);
	sp_buf_u64(key, (uint64_t)(e->data - e->map.data)); /* one of an archive's images */
}

static void set_name(struct sp_symfile_memo *m, const struct sp_build_id *id)
{
	char hex[2 * SP_BUILD_ID_MAX + 1] = "none";
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: stored names must last */
	if (id->len)
		sp_build_id_hex(id, hex);
	for (size_t i = 0; i < m->key.len; i++)
		hash = (hash ^ m->key.data[i]) * UINT64_C(0x100000001b3);
	snprintf(m->name, sizeof m->name, "%.64s-%016" PRIx64 ".memo", hex, hash);
}

/* The files are what they were. */
static bool files_same(const struct sp_memo *memo)
{
	struct sp_memo_file f;
	struct stat st;
	for (uint32_t i = 0; i < memo->n_files; i++) {
		if (!sp_memo_file(memo, i, &f) || stat(f.path, &st) < 0 || st.st_dev != f.dev ||
		    st.st_ino != f.ino || (uint64_t)st.st_size != f.size ||
		    (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec != f.mtime_ns ||
		    (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec != f.ctime_ns)
			return false;
	}
	return true;
}

static bool is_file(const struct sp_elf *e)
{
	return e->map.data && e->data >= e->map.data && e->data < e->map.data + e->map.size;
}

void sp_symfile_memo_open(struct sp_symfile_memo *m, const struct sp_cachedir *dir,
			  const struct sp_elf *elf, const struct sp_elf *debug, uint32_t options)
{
	if (!dir || dir->fd < 0 || !is_file(elf) || (debug && !is_file(debug)))
		return;
	m->key.len = 0;
	sp_buf_u32(&m->key, ANSWERS_VERSION);
	sp_buf_u32(&m->key, options);
	dl_iterate_phdr(find_own_id, &m->key);
	add_file(&m->key, elf);
	if (debug)
		add_file(&m->key, debug);
	if (m->key.failed)
		return;
	m->dir = dir;
	set_name(m, &elf->build_id);
	if (!sp_cachedir_map(dir, m->name, &m->map))
		return;
	m->has_memo = sp_memo_open(&m->memo, m->map.data, m->map.size, m->key.data, m->key.len) &&
		      files_same(&m->memo);
	if (!m->has_memo)
		sp_map_file_close(&m->map);
}

int sp_symfile_memo_find(struct sp_symfile_memo *m, uint64_t svma, struct sp_memo_answer *out)
{
	return m->has_memo ? sp_memo_find(&m->memo, svma, m->levels, out) : 0;
}

void sp_symfile_memo_add(struct sp_symfile_memo *m, const struct sp_memo_answer *a)
{
	struct sp_memo_answer *slot =
		m->dir ? SP_PUSH(&m->fresh, &m->n_fresh, &m->fresh_cap) : NULL;
	if (slot)
		*slot = *a;
}

static bool is_old(const struct sp_elf *e, int64_t now_ns)
{
	return e->map.ctime_ns < now_ns - FRESH_NS;
}

/* The other files that the answers rest on; -1 when they cannot be kept. */
static int other_files(const struct sp_dwarf *dwarf, int64_t now_ns,
		       struct sp_memo_file out[SP_MEMO_FILES_MAX])
{
	const struct sp_elf *elfs[SP_MEMO_FILES_MAX];
	int n = dwarf ? sp_dwarf_files(dwarf, elfs, SP_MEMO_FILES_MAX) : 0;
	for (int i = 0; i < n; i++) {
		const struct sp_elf *e = elfs[i];
		if (!is_file(e) || !e->path || !is_old(e, now_ns))
			return -1;
		out[i] = (struct sp_memo_file){e->map.dev,      e->map.ino,      e->map.size,
					       e->map.mtime_ns, e->map.ctime_ns, e->path};
	}
	return n;
}

void sp_symfile_memo_save(struct sp_symfile_memo *m, const struct sp_elf *elf,
			  const struct sp_elf *debug, const struct sp_dwarf *dwarf)
{
	struct timespec now;
	struct sp_memo_file files[SP_MEMO_FILES_MAX];
	if (!m->dir || !m->n_fresh || clock_gettime(CLOCK_REALTIME, &now) < 0)
		return;
	int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	int n = other_files(dwarf, now_ns, files);
	if (n < 0 || !is_old(elf, now_ns) || (debug && !is_old(debug, now_ns)))
		return;
	struct sp_buf block = {0};
	bool ok = sp_memo_write(&block, m->key.data, m->key.len, files, (size_t)n,
				m->has_memo ? &m->memo : NULL, m->fresh, m->n_fresh);
	if (!ok && m->has_memo)
		ok = sp_memo_write(&block, m->key.data, m->key.len, files, (size_t)n, NULL,
				   m->fresh, m->n_fresh);
	if (ok)
		sp_cachedir_write(m->dir, m->name, block.data, block.len);
	sp_buf_deinit(&block);
}

void sp_symfile_memo_deinit(struct sp_symfile_memo *m)
{
	if (m->has_memo)
		sp_map_file_close(&m->map);
	sp_buf_deinit(&m->key);
	free(m->fresh);
}
