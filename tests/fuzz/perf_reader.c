/* Streams and perf.data files in memory, in both orders; every byte that a record points to is
 * looked at, and the head is written again as a filter would. */
#include "perf/attr.h"
#include "perf/head.h"

#include <fcntl.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void look(const uint8_t *p, uint64_t n)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < n; i++)
		sum += p[i];
	sink += sum;
}

static void look_at(const struct sp_record *rec)
{
	look(rec->raw, rec->size);
	if (rec->malformed)
		return;
	if (rec->type == SP_PERF_SAMPLE) {
		const struct sp_perf_sample *s = &rec->sample;
		look(s->chain, s->n_chain * 8);
		look(s->stack, s->stack_bytes);
		look(s->branches, s->n_branches * 24);
		look(s->raw, s->raw_bytes);
		if (s->regs)
			look(s->regs, 8u * (unsigned)__builtin_popcountll(
						   rec->event->attr.sample_regs_user));
		if (s->chain_end > rec->size || s->user_end > rec->size ||
		    s->chain_off > s->chain_end || s->user_off > s->user_end)
			__builtin_trap();
	} else if (rec->type == SP_PERF_MMAP || rec->type == SP_PERF_MMAP2) {
		look((const uint8_t *)rec->mmap.path, strlen(rec->mmap.path));
	} else if (rec->type == SP_PERF_COMM) {
		look((const uint8_t *)rec->comm.comm, strlen(rec->comm.comm));
	}
}

static void one_order(const uint8_t *data, size_t size, unsigned flags)
{
	static int null_fd = -1;
	struct sp_reader *r;
	struct sp_writer *w;
	struct sp_record rec;
	struct sp_buf out = {0};
	struct sp_err err;
	if (null_fd < 0)
		null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (sp_reader_open_bytes(&r, data, size, flags, &err) < 0)
		return;
	while (sp_reader_next(r, &rec, &err) > 0) {
		look_at(&rec);
		(void)sp_head_rewrite(&out, &rec, SP_HEAD_UNWOUND, &err);
	}
	if (sp_reader_state(r) != SP_INPUT_WHOLE && !*sp_reader_complaint(r))
		__builtin_trap();
	if (sp_writer_new(&w, null_fd, "/dev/null", false, &err) == 0) {
		(void)sp_head_write(w, r, SP_HEAD_UNWOUND, &err);
		(void)sp_writer_finish(w, &err);
	}
	sp_buf_deinit(&out);
	sp_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	one_order(data, size, 0);
	one_order(data, size, SP_READER_UNORDERED);
	return 0;
}
