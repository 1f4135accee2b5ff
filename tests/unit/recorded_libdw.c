/* What sp-unwind makes of recordings, against elfutils' libdwfl over the same registers and stack
 * bytes, frame by frame. Programs are recorded here, with perf. Ours may go on where libdwfl stops:
 * where there is no CFI, or an epilogue's row names a slot below sp, which no recording holds. And
 * it may be right where libdwfl follows the frame pointer for want of CFI: _fini's first
 * instruction.
 *
 * With arguments it compares a recording and what was made of it: recorded_libdw DATA UNWOUND
 *
 * libs: -ldw -lelf */
#define _GNU_SOURCE
#include "tap.h"

#include <elfutils/libdwfl.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "elf/elf_file.h"
#include "perf/reader.h"

#define FRAMES 512
#define MODULES 512

/* A process's files as they were mapped, and the sample that libdwfl asks about. */
struct theirs {
	Dwfl *dwfl;
	int32_t pid;
	bool attached;
	size_t n_modules;
	uint64_t bias[MODULES];
	char name[MODULES][300];
	const struct sp_record *sample;
	uint64_t pc[FRAMES];
	bool exact[FRAMES];
	uint32_t n;
};

static struct theirs their;

/* perf's bit of a DWARF register of x86-64. */
static const uint8_t perf_bit[17] = {0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8};

static uint64_t sample_reg(unsigned dwarf)
{
	uint64_t mask = their.sample->event->attr.sample_regs_user;
	uint64_t below = mask & ((UINT64_C(1) << perf_bit[dwarf]) - 1);
	return sp_get64(their.sample->sample.regs + 8 * (size_t)__builtin_popcountll(below));
}

static bool read_memory(Dwfl *dwfl, Dwarf_Addr addr, Dwarf_Word *out, void *arg)
{
	(void)dwfl;
	(void)arg;
	uint64_t off = addr - sample_reg(7), n = their.sample->sample.stack_bytes;
	if (n < 8 || off > n - 8)
		return false;
	*out = sp_get64(their.sample->sample.stack + off);
	return true;
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	Dwarf_Word regs[17];
	(void)arg;
	for (unsigned i = 0; i < 17; i++)
		regs[i] = sample_reg(i);
	return dwfl_thread_state_registers(thread, 0, 17, regs);
}

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
	(void)dwfl;
	(void)arg;
	if (*thread_arg)
		return 0;
	*thread_arg = &their;
	return their.pid;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread_arg)
{
	(void)dwfl;
	(void)arg;
	*thread_arg = &their;
	return tid == their.pid;
}

static int frame(Dwfl_Frame *state, void *arg)
{
	Dwarf_Addr pc;
	bool exact;
	(void)arg;
	if (their.n == FRAMES || !dwfl_frame_pc(state, &pc, &exact))
		return DWARF_CB_ABORT;
	their.pc[their.n] = pc;
	their.exact[their.n++] = exact;
	return DWARF_CB_OK;
}

static void their_walk(const struct sp_record *sample)
{
	static const Dwfl_Thread_Callbacks callbacks = {
		.next_thread = next_thread,
		.get_thread = get_thread,
		.memory_read = read_memory,
		.set_initial_registers = set_registers,
	};
	their.sample = sample;
	their.n = 0;
	if (!their.attached)
		their.attached = dwfl_attach_state(their.dwfl, NULL, their.pid, &callbacks, &their);
	if (their.attached)
		(void)dwfl_getthread_frames(their.dwfl, their.pid, frame, NULL);
}

/* This kernel's vdso as a file, which libdwfl can read. */
static const char *vdso_file(void)
{
	static char path[] = "/tmp/sp-vdso-XXXXXX";
	static bool made;
	const uint8_t *image = (const uint8_t *)(uintptr_t)getauxval(AT_SYSINFO_EHDR);
	if (made || !image)
		return path;
	const Elf64_Ehdr *e = (const void *)image;
	size_t size = e->e_shoff + (size_t)e->e_shnum * e->e_shentsize;
	int fd = mkstemp(path);
	made = fd >= 0 && write(fd, image, size) == (ssize_t)size;
	close(fd);
	return path;
}

