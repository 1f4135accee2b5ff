/* The resolver over spools that are written here: files by identity, embedded objects, perf maps
 * and who may own them, kernel symbols, addresses where nothing is known. */
#define _GNU_SOURCE
#include "sym_spool.h"

#include <fcntl.h>
#include <time.h>

#include "base/buf.h"
#include "base/file.h"
#include "sym/resolver.h"

/* All levels of the stack, leaf first: "function@file:line|…" */
static void names_of(const char *path, const struct sp_resolver_options *o, struct sp_buf *out,
		     struct sp_buf *problems)
{
	struct sp_spool *spool = NULL;
	struct sp_resolver *r = NULL;
	struct sp_spool_sample s;
	const struct sp_spool_frame *f = NULL;
	struct sp_err err = {0};
	out->len = 0;
	if (sp_spool_open(&spool, path, &err) < 0 || sp_resolver_new(&r, spool, o, &err) < 0 ||
	    sp_spool_next(spool, &s, &err) != 1) {
		printf("# %s\n", err.msg);
		exit(99);
	}
	size_t n = sp_spool_frames(spool, &f);
	for (size_t i = 0; i < n; i++)
		sp_resolver_add(r, PID, &f[i], &err);
	sp_resolver_run(r, &err);
	for (size_t i = 0; i < n; i++) {
		const struct sp_names *names = sp_resolver_get(r, PID, &f[i], UINT64_MAX);
		for (uint32_t k = 0; k < names->n_levels; k++) {
			const struct sp_name *l = &names->levels[k];
			const char *slash = l->file ? strrchr(l->file, '/') : NULL;
			sp_buf_printf(out, "%s%s", out->len ? "|" : "", l->function);
			if (l->file)
				sp_buf_printf(out, "@%s:%u", slash ? slash + 1 : l->file, l->line);
		}
	}
	sp_buf_u8(out, 0);
	for (uint32_t i = 0; problems && i < sp_spool_n_modules(spool); i++) {
		const char *why = sp_resolver_module_problem(r, i);
		sp_buf_printf(problems, "%s;", why ? why : "");
	}
	if (problems)
		sp_buf_u8(problems, 0);
	sp_resolver_free(r);
	sp_spool_close(spool);
}

static void check(struct made *m, const struct sp_resolver_options *o, const char *want,
		  const char *why)
{
	struct sp_buf got = {0};
	names_of(m->path, o, &got, NULL);
	tap_str((const char *)got.data, want, why);
	sp_buf_deinit(&got);
}

