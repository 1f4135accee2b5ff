/* Large samples of a file, of which only the near side of the stack is read: everything else is as
 * when all is read, and the far side stands where the record says. */
#define _GNU_SOURCE
#include "perf_read.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define STACK 40000u

static struct sp_attr stack_attr(void)
{
	struct sp_attr a = e_plain_attr();
	a.sample_type |= SP_SAMPLE_CALLCHAIN | SP_SAMPLE_RAW | SP_SAMPLE_REGS_USER |
			 SP_SAMPLE_STACK_USER | SP_SAMPLE_WEIGHT | SP_SAMPLE_PHYS_ADDR;
	a.sample_regs_user = 0x1ff;
	a.sample_stack_user = STACK;
	return a;
}

/* What a sample of the file is like. */
struct shape {
	unsigned n_chain, raw_bytes, stack;
	uint64_t used; /* UINT64_MAX: all of the stack */
};

static void put_sample(struct enc *e, uint64_t time, const struct shape *s)
{
	e_begin(e, SP_PERF_SAMPLE, 2);
	e64(e, id_a), e64(e, time), e32(e, 100), e32(e, 101), e64(e, time);
	e32(e, 3), e32(e, 0), e64(e, 1000);
	e64(e, s->n_chain);
	for (unsigned i = 0; i < s->n_chain; i++)
		e64(e, 0x1000 + i);
	e32(e, s->raw_bytes);
	for (unsigned i = 0; i < s->raw_bytes; i++)
		e8(e, (uint8_t)i);
	e64(e, 2);
	for (unsigned i = 0; i < 9; i++)
		e64(e, 0x7000 + i);
	e64(e, s->stack);
	for (unsigned i = 0; i < s->stack / 8; i++)
		e64(e, time * 100000 + i);
	if (s->stack)
		e64(e, s->used == UINT64_MAX ? s->stack : s->used);
	e64(e, 77 + time), e64(e, 99 + time);
	e_end(e);
}

