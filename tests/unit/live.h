/* A stopped process as the walk sees it: its maps with their files, registers, stack bytes. */
#ifndef SP_TESTS_LIVE_H
#define SP_TESTS_LIVE_H

#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>

#include "../../sp-unwind/walk.h"

#define LIVE_FILES 256
#define LIVE_MAPS 1024
#define LIVE_STACK (1u << 20) /* python3.11 has a function whose frame is of 64 KiB */
#define LIVE_PAGES (LIVE_STACK / 4096 + 1)

struct live {
	pid_t pid;
	struct live_file {
		char path[400];
		struct uw_module *module;
		void *image; /* owned: of the vdso */
	} files[LIVE_FILES];
	size_t n_files;
	struct uw_map maps[LIVE_MAPS];
	struct uw_maps part;
	struct uw_space space;
	uint64_t regs[24];
	uint8_t stack[LIVE_STACK];
};

static inline size_t live_read(pid_t pid, uint64_t addr, void *out, size_t n)
{
	struct iovec to = {out, n}, from[LIVE_PAGES];
	size_t n_from = 0;
	/* Page by page: partial reads. */
	for (size_t at = 0; at < n && n_from < LIVE_PAGES; n_from++) {
		size_t len = 4096 - ((addr + at) & 4095);
		if (len > n - at)
			len = n - at;
		from[n_from].iov_base = (void *)(uintptr_t)(addr + at);
		from[n_from].iov_len = len;
		at += len;
	}
	ssize_t got = process_vm_readv(pid, &to, 1, from, n_from, 0);
	return got < 0 ? 0 : (size_t)got;
}

/* The module of a mapped file, opened once for each path. NULL: none. */
static inline struct live_file *live_file(struct live *l, const char *path, uint64_t start,
					  uint64_t end)
{
	for (size_t i = 0; i < l->n_files; i++)
		if (!strcmp(l->files[i].path, path))
			return &l->files[i];
	if (l->n_files == LIVE_FILES)
		return NULL;
	struct live_file *f = &l->files[l->n_files++];
	struct sp_elf *e = calloc(1, sizeof *e);
	struct sp_err err;
	memset(f, 0, sizeof *f);
	snprintf(f->path, sizeof f->path, "%s", path);
	int rc;
	if (!strcmp(path, "[vdso]")) {
		f->image = malloc(end - start);
		size_t n = f->image ? live_read(l->pid, start, f->image, end - start) : 0;
		rc = e ? sp_elf_init(e, f->image, n, &err) : -1;
	} else {
		rc = e ? sp_elf_open(e, path, &err) : -1;
	}
	if (rc < 0 || uw_module_new(&f->module, e, NULL, &err) < 0)
		free(e);
	return f;
}

/* Reads /proc/PID/maps. */
static inline void live_maps(struct live *l)
{
	char name[64], line[700], path[400];
	snprintf(name, sizeof name, "/proc/%d/maps", (int)l->pid);
	FILE *f = fopen(name, "re");
	l->part = (struct uw_maps){.v = l->maps};
	l->space = (struct uw_space){.parts = &l->part};
	while (f && fgets(line, sizeof line, f)) {
		unsigned long start, end, off;
		char prot[8];
		path[0] = 0;
		if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %399[^\n]", &start, &end, prot, &off,
			   path) < 4 ||
		    !strchr(prot, 'x') || l->part.n == LIVE_MAPS)
			continue;
		struct uw_map *m = &l->maps[l->part.n++];
		*m = (struct uw_map){.start = start, .end = end, .flags = UW_MAP_ANON};
		l->space.has_python |= strstr(path, "python") != NULL;
		l->space.has_jvm |= strstr(path, "/libjvm.so") != NULL;
		if (path[0] != '/' && strcmp(path, "[vdso]") != 0)
			continue;
		struct live_file *file = live_file(l, path, start, end);
		m->flags = 0;
		if (file && file->module &&
		    sp_elf_bias(uw_module_elf(file->module), start, end - start, off, &m->bias))
			m->module = file->module;
	}
	l->space.n = l->part.n > 0;
	if (f)
		fclose(f);
}

/* A sample of the stopped thread. stack_end: 0, or where its stack ends. */
static inline struct uw_sample live_sample(struct live *l, const struct user_regs_struct *r,
					   uint64_t stack_end)
{
	/* The kernel's perf_regs.h: AX BX CX DX SI DI BP SP IP, R8 … R15 from bit 16 on. */
	const uint64_t regs[] = {r->rax, r->rbx, r->rcx, r->rdx, r->rsi, r->rdi,
				 r->rbp, r->rsp, r->rip, r->r8,  r->r9,  r->r10,
				 r->r11, r->r12, r->r13, r->r14, r->r15};
	memcpy(l->regs, regs, sizeof regs);
	size_t want = LIVE_STACK;
	if (stack_end > r->rsp && stack_end - r->rsp < want)
		want = stack_end - r->rsp;
	return (struct uw_sample){
		.machine = EM_X86_64,
		.regs_mask = 0xff01ff,
		.regs = (const uint8_t *)l->regs,
		.regs_abi = 2,
		.stack = l->stack,
		.stack_bytes = live_read(l->pid, r->rsp, l->stack, want) & ~(size_t)7,
		.space = &l->space,
	};
}

static inline void live_deinit(struct live *l)
{
	for (size_t i = 0; i < l->n_files; i++) {
		uw_module_free(l->files[i].module);
		free(l->files[i].image);
	}
}

/* "libc.so.6+0x1234" */
static inline const char *live_where(const struct live *l, uint64_t addr, char out[200])
{
	snprintf(out, 200, "%#llx", (unsigned long long)addr);
	for (uint32_t i = 0; i < l->part.n; i++) {
		const struct uw_map *m = &l->maps[i];
		if (addr < m->start || addr >= m->end)
			continue;
		const char *path = "anon";
		for (size_t j = 0; j < l->n_files; j++)
			if (m->module && l->files[j].module == m->module)
				path = l->files[j].path;
		const char *slash = strrchr(path, '/');
		snprintf(out, 200, "%.80s+%#llx", slash ? slash + 1 : path,
			 (unsigned long long)(addr - m->bias));
	}
	return out;
}

#endif