static void test_files(void)
{
	static const struct sp_resolver_options none;
	struct made m;
	struct stat st;
	char prog[300], want[300];
	snprintf(prog, sizeof prog, "%s", in_build("prog"));
	if (stat(prog, &st) < 0)
		return;
	struct sp_spool_wfile good = wfile(prog, NULL), gone = wfile("/no/such/libgone.so.1", NULL);
	struct sp_build_id id;
	struct sp_elf e;
	if (sp_elf_open(&e, prog, NULL) < 0)
		return;
	id = e.build_id;
	sp_elf_close(&e);
	good.build_id = id.bytes;
	good.build_id_len = id.len;

	make_begin(&m, "");
	make_site(&m, &gone, 0x7000000, 0x10000, 0x2000, 0x7001234);
	make_site(&m, &good, 0x400000, 0x10000, 0, 0x400000 + mark_foff);
	make_address(&m, 0x123456, false);
	make_end(&m);
	check(&m, &none, "[unknown]|in@a.c:4|work@a.c:8|[libgone.so.1+0x3234]",
	      "a file of the recorded build-id is named, what is not there is an address");

	id.bytes[0] ^= 1;
	make_begin(&m, "");
	make_site(&m, &good, 0x400000, 0x10000, 0, 0x400000 + mark_foff);
	make_end(&m);
	snprintf(want, sizeof want, "[prog+0x%llx]", (unsigned long long)mark_foff);
	struct sp_buf got = {0}, problems = {0};
	names_of(m.path, &none, &got, &problems);
	tap_str((const char *)got.data, want, "a file with another build-id is not used");
	tap_ok(strstr((const char *)problems.data, "build-id") != NULL, "and the reason is told");
	sp_buf_deinit(&got);
	sp_buf_deinit(&problems);
	id.bytes[0] ^= 1;

	make_begin(&m, "");
	good.path = "/recorded/elsewhere/prog";
	make_site(&m, &good, 0x400000, 0x10000, 0, 0x400000 + mark_foff);
	make_end(&m);
	char map[400];
	snprintf(map, sizeof map, "/recorded/elsewhere=%s", build_dir);
	const char *maps[] = {map};
	struct sp_resolver_options o = {.path_maps = maps, .n_path_maps = 1};
	check(&m, &o, "in@a.c:4|work@a.c:8", "a path map leads to the file");
	o.no_inline = true;
	check(&m, &o, "work@a.c:4", "inline calls can be left out");
	o.no_lines = true;
	check(&m, &o, "work", "lines can be left out too");
	o.no_inline = false;
	check(&m, &o, "in|work", "lines can be left out, inline calls stay");

	/* The file travels with the recording; there is none of that name here. */
	struct sp_buf image = {0};
	sp_file_read(prog, 1u << 20, &image, NULL);
	make_begin(&m, "");
	gone = wfile("/memory/only", NULL);
	make_site(&m, &gone, 0x400000, 0x10000, 0, 0x400000 + mark_foff);
	make_object(&m, 1, -1, "/memory/only", image.data, image.len);
	make_end(&m);
	check(&m, &none, "in@a.c:4|work@a.c:8", "an embedded file is used");
	sp_buf_deinit(&image);
}

static void test_kernel(void)
{
	static const struct sp_resolver_options none;
	static const char text[] =
		"ffffffff81000000 T _text\nffffffff81001000 t do_work\n"
		"ffffffff81002000 t after\nffffffffc0000000 t ext4_read\t[ext4]\n";
	struct made m;
	make_begin(&m, "another-boot");
	make_address(&m, 0xffffffff81001010, true);
	make_address(&m, 0xffffffffc0000010, true);
	make_address(&m, 0xffffffff80000000, true);
	make_object(&m, 4, -1, "/proc/kallsyms", text, sizeof text - 1);
	make_end(&m);
	check(&m, &none, "[kernel+0xffffffff80000000]|ext4_read|do_work",
	      "kernel symbols that were recorded name the kernel's frames");
	make_begin(&m, "another-boot");
	make_address(&m, 0xffffffff81001010, true);
	make_end(&m);
	check(&m, &none, "[kernel+0xffffffff81001010]",
	      "another boot's kernel is not named by this one's symbols");
}

/* A recording of Linux 6.1 of another boot, whose code began at ffffffff9a600000. */
static void make_kernel(struct made *m, const char *path, uint64_t start)
{
	struct sp_spool_wfile kernel = {.path = path, .is_kernel = true};
	make_begin(m, "another-boot");
	uint32_t set = sp_spool_put_set(m->w, 0, -1, SP_NONE);
	sp_spool_put_module(m->w, set, start, UINT64_MAX, start, sp_spool_put_file(m->w, &kernel));
	make_address(m, 0xffffffff9a600000, true);
	make_address(m, 0xffffffffc0001000, true);
	make_address(m, 0xffffffff9a601010, true);
	make_end(m);
}

