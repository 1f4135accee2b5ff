/* Samples that read their group's counters: what each stands for. unit: sp-spool/reads.c */
#include "perf_read.h"

#include "../../sp-spool/reads.h"

/* Two events whose samples read both, with `flags` more. */
static void group_head(struct enc *e, uint64_t flags)
{
	struct sp_attr a = e_plain_attr();
	a.sample_type |= SP_SAMPLE_READ;
	a.read_format = SP_READ_GROUP | SP_READ_ID;
	a.flags |= flags;
	e_pipe(e);
	e_head_attr(e, &a, 128, &id_a, 1);
	a.config = 2;
	e_head_attr(e, &a, 128, &id_b, 1);
}

static void read_sample(struct enc *e, uint32_t tid, uint64_t a, uint64_t b, uint64_t second_id)
{
	e_begin(e, SP_PERF_SAMPLE, 2);
	e64(e, id_a), e64(e, 0x1000), e32(e, 100), e32(e, tid), e64(e, 1), e32(e, 3), e32(e, 0);
	e64(e, 4000);
	e64(e, 2), e64(e, a), e64(e, id_a), e64(e, b), e64(e, second_id);
	e_end(e);
}

/* What the stream's samples stand for: "event=weight …; event=weight …". */
static const char *gains(const struct enc *e)
{
	static char text[400];
	struct sp_reader *r = open_bytes(e->b.data, e->b.len, 0);
	struct spool_reads x = {0};
	struct sp_record rec;
	size_t at = 0;
	text[0] = 0;
	while (r && sp_reader_next(r, &rec, NULL) == 1) {
		if (rec.type != SP_PERF_SAMPLE || spool_reads_sample(&x, r, &rec, NULL) < 0)
			continue;
		for (size_t i = 0; i < x.n && at < sizeof text; i++)
			at += (size_t)snprintf(text + at, sizeof text - at, "%s%s=%llu",
					       i ? " " : at ? "; " : "", x.gain[i].event->name,
					       (unsigned long long)x.gain[i].weight);
	}
	spool_reads_deinit(&x);
	sp_reader_close(r);
	return text;
}

static void test_group(void)
{
	struct enc e = {0};
	group_head(&e, 0);
	read_sample(&e, 101, 100, 5, id_b);
	read_sample(&e, 102, 130, 5, id_b);
	read_sample(&e, 101, 130, 5, id_b);
	read_sample(&e, 101, 131, 9, id_b);
	read_sample(&e, 101, 133, 9, 77);
	tap_str(gains(&e),
		"cpu-clock=100 page-faults=5; cpu-clock=30; cpu-clock=0; "
		"cpu-clock=1 page-faults=4; cpu-clock=2",
		"a sample stands for each event that gained, by what it gained");
	e.b.len = 0;
	group_head(&e, SP_ATTR_INHERIT);
	read_sample(&e, 101, 100, 5, id_b);
	read_sample(&e, 102, 130, 7, id_b);
	read_sample(&e, 101, 103, 6, id_b);
	tap_str(gains(&e),
		"cpu-clock=100 page-faults=5; cpu-clock=130 page-faults=7; "
		"cpu-clock=3 page-faults=1",
		"inherited counters are each thread's own");
	e.b.len = 0;
	group_head(&e, 0);
	read_sample(&e, 101, 1000, 5, id_b);
	read_sample(&e, 101, 900, 7, id_b);
	tap_str(gains(&e), "cpu-clock=1000 page-faults=5; page-faults=2",
		"a counter that went back says nothing");
	sp_buf_deinit(&e.b);
}

static void test_without(void)
{
	struct enc e = {0};
	head(&e);
	e_sample(&e, id_a, 1, 0x1000);
	e_sample(&e, id_b, 2, 0x1000);
	tap_str(gains(&e), "cpu-clock=1000; dummy=1000", "a sample without values has its period");
	e.b.len = 0;
	struct sp_attr a = e_plain_attr();
	a.sample_type = SP_SAMPLE_IDENTIFIER | SP_SAMPLE_READ;
	e_pipe(&e);
	e_head_attr(&e, &a, 128, &id_a, 1);
	e_begin(&e, SP_PERF_SAMPLE, 2);
	e64(&e, id_a), e64(&e, 12345);
	e_end(&e);
	tap_str(gains(&e), "cpu-clock=1000", "and one whose values have no ids the event's");
	sp_buf_deinit(&e.b);
}

int main(void)
{
	test_group();
	test_without();
	return tap_done();
}