static const struct shape shapes[] = {
	{0, 4, STACK, UINT64_MAX}, {5, 4, STACK, 16},       {0, 4, STACK, 2000},
	{0, 4, STACK, 4080},       {0, 4, 0, 0},            {0, 4, 64, 64},
	{0, 4, 3600, 3600},        {100, 4, STACK, 30000},  {600, 4, STACK, 30000},
	{0, 6004, STACK, 30000},   {0, 4, STACK, 0},        {0, 4, 8000, 8000},
	{0, 4, STACK, STACK + 8},  {3, 12, STACK, 1 << 12}, {0, 4, 24, 24},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static void put_data(struct enc *e, unsigned times)
{
	for (uint64_t i = 0; i < times * N_SHAPES; i++) {
		put_sample(e, 10 * i + 1, &shapes[i % N_SHAPES]);
		if (i % 5 == 0)
			e_comm(e, id_a, 10 * i + 2, "name");
		if (i % 7 == 0)
			e_round(e);
		for (unsigned k = 0; i % 11 == 0 && k < 200; k++)
			e_comm(e, id_a, 10 * i + 3, "many of them");
	}
}

static void put_file(struct enc *e, unsigned times)
{
	struct sp_attr a = stack_attr();
	ebytes(e, "PERFILE2", 8);
	e64(e, 104), e64(e, 144), e64(e, 112), e64(e, 144), e64(e, 256);
	size_t size_at = e->b.len;
	for (unsigned i = 0; i < 7; i++)
		e64(e, 0);
	e64(e, id_a);
	e_attr(e, &a, 128), e64(e, 104), e64(e, 8);
	put_data(e, times);
	sp_put64(e->b.data + size_at, e->b.len - 256);
}

static struct sp_reader *open_file(const char *path, unsigned flags)
{
	struct sp_reader *r = NULL;
	struct sp_err err = {0};
	if (sp_reader_open(&r, path, flags, &err) < 0)
		printf("# %s\n", err.msg);
	return r;
}

static bool same_stack(const struct sp_perf_sample *want, const struct sp_perf_sample *got)
{
	uint8_t far[SP_MAX_STACK];
	size_t n = want->stack_bytes;
	if (got->stack_bytes != n)
		return false;
	int fd;
	uint64_t foff;
	if (!got->stack_here)
		return !n || !memcmp(want->stack, got->stack, n);
	sp_sample_far(got, &fd, &foff);
	return got->stack_here >= 256 && got->stack_here < n &&
	       !memcmp(want->stack, got->stack, got->stack_here) &&
	       pread(fd, far, n, (off_t)foff) == (ssize_t)n &&
	       !memcmp(want->stack, far, n);
}

static bool same_bytes(const uint8_t *a, const uint8_t *b, size_t n)
{
	return !a == !b && (!a || !memcmp(a, b, n));
}

static bool same_sample(const struct sp_record *want, const struct sp_record *got)
{
	const struct sp_perf_sample *w = &want->sample, *g = &got->sample;
	return w->ip == g->ip && w->id == g->id && w->n_chain == g->n_chain &&
	       same_bytes(w->chain, g->chain, 8 * w->n_chain) && w->raw_bytes == g->raw_bytes &&
	       same_bytes(w->raw, g->raw, w->raw_bytes) && w->has_regs == g->has_regs &&
	       same_bytes(w->regs, g->regs, 72) && w->weight == g->weight &&
	       w->phys_addr == g->phys_addr && want->size - w->user_end == got->size - g->user_end &&
	       sp_get16(got->raw + 6) == got->size && same_stack(w, g);
}

static bool same_record(const struct sp_record *want, const struct sp_record *got)
{
	if (want->type != got->type || want->time_ns != got->time_ns || want->tid != got->tid ||
	    want->malformed != got->malformed)
		return false;
	if (want->type == SP_PERF_SAMPLE && !want->malformed)
		return same_sample(want, got);
	return want->size == got->size && !memcmp(want->raw, got->raw, want->size);
}

/* The same file with and without: records, their order, the end and what is said of it. */
static void test_same(const char *path, unsigned flags, size_t at_least, const char *why)
{
	struct sp_reader *whole = open_file(path, 0), *near = open_file(path, flags);
	struct sp_record want, got;
	size_t n = 0, n_near = 0;
	bool same = whole && near;
	for (int a = 1, b = 1; same && a == 1; n++) {
		a = sp_reader_next(whole, &want, NULL);
		b = sp_reader_next(near, &got, NULL);
		same = a == b && (a != 1 || same_record(&want, &got));
		n_near += a == 1 && got.type == SP_PERF_SAMPLE && !got.malformed &&
			  got.sample.stack_here;
	}
	same = same && sp_reader_state(whole) == sp_reader_state(near) &&
	       !strcmp(sp_reader_complaint(whole), sp_reader_complaint(near));
	tap_ok(same && n_near >= at_least, why);
	if (!same)
		printf("# record %zu; %s; %s\n", n, whole ? sp_reader_complaint(whole) : "",
		       near ? sp_reader_complaint(near) : "");
	sp_reader_close(whole);
	sp_reader_close(near);
}

/* Whatever is trimmed, samples that are decoded later know the sizes that they have in the file. */
static void test_late(const char *path)
{
	struct sp_reader *whole = open_file(path, 0);
	struct sp_reader *late = open_file(path, SP_READER_TRIM | SP_READER_LATE);
	struct sp_record want, got;
	size_t n = 0, n_trimmed = 0;
	bool same = whole && late;
	while (same && sp_reader_next(whole, &want, NULL) == 1) {
		same = sp_reader_next(late, &got, NULL) == 1;
		if (!same || !got.is_late)
			continue;
		n++;
		n_trimmed += got.late.size < got.late.whole;
		const struct sp_late l = got.late;
		same = l.whole == want.size && sp_late_decode(&got, &l) == !want.malformed &&
		       (want.malformed || same_sample(&want, &got));
	}
	tap_ok(same && n && n_trimmed, "samples that are late know their sizes");
	sp_reader_close(whole);
	sp_reader_close(late);
}

/* Records of several chunks. */
static void test_long(int fd, const char *path)
{
	struct enc e = {0};
	put_file(&e, 24);
	if (e.b.len < 8 << 20 || pwrite(fd, e.b.data, e.b.len, 0) != (ssize_t)e.b.len)
		exit(99);
	test_same(path, SP_READER_TRIM, 16, "so are those of a longer file");
	test_late(path);
	sp_buf_deinit(&e.b);
}

int main(void)
{
	char path[] = "/tmp/sp-trim-XXXXXX";
	int fd = mkstemp(path);
	struct enc e = {0};
	put_file(&e, 4);
	if (fd < 0 || write(fd, e.b.data, e.b.len) != (ssize_t)e.b.len)
		return 99;
	test_same(path, SP_READER_TRIM, 16,
		  "samples without the far side of their stacks are the same");
	test_same(path, SP_READER_TRIM | SP_READER_SPLIT, 16, "and those of which less is read");

	unsigned differ = 0;
	for (size_t cut = e.b.len; cut > 256 && e.b.len - cut < 130000; cut -= 997) {
		if (ftruncate(fd, (off_t)cut) < 0)
			return 99;
		struct sp_reader *a = open_file(path, 0), *b = open_file(path, SP_READER_TRIM);
		char text[400];
		snprintf(text, sizeof text, "%s", times(a));
		differ += strcmp(text, times(b)) != 0 || sp_reader_state(a) != sp_reader_state(b) ||
			  strcmp(sp_reader_complaint(a), sp_reader_complaint(b)) != 0;
		sp_reader_close(a);
		sp_reader_close(b);
	}
	tap_eq(differ, 0, "a cut file ends at the same record, with the same words");

	for (size_t i = 256; i < e.b.len; i += 30011) /* sizes, counts, registers: whatever is there */
		e.b.data[i] ^= 0xff;
	if (ftruncate(fd, 0) < 0 || pwrite(fd, e.b.data, e.b.len, 0) != (ssize_t)e.b.len)
		return 99;
	test_same(path, SP_READER_TRIM, 1, "so is a damaged file");
	test_long(fd, path);
	unlink(path);
	close(fd);
	sp_buf_deinit(&e.b);
	return tap_done();
}