static void test_system_map(void)
{
	static const char text[] =
		"0000000000000000 D __per_cpu_start\n0000000000002000 D irq_stack\n"
		"ffffffff81000000 T _text\nffffffff81001000 t do_work\n"
		"ffffffff81002000 t after\nffffffff82000000 T _etext\n";
	char dir[300];
	snprintf(dir, sizeof dir, "%s", build_dir);
	const char *dirs[] = {dir};
	struct sp_resolver_options o = {.symfs = dir}, d = {.debug_dirs = dirs, .n_debug_dirs = 1};
	const char *yes = "do_work|[kernel+0xffffffffc0001000]|_text";
	const char *no = "[kernel+0xffffffff9a601010]|[kernel+0xffffffffc0001000]|"
			 "[kernel+0xffffffff9a600000]";
	struct made m;
	build_run("mkdir -p boot lib/modules/6.1");
	build_write("boot/System.map-6.1", text, sizeof text - 1);
	make_kernel(&m, "[kernel.kallsyms]_text", 0xffffffff9a600000);
	check(&m, &o, yes, "a System.map of the release names the core, moved by KASLR's slide");
	check(&m, &d, yes, "and one in a debug folder");
	make_kernel(&m, "[kernel.kallsyms]_text", 0xffffffff9a601000);
	check(&m, &o, no, "a difference that KASLR does not make: another build");
	struct sp_buf got = {0}, problems = {0};
	names_of(m.path, &o, &got, &problems);
	tap_ok(strstr((const char *)problems.data, "another build") != NULL, "and the reason is told");
	sp_buf_deinit(&got);
	sp_buf_deinit(&problems);
	make_kernel(&m, "[kernel.kallsyms]_text", 0);
	check(&m, &o, no, "without the place where the kernel was loaded nothing is named");
	build_run("mv boot/System.map-6.1 boot/System.map-6.2");
	make_kernel(&m, "[kernel.kallsyms]_text", 0xffffffff9a600000);
	check(&m, &o, no, "another release's map is not used");
	build_write("lib/modules/6.1/System.map", text, sizeof text - 1);
	check(&m, &o, yes, "the folder of the modules is searched too");
	build_run("sed -i 's/_text/_other/' lib/modules/6.1/System.map");
	check(&m, &o, no, "a map that does not say where its code begins is not used");
	build_run("rm -f lib/modules/6.1/System.map && mkfifo lib/modules/6.1/System.map");
	check(&m, &o, no, "a fifo in its place is not waited for");
	build_run("rm -rf boot lib");
}

static void write_map(const char *text)
{
	char name[64];
	snprintf(name, sizeof name, "perf-%d.map", PID);
	build_run("rm -f perf-*.map");
	build_write(name, text, strlen(text));
}

static void test_perf_maps(void)
{
	static const char text[] = "5000 100 JS:*leaf /x.js:1:16\n5200 10 py::f:/a b/x.py:7\n";
	struct sp_resolver_options o = {.perf_map_dir = build_dir};
	struct sp_resolver_options off = {.perf_map_dir = build_dir,
					  .perf_maps = SP_PERF_MAPS_NONE};
	struct sp_spool_wfile anon = {.path = "//anon", .is_anon = true};
	struct sp_spool_wfile heap = {.path = "[heap]"}, data = {.path = "/no/such/file"};
	struct made m;
	char link[400];
	make_begin(&m, "");
	make_site(&m, &heap, 0x5200, 0x100, 0, 0x5205);
	make_site(&m, &anon, 0x5000, 0x200, 0, 0x5010);
	make_site(&m, &anon, 0x5400, 0x200, 0, 0x5410);
	make_end(&m);
	write_map(text);
	check(&m, &o, "[unknown]|JS:*leaf /x.js:1:16|f@x.py:0", "a perf map names code in memory");
	check(&m, &off, "[unknown]|[unknown]|[unknown]", "unless perf maps are not wanted");

	if (geteuid() == 0) {
		build_run("chown 12345 perf-*.map");
		check(&m, &o, "[unknown]|[unknown]|[unknown]", "a map of another user is refused");
	}
	snprintf(link, sizeof link,
		 "mv perf-%d.map real && ln -s real perf-%d.map && chown $(id -u) real", PID, PID);
	build_run(link);
	check(&m, &o, "[unknown]|[unknown]|[unknown]", "a symbolic link is refused");
	snprintf(link, sizeof link, "rm -f perf-*.map real; mkfifo perf-%d.map", PID);
	build_run(link);
	check(&m, &o, "[unknown]|[unknown]|[unknown]", "a fifo is refused, and does not block");
	build_run("rm -f perf-*.map");

	make_begin(&m, "");
	make_site(&m, &data, 0x5000, 0x200, 0, 0x5010);
	make_object(&m, 2, PID, "/tmp/perf.map", text, sizeof text - 1);
	make_end(&m);
	check(&m, &o, "[file+0x10]", "an address of a file is never a perf map's");
	make_begin(&m, "");
	make_site(&m, &anon, 0x5000, 0x200, 0, 0x5010);
	make_object(&m, 2, PID + 1, "/tmp/perf.map", "5000 100 other\n", 15);
	make_object(&m, 2, PID, "/tmp/perf.map", text, sizeof text - 1);
	make_end(&m);
	check(&m, &o, "JS:*leaf /x.js:1:16", "an embedded map names its own process's code");
}

