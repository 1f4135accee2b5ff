/* Spools of one stack that the symbol tests write, and the program whose code is in it. */
#ifndef SP_TESTS_SYM_SPOOL_H
#define SP_TESTS_SYM_SPOOL_H

#include "sym_build.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "spool/writer.h"

#define PID 4000123 /* above the kernel's limit: nobody has it */

static const char source[] = "int sink;\n"
			     "static inline __attribute__((always_inline)) void in(int x)\n"
			     "{\n"
			     "	sink += x; __asm__ volatile(\".globl mark\\nmark: nop\");\n"
			     "}\n"
			     "__attribute__((noinline)) int work(int x)\n"
			     "{\n"
			     "	in(x);\n"
			     "	return sink;\n"
			     "}\n"
			     "int main(int argc, char **argv) { (void)argv; return work(argc); }\n";

/* One spool: its writer, and the frames of its only stack, leaf first. */
struct made {
	struct sp_spool_writer *w;
	FILE *out;
	uint32_t set, stack, n_modules;
	char path[300];
};

static uint64_t made_wall_ns = UINT64_C(1700000000000000000); /* November 2023 */

static int to_file(void *ctx, const void *bytes, size_t n, struct sp_err *err)
{
	return fwrite(bytes, 1, n, ctx) == n ? 0 : sp_err_errno(err, "cannot write");
}

static void make_begin(struct made *m, const char *boot_id)
{
	struct sp_spool_info info = {.hostname = "h",
				     .osrelease = "6.1",
				     .arch = "x86_64",
				     .cmdline = "c",
				     .boot_id = boot_id,
				     .clock = "cpu-clock",
				     .clock_ns = 1000,
				     .wall_ns = made_wall_ns};
	*m = (struct made){.stack = SP_NONE};
	snprintf(m->path, sizeof m->path, "%s", in_build("test.spool"));
	m->out = fopen(m->path, "w");
	struct sp_spool_wopts o = {.sink = to_file, .ctx = m->out, .salt = 5};
	struct sp_err err = {0};
	if (!m->out || sp_spool_writer_new(&m->w, &o, &err) < 0 ||
	    sp_spool_put_info(m->w, &info, &err) < 0) {
		printf("# %s\n", err.msg);
		exit(99);
	}
	m->set = sp_spool_put_set(m->w, 0, PID, SP_NONE);
}

/* A module, and a frame in it; later ones are nearer to the leaf. */
static void make_site(struct made *m, const struct sp_spool_wfile *f, uint64_t start, uint64_t len,
		      uint64_t foff, uint64_t addr)
{
	uint32_t file = sp_spool_put_file(m->w, f);
	uint32_t n = sp_spool_put_module(m->w, m->set, start, start + len, foff, file);
	m->stack = sp_spool_put_node(m->w, m->stack, sp_spool_put_site(m->w, m->set, n, addr));
}

static void make_address(struct made *m, uint64_t addr, bool is_kernel)
{
	m->stack = sp_spool_put_node(m->w, m->stack, sp_spool_put_addr(m->w, addr, is_kernel));
}

static void make_object(struct made *m, uint32_t kind, int32_t pid, const char *path,
			const void *data, size_t size)
{
	struct sp_spool_object o = {
		.kind = kind, .pid = pid, .path = path, .data = data, .size = size};
	sp_spool_put_object(m->w, &o, NULL);
}

static void make_end(struct made *m)
{
	uint32_t event = sp_spool_put_event(m->w, "cpu-clock", true);
	uint32_t thread = sp_spool_put_thread(m->w, 0, PID, PID);
	struct sp_spool_wsample s = {.time_ns = 2000,
				     .weight = 1,
				     .thread = thread,
				     .event = event,
				     .stack = m->stack,
				     .cpu = SP_NONE,
				     .comm = sp_spool_put_string(m->w, "prog", 4),
				     .set = m->set};
	struct sp_err err = {0};
	if (sp_spool_put_sample(m->w, &s, &err) < 0 || sp_spool_finish(m->w, NULL, &err) < 0)
		printf("# %s\n", err.msg);
	sp_spool_writer_free(m->w);
	fclose(m->out);
}

static struct sp_spool_wfile wfile(const char *path, const struct stat *st)
{
	return (struct sp_spool_wfile){.path = path,
				       .maj = st ? major(st->st_dev) : 0,
				       .min = st ? minor(st->st_dev) : 0,
				       .ino = st ? st->st_ino : 0};
}

static uint64_t mark_svma, mark_foff;

/* Builds the program; where its mark is. */
static bool make_prog(void)
{
	struct sp_elf e;
	build_write("a.c", source, sizeof source - 1);
	if (!build_run("gcc -O1 -g -Wl,--build-id=sha1 -o prog a.c") ||
	    sp_elf_open(&e, in_build("prog"), NULL) < 0)
		return false;
	mark_svma = symbol_value(&e, "mark");
	size_t left;
	const uint8_t *at = sp_elf_at_svma(&e, mark_svma, &left);
	mark_foff = at ? (uint64_t)(at - e.data) : 0;
	sp_elf_close(&e);
	return mark_foff != 0;
}

#endif
