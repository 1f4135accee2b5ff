/* A made-up perf stream on standard output, as sp-unwind would write it: what goes in is known.
 *
 * Usage: stream [KEY=VALUE…]
 *   samples=1000 stacks=100 depth=40 threads=4 hz=999
 *   own=0        stacks that each thread has of all (a window that moves from thread to thread); 0: all
 *   procs=1      processes; each maps the same file at an address of its own
 *   chain=site   or return: a foreign stream, without our own records
 *   jitter=20000 the most ns that a sample is late
 *   end=1        0: without the end record, as if it had been cut
 *   pace=0       1: samples leave at the rate that their times say
 *   hold=0       1: after the last sample, wait until killed
 *   lost=0       a loss record of so many
 *   truncated=0  every n-th stack stops before its root
 *   start=…      ns of the first sample; boot=… the boot id; host=… the host's name; pid=100
 * Sample i is of thread i % threads; its stack is chosen by a generator with a fixed seed; frame d
 * of stack s is stream_addr() below. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t samples = 1000, stacks = 100, depth = 40, threads = 4, hz = 999, procs = 1, own, lost;
static uint64_t jitter = 20000, truncated, start = 1000000000000, pid0 = 100;
static int site = 1, end = 1, pace, hold;
static const char *boot = "11111111-2222-3333-4444-555555555555", *host = "maker";

static unsigned char rec[65536];
static size_t len;

static void put(const void *p, size_t n)
{
	memcpy(rec + len, p, n);
	len += n;
}

static void u16(unsigned v)
{
	uint16_t x = (uint16_t)v;
	put(&x, 2);
}

static void u32(uint64_t v)
{
	uint32_t x = (uint32_t)v;
	put(&x, 4);
}

static void u64(uint64_t v)
{
	put(&v, 8);
}

static void text(const char *s) /* NUL-terminated, padded to 8 */
{
	size_t n = strlen(s) + 1;
	put(s, n);
	while (len % 8) {
		rec[len] = 0;
		len++;
	}
}

static void begin(uint32_t type, unsigned misc)
{
	len = 0;
	u32(type);
	u16(misc);
	u16(0);
}

static void finish(void)
{
	uint16_t n = (uint16_t)len;
	memcpy(rec + 6, &n, 2);
	fwrite(rec, 1, len, stdout);
}

static void sample_id(uint64_t pid, uint64_t tid, uint64_t time)
{
	u32(pid);
	u32(tid);
	u64(time);
	u64(0); /* cpu, res */
	u64(1); /* id */
}

static void attr(void)
{
	/* IP|TID|TIME|CALLCHAIN|CPU|PERIOD|IDENTIFIER */
	const uint64_t sample_type = 1 | 2 | 4 | 32 | 128 | 256 | 1 << 16;
	begin(64, 0);
	u32(1); /* software */
	u32(128);
	u64(0); /* cpu-clock */
	u64(hz);
	u64(sample_type);
	u64(0);
	/* freq, comm, task, mmap, mmap2, sample_id_all, use_clockid, comm_exec */
	u64(1 << 10 | 1 << 9 | 1 << 13 | 1 << 8 | 1 << 18 | 1 << 23 | 1 << 24 | 1 << 25);
	while (len < 8 + 92)
		u32(0);
	u32(1); /* clockid: monotonic */
	while (len < 8 + 128)
		u32(0);
	u64(1); /* its id */
	finish();
}

static void feature(unsigned id, const char *s)
{
	begin(80, 0);
	u64(id);
	u32(64); /* room for the string */
	char room[64] = "";
	strncpy(room, s, 63);
	put(room, 64);
	u32(0);
	finish();
}

static void ext(unsigned kind, const void *payload, size_t n)
{
	begin(65, 0);
	put("STKPULSE", 8);
	u16(1);
	u16(kind);
	u32(n);
	u64(kind);
	u64(0);
	u64(n);
	put(payload, n);
	while (len < 80 || len % 8) {
		rec[len] = 0;
		len++;
	}
	finish();
}