/* The process begins anew: an exec. */
static void process_begins(int32_t pid)
{
	static char *debuginfo_path;
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_build_id_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
		.debuginfo_path = &debuginfo_path,
	};
	dwfl_end(their.dwfl);
	their = (struct theirs){.dwfl = dwfl_begin(&callbacks), .pid = pid};
}

static void mapped(const struct sp_perf_mmap *m)
{
	const char *path = strcmp(m->path, "[vdso]") != 0 ? m->path : vdso_file();
	struct sp_elf elf;
	struct sp_err err;
	uint64_t bias;
	if (!(m->prot & 4) || path[0] != '/' || their.n_modules == MODULES ||
	    sp_elf_open(&elf, path, &err) < 0)
		return;
	bool good = sp_elf_bias(&elf, m->start, m->len, m->pgoff, &bias);
	for (size_t i = 0; i < their.n_modules; i++)
		good &= their.bias[i] != bias || strcmp(their.name[i], path) != 0;
	if (good) {
		their.bias[their.n_modules] = bias;
		snprintf(their.name[their.n_modules++], sizeof their.name[0], "%s", path);
		dwfl_report_begin_add(their.dwfl);
		(void)dwfl_report_elf(their.dwfl, path, path, -1, bias, true);
		(void)dwfl_report_end(their.dwfl, NULL, NULL);
	}
	sp_elf_close(&elf);
}

struct tally {
	uint32_t n, equal, longer, shorter, differ, guessed; /* by libdwfl */
	char first[200], first_longer[200];
};

/* Whether libdwfl has CFI for a frame of its own. */
static bool has_cfi(uint32_t i)
{
	Dwarf_Addr bias, pc = their.pc[i] - !their.exact[i];
	Dwfl_Module *m = dwfl_addrmodule(their.dwfl, pc);
	Dwarf_Frame *row;
	bool has = false;
	for (int debug = 0; m && !has && debug < 2; debug++) {
		Dwarf_CFI *cfi = debug ? dwfl_module_dwarf_cfi(m, &bias)
				       : dwfl_module_eh_cfi(m, &bias);
		has = cfi && dwarf_cfi_addrframe(cfi, pc - bias, &row) == 0;
		if (has)
			free(row);
	}
	return has;
}

/* Their frames and the chain that sp-unwind wrote: looked-up addresses, leaf first. */
static void compare(struct tally *y, const struct sp_perf_sample *ours)
{
	uint64_t got[FRAMES];
	uint32_t n = 0, i = 0;
	bool user = false;
	for (uint64_t j = 0; j < ours->n_chain && n < FRAMES; j++) {
		uint64_t word = sp_get64(ours->chain + 8 * j);
		if (word >= SP_CONTEXT_MAX)
			user = word == SP_CONTEXT_USER;
		else if (user)
			got[n++] = word;
	}
	n -= n && !got[n - 1]; /* the mark of a stack that was cut */
	while (i < n && i < their.n && got[i] == their.pc[i] - !their.exact[i])
		i++;
	y->n++;
	y->equal += i == n && i == their.n;
	y->longer += i < n && i == their.n;
	y->shorter += i == n && i < their.n;
	bool differ = i < n && i < their.n, guessed = differ && i > 0 && !has_cfi(i - 1);
	y->guessed += guessed;
	y->differ += differ && !guessed;
	char *text = i < their.n ? y->first : y->first_longer;
	if ((i < n || i < their.n) && !text[0])
		snprintf(text, sizeof y->first, "frame %u of %u: %#llx, libdwfl %#llx of %u", i, n,
			 i < n ? (unsigned long long)got[i] : 0,
			 i < their.n ? (unsigned long long)their.pc[i] : 0, their.n);
}

/* The next sample of what sp-unwind wrote. */
static bool next_sample(struct sp_reader *r, struct sp_record *rec)
{
	while (sp_reader_next(r, rec, NULL) == 1)
		if (rec->type == SP_PERF_SAMPLE)
			return true;
	return false;
}

