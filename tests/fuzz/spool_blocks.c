/* Spools whose blocks are sound and whose contents are anything: checksums keep the other fuzzer of
 * spools from coming this far. An input is a sequence of u8 type, u24 length, payload. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "base/buf.h"
#include "base/err.h"
#include "input.h"
#include "spool/format.h"
#include "stackpulse/spool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void build(struct sp_buf *out, const uint8_t *data, size_t size)
{
	uint8_t head[SP_SPOOL_BLOCK_HEAD];
	sp_spool_head_encode(head, 1);
	sp_buf_add(out, head, SP_SPOOL_FILE_HEAD);
	for (uint32_t seq = 0; size >= 4; seq++) {
		size_t n = data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16;
		n = n < size - 4 ? n : size - 4;
		struct sp_block b = {.type = data[0], .raw = (uint32_t)n, .stored = (uint32_t)n,
				     .seq = seq, .salt = 1, .crc = sp_spool_crc(data + 4, n)};
		sp_block_encode(head, &b);
		sp_buf_add(out, head, sizeof head);
		sp_buf_add(out, data + 4, n);
		data += 4 + n;
		size -= 4 + n;
	}
}

/* What was opened must be given without a fault, twice the same, and be counted right. */
static void replay(struct sp_spool *s)
{
	struct sp_spool_sample sample;
	const struct sp_spool_frame *f;
	struct sp_err err;
	enum sp_spool_state state = sp_spool_state(s);
	uint64_t n[2] = {0}, sum[2] = {0};
	for (int pass = 0; pass < 2; pass++) {
		int rc;
		while ((rc = sp_spool_next(s, &sample, &err)) == 1) {
			n[pass]++;
			sum[pass] += sample.time_ns ^ sample.weight;
			if (n[pass] > 100000)
				continue;
			size_t frames = sp_spool_frames(s, &f);
			for (size_t i = 0; i < frames; i++) {
				if (f[i].module != SP_NONE)
					sum[pass] += sp_spool_module(s, f[i].module)->start;
				if (f[i].frame_id >= sp_spool_n_frames(s))
					abort();
			}
			if (sample.stack >= sp_spool_n_stacks(s) ||
			    !sp_spool_thread(s, sample.thread) || !sp_spool_event(s, sample.event))
				abort();
		}
		if (rc < 0)
			abort();
		sp_spool_rewind(s);
	}
	/* A stack without its module is found on its first use: from then on it is left out. */
	if (sp_spool_state(s) == state &&
	    (n[0] != n[1] || sum[0] != sum[1] || n[0] != sp_spool_info(s)->n_samples))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_buf b = {0};
	struct sp_spool *s;
	struct sp_err err;
	char path[64];
	build(&b, data, size);
	int fd = fuzz_file(path, b.data, b.len);
	if (fd >= 0 && sp_spool_open(&s, path, &err) >= 0) {
		replay(s);
		sp_spool_close(s);
	}
	if (fd >= 0)
		close(fd);
	sp_buf_deinit(&b);
	return 0;
}
