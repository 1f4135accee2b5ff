/* sp-unwind as a whole: any recording in, and out comes a whole stream with as many samples as went
 * in, less those that it says it rejected.
 *
 * fuzz: sp-unwind/[a-z]*.c */
#define _GNU_SOURCE
#include "input.h"

#include <stdlib.h>

#include "../../sp-unwind/pipeline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t count_samples(const char *path, enum sp_input_state *state)
{
	struct sp_reader *r;
	struct sp_record rec;
	struct sp_err err;
	uint64_t n = 0;
	if (sp_reader_open(&r, path, SP_READER_UNORDERED, &err) < 0)
		abort();
	while (sp_reader_next(r, &rec, &err) > 0)
		n += rec.type == SP_PERF_SAMPLE && !rec.malformed;
	*state = sp_reader_state(r);
	sp_reader_close(r);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char in_path[64], out_path[64];
	int in = fuzz_file(in_path, data, size), out = fuzz_file(out_path, data, 0);
	struct un_options o = {
		.input = in_path, .out_fd = out, .out_name = "the output", .n_workers = 1};
	struct un_result res;
	struct sp_err err;
	enum sp_input_state state;
	if (in >= 0 && out >= 0) {
		int rc = un_run(&o, &res, &err);
		uint64_t wanted = res.n_samples - res.counters.v[SP_C_rejected_samples];
		if (rc == 0 && (count_samples(out_path, &state) != wanted || state != res.state))
			abort();
		un_result_deinit(&res);
	}
	close(in);
	close(out);
	return 0;
}