static struct tally compare_files(const char *data, const char *unwound)
{
	struct tally y = {0};
	struct sp_reader *raw = NULL, *done = NULL;
	struct sp_record rec, ours;
	struct sp_err err;
	if (sp_reader_open(&raw, data, 0, &err) < 0 || sp_reader_open(&done, unwound, 0, &err) < 0)
		return y;
	while (sp_reader_next(raw, &rec, NULL) == 1) {
		bool is_map = rec.type == SP_PERF_MMAP2 || rec.type == SP_PERF_MMAP;
		/* A process that ran before the recording began has no exec in it. */
		if ((rec.type == SP_PERF_COMM && rec.comm.is_exec) ||
		    (is_map && !their.dwfl && rec.pid > 0))
			process_begins(rec.pid);
		if (is_map && rec.pid == their.pid)
			mapped(&rec.mmap);
		if (rec.type != SP_PERF_SAMPLE)
			continue;
		if (!next_sample(done, &ours) || ours.time_ns != rec.time_ns ||
		    ours.tid != rec.tid) {
			y.n = 0; /* not the same samples */
			break;
		}
		if (rec.pid != their.pid || !their.dwfl || !rec.sample.regs ||
		    !rec.sample.stack_bytes)
			continue;
		their_walk(&rec);
		compare(&y, &ours.sample);
	}
	sp_reader_close(raw);
	sp_reader_close(done);
	printf("# %u samples, %u equal, ours %u longer, %u shorter, %u differ, %u without CFI\n",
	       y.n, y.equal, y.longer, y.shorter, y.differ, y.guessed);
	if (y.first[0])
		printf("# %s\n", y.first);
	if (y.first_longer[0])
		printf("# longer: %s\n", y.first_longer);
	return y;
}

static bool agrees(const struct tally *y)
{
	return y->n > 20 && !y->differ && !y->shorter && y->guessed * 10 <= y->n;
}

static bool runs(const char *command)
{
	int status = system(command);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static struct tally record(const char *dir, const char *program)
{
	struct tally none = {0};
	const char *build = getenv("SP_BUILD");
	char line[2000], data[200], unwound[200];
	snprintf(data, sizeof data, "%s/perf.data", dir);
	snprintf(unwound, sizeof unwound, "%s/unwound", dir);
	snprintf(line, sizeof line,
		 "perf record -q -F 1000 --call-graph dwarf,16384 -o %s -- %s >%s/log 2>&1 && "
		 "%s/bin/sp-unwind %s >%s 2>>%s/log",
		 data, program, dir, build ? build : "build", data, unwound, dir);
	return runs(line) ? compare_files(data, unwound) : none;
}

int main(int argc, char **argv)
{
	unsetenv("DEBUGINFOD_URLS");
	if (argc == 3) {
		(void)compare_files(argv[1], argv[2]);
		unlink(vdso_file());
		return 0;
	}
	char dir[] = "/tmp/sp-recorded-XXXXXX", line[100];
	if (!tap_ok(mkdtemp(dir) != NULL, "a folder"))
		return tap_done();
	struct tally y =
		record(dir, "bash -c 'f() { local i=$1; ((i > 0)) && f $((i - 1)); : ${i//1/2}; "
			    "}; for ((k = 0; k < 3000; k++)); do f 9; done'");
	tap_ok(agrees(&y), "bash: frame by frame libdwfl's stacks");
	y = record(dir, "/usr/bin/python3 -c 'import json, re\n"
			"def f(n): return f(n - 1) + 1 if n else len(json.dumps([1, {}]))\n"
			"for i in range(30000): f(9); re.sub(\"a|b\", \"c\", \"xab\" * 9)'");
	tap_ok(agrees(&y), "python3: frame by frame libdwfl's stacks");
	snprintf(line, sizeof line, "rm -r %s", dir);
	(void)runs(line);
	unlink(vdso_file());
	dwfl_end(their.dwfl);
	return tap_done();
}