static void mark(struct made *m, int32_t pid, uint64_t time_ns, bool on)
{
	struct sp_spool_exec x = {.time_ns = time_ns, .pid = pid, .kind = 1, .on = on};
	sp_spool_put_exec(m->w, &x, NULL);
}

/* Whose maps are used. */
static void test_policies(void)
{
	static const int64_t mine[] = {7, PID}, others[] = {7, 8};
	struct sp_resolver_options marked = {.spool_dir = build_dir},
				   any = {.spool_dir = build_dir, .perf_maps = SP_PERF_MAPS_ANY},
				   last = {.spool_dir = build_dir, .perf_maps = SP_PERF_MAPS_LAST},
				   listed = {.spool_dir = build_dir,
					     .perf_maps = SP_PERF_MAPS_LISTED,
					     .perf_map_pids = mine,
					     .n_perf_map_pids = 2};
	struct sp_spool_wfile anon = {.path = "//anon", .is_anon = true};
	struct made m;
	write_map("5000 100 own\n");
	make_begin(&m, "another-boot");
	make_site(&m, &anon, 0x5000, 0x200, 0, 0x5010);
	make_end(&m);
	check(&m, &marked, "[unknown]", "a process that never was marked as a runtime has no map");
	check(&m, &last, "[unknown]", "nor is it the last one");
	check(&m, &any, "own", "unless all have");
	check(&m, &listed, "own", "or it is in the list");
	listed.perf_map_pids = others;
	check(&m, &listed, "[unknown]", "a list of others");
	make_begin(&m, "another-boot");
	make_site(&m, &anon, 0x5000, 0x200, 0, 0x5010);
	mark(&m, PID, 1100, true);
	mark(&m, PID + 1, 1200, true);
	mark(&m, PID, 1300, false);
	make_end(&m);
	check(&m, &marked, "own", "a process that was marked once has, also when it is no more");
	check(&m, &last, "[unknown]", "the last one is another");
	make_begin(&m, "another-boot");
	make_site(&m, &anon, 0x5000, 0x200, 0, 0x5010);
	mark(&m, PID + 1, 1200, true);
	mark(&m, PID, 1400, true);
	mark(&m, PID + 1, 1500, false);
	make_end(&m);
	check(&m, &last, "own", "the last one is this; marks that end don't count");
	build_run("rm -f perf-*.map");
}

static void test_stale_map(void)
{
	struct sp_resolver_options o = {.perf_map_dir = build_dir};
	struct sp_spool_wfile anon = {.path = "//anon", .is_anon = true};
	struct sp_spool_exec x = {.time_ns = 1500, .pid = PID, .on = true};
	struct made m;
	char command[200];
	make_begin(&m, "");
	make_site(&m, &anon, 0x5000, 0x200, 0, 0x5010);
	sp_spool_put_exec(m.w, &x, NULL);
	make_end(&m);
	write_map("5000 100 old\n");
	/* The recording's exec is of November 2023. */
	snprintf(command, sizeof command, "touch -d '2023-01-01' perf-%d.map", PID);
	build_run(command);
	check(&m, &o, "[unknown]", "a map that is older than the program is of another process");
	snprintf(command, sizeof command, "touch -d '2023-12-31' perf-%d.map", PID);
	build_run(command);
	check(&m, &o, "old", "a later one is its own");
}