static uint64_t base_of(uint64_t p)
{
	return 0x550000000000 + p * 0x10000000;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* Frame d (0 is the root) of stack s in process p: stacks share their outer frames as a tree of two
 * branches at each level does. */
static uint64_t stream_addr(uint64_t p, uint64_t s, uint64_t d)
{
	uint64_t up = depth - 1 - d;
	uint64_t node = up < 63 ? s >> up : 0;
	return base_of(p) + 0x1000 + mix(node << 8 | d) % 0x800000;
}

static void head(void)
{
	fwrite("PERFILE2\x10\0\0\0\0\0\0", 1, 16, stdout);
	attr();
	feature(3, host);
	feature(4, "6.1.0-made");
	feature(6, "x86_64");
	if (!site)
		return;
	char s[500];
	int n = snprintf(s, sizeof s,
			 "tool=stream\nversion=0\nchain=site\nboot_id=%s\nstart_ns=%llu\n"
			 "wall_ns=%llu\nstart_time_us=%llu\ninterval_us=%llu\nclock=cpu-clock\n",
			 boot, (unsigned long long)start, 1700000000000000000 + (unsigned long long)start,
			 1700000000000000 + (unsigned long long)start / 1000,
			 1000000 / (unsigned long long)hz);
	ext(1, s, (size_t)n);
}

static void processes(void)
{
	for (uint64_t p = 0; p < procs; p++) {
		begin(3, 0); /* COMM */
		u32(pid0 + p);
		u32(pid0 + p);
		text("maker");
		sample_id(pid0 + p, pid0 + p, start);
		finish();
		begin(10, 2); /* MMAP2, user */
		u32(pid0 + p);
		u32(pid0 + p);
		u64(base_of(p));
		u64(0x1000000);
		u64(0x2000);
		u32(8);
		u32(1);
		u64(1234);
		u64(0);
		u32(5);
		u32(2);
		text("/opt/made/libmade.so");
		sample_id(pid0 + p, pid0 + p, start);
		finish();
	}
}

static void sample(uint64_t i, uint64_t time, uint64_t s)
{
	uint64_t t = i % threads, p = t % procs;
	int cut = truncated && i % truncated == 0;
	begin(9, 2);
	u64(1);
	u64(stream_addr(p, s, depth - 1));
	u32(pid0 + p);
	u32(pid0 + p + (t / procs ? 1000 + t : 0));
	u64(time);
	u64(t % 2); /* cpu */
	u64(1000000000 / hz);
	u64(depth + 1 + (uint64_t)cut);
	u64((uint64_t)-512); /* USER */
	for (uint64_t d = depth; d--;)
		u64(stream_addr(p, s, d) + (!site && d + 1 != depth));
	if (cut)
		u64(0);
	finish();
}

static void wait_until(uint64_t from, uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)((from + ns) / 1000000000),
			     .tv_nsec = (long)((from + ns) % 1000000000)};
	fflush(stdout);
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* A hot half and a long tail, of those that the thread of sample i has. */
static uint64_t pick(uint64_t seed, uint64_t i)
{
	uint64_t n = own ? own : stacks, s = seed >> 40 & 1 ? seed % n : seed % (n / 16 + 1);
	return own ? (i % threads * stacks / threads + s) % stacks : s;
}

static void make_samples(void)
{
	uint64_t seed = 42, step = 1000000000 / hz / threads, last = start;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	uint64_t from = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	for (uint64_t i = 0; i < samples; i++) {
		seed = mix(seed + i);
		uint64_t time = start + i * step + (jitter ? seed % jitter : 0);
		last = time > last ? time : last;
		if (pace)
			wait_until(from, i * step);
		sample(i, last, pick(seed, i));
		if (i % 4096 == 4095) {
			begin(68, 0);
			finish();
		}
	}
	begin(68, 0);
	finish();
}

static void tail(void)
{
	if (lost) {
		len = 0;
		u64(start);
		u64(start + 5);
		u32(1);
		u32(0);
		u64(lost);
		unsigned char payload[32];
		memcpy(payload, rec, 32);
		ext(5, payload, 32);
	}
	char s[200];
	int n = snprintf(s, sizeof s, "stage stream\nsamples %llu\nlost_events %llu\nkernel_enabled 0\n",
			 (unsigned long long)samples, (unsigned long long)lost);
	ext(6, s, (size_t)n);
	if (end)
		ext(7, "status=0\n", 9);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *key;
		uint64_t *n;
		int *flag;
		const char **s;
	} keys[] = {
		{"samples", &samples, 0, 0}, {"stacks", &stacks, 0, 0}, {"depth", &depth, 0, 0},
		{"threads", &threads, 0, 0}, {"hz", &hz, 0, 0},	  {"procs", &procs, 0, 0},
		{"jitter", &jitter, 0, 0},   {"lost", &lost, 0, 0},     {"own", &own, 0, 0},
		{"truncated", &truncated, 0, 0},
		{"start", &start, 0, 0},     {"pid", &pid0, 0, 0},      {"end", 0, &end, 0},
		{"pace", 0, &pace, 0},	     {"hold", 0, &hold, 0},     {"boot", 0, 0, &boot},
		{"host", 0, 0, &host},
	};
	for (int a = 1; a < argc; a++) {
		const char *eq = strchr(argv[a], '=');
		size_t k = 0;
		if (!strncmp(argv[a], "chain=", 6)) {
			site = !strcmp(eq + 1, "site");
			continue;
		}
		for (; k < sizeof keys / sizeof *keys; k++)
			if (eq && strlen(keys[k].key) == (size_t)(eq - argv[a]) &&
			    !memcmp(argv[a], keys[k].key, (size_t)(eq - argv[a])))
				break;
		if (k == sizeof keys / sizeof *keys) {
			fprintf(stderr, "stream: what is '%s'?\n", argv[a]);
			return 2;
		}
		if (keys[k].n)
			*keys[k].n = strtoull(eq + 1, NULL, 0);
		else if (keys[k].flag)
			*keys[k].flag = atoi(eq + 1);
		else
			*keys[k].s = eq + 1;
	}
	static char buffer[1 << 20];
	setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
	head();
	processes();
	make_samples();
	if (hold) {
		fflush(stdout);
		pause();
	}
	if (site)
		tail();
	return fflush(stdout) || ferror(stdout);
}