/* A file without a build-id is known by its inode; one that was written later is another build. */
static void test_rewritten(void)
{
	static const struct sp_resolver_options none;
	struct made m;
	struct stat st;
	char want[300];
	build_run("gcc -O1 -g -Wl,--build-id=none -o plain a.c && touch -d '2023-11-01' plain");
	struct sp_elf e;
	if (stat(in_build("plain"), &st) < 0 || sp_elf_open(&e, in_build("plain"), NULL) < 0) {
		tap_ok(false, "a program without a build-id is built");
		return;
	}
	size_t left;
	uint64_t foff = (uint64_t)(sp_elf_at_svma(&e, symbol_value(&e, "mark"), &left) - e.data);
	sp_elf_close(&e);
	char path[300];
	snprintf(path, sizeof path, "%s", in_build("plain"));
	struct sp_spool_wfile f = wfile(path, &st);
	made_wall_ns = ((uint64_t)time(NULL) + 100) * 1000000000;
	make_begin(&m, "");
	make_site(&m, &f, 0x400000, 0x10000, 0, 0x400000 + foff);
	make_end(&m);
	check(&m, &none, "in@a.c:4|work@a.c:8", "a file of the recorded inode is used");
	build_run("touch -d '+1 hour' plain");
	snprintf(want, sizeof want, "[plain+0x%llx]", (unsigned long long)foff);
	check(&m, &none, want, "one that was written after the recording is not");
	build_run("touch -d '2023-11-01' plain");
	check(&m, &none, "in@a.c:4|work@a.c:8", "its time set back");
	made_wall_ns = UINT64_C(1700000000000000000);
	make_begin(&m, "");
	make_site(&m, &f, 0x400000, 0x10000, 0, 0x400000 + foff);
	make_end(&m); /* of the 14th of November 2023 */
	check(&m, &none, want, "nor one whose time was set back after the recording");
}

/* Every number of workers gives the same answers. */
static void test_workers(void)
{
	struct made m;
	struct sp_buf one = {0}, many = {0};
	char paths[8][300];
	make_begin(&m, "");
	for (unsigned i = 0; i < 8; i++) {
		snprintf(paths[i], sizeof paths[i], "%s/copy%u", build_dir, i);
		char command[400];
		snprintf(command, sizeof command, "cp prog copy%u", i);
		build_run(command);
		struct sp_spool_wfile f = wfile(paths[i], NULL);
		for (unsigned k = 0; k < 20; k++)
			make_site(&m, &f, 0x400000 + 0x100000 * i, 0x10000, 0,
				  0x400000 + 0x100000 * i + mark_foff + k - 10);
	}
	make_end(&m);
	for (unsigned workers = 1; workers <= 8; workers += 7) {
		struct sp_resolver_options o = {.n_workers = workers};
		names_of(m.path, &o, workers == 1 ? &one : &many, NULL);
	}
	tap_ok(one.len > 1000 && one.len == many.len && !memcmp(one.data, many.data, one.len),
	       "any number of workers gives the same names");
	sp_buf_deinit(&one);
	sp_buf_deinit(&many);
}

int main(void)
{
	if (!mkdtemp(build_dir)) {
		perror(build_dir);
		return 99;
	}
	if (!make_prog()) {
		tap_ok(false, "the program is built");
		return tap_done();
	}
	test_files();
	test_kernel();
	test_system_map();
	test_perf_maps();
	test_policies();
	test_stale_map();
	test_rewritten();
	test_workers();
	build_end();
	return tap_done();
}
