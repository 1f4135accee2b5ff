/* perf-copy [-f | -s | -n] [INPUT]: an input record by record through the reader and the writer, to
 * stdout; perf must find the copy equal. -f writes a perf.data file, -s copies in the input's
 * order, -n only counts: samples, LOST, LOST_SAMPLES, records out of order, the state of the input.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "perf/head.h"

static int copy_record(struct sp_writer *w, const struct sp_reader *r, const struct sp_record *rec,
		       struct sp_buf *out, struct sp_err *err)
{
	if (rec->type == SP_PERF_HEADER_TRACING_DATA)
		return sp_head_tracing_data(w, r, err);
	int rc = sp_head_rewrite(out, rec, 0, err);
	if (rc < 0 || rc == 2)
		return rc < 0 ? rc : 0;
	return rc == 1 ? sp_writer_raw(w, out->data, out->len, err)
		       : sp_writer_raw(w, rec->raw, rec->size, err);
}

static int copy(struct sp_reader *r, bool as_file, struct sp_err *err)
{
	struct sp_writer *w;
	struct sp_record rec;
	struct sp_buf out = {0};
	int rc = sp_writer_new(&w, STDOUT_FILENO, "standard output", as_file, err);
	if (rc < 0)
		return rc;
	rc = sp_reader_info(r)->is_pipe ? sp_writer_begin(w, err) : sp_head_write(w, r, 0, err);
	while (rc == 0 && (rc = sp_reader_next(r, &rec, err)) == 1)
		rc = copy_record(w, r, &rec, &out, err);
	sp_buf_deinit(&out);
	if (rc == 0)
		return sp_writer_finish(w, err);
	sp_writer_abandon(w);
	return rc;
}

static int count(struct sp_reader *r, struct sp_err *err)
{
	static const char *const states[] = {"whole", "cut", "damaged"};
	struct sp_record rec;
	uint64_t samples = 0, malformed = 0;
	int rc;
	while ((rc = sp_reader_next(r, &rec, err)) == 1) {
		samples += rec.type == SP_PERF_SAMPLE && !rec.malformed;
		malformed += rec.malformed;
	}
	const struct sp_counters *c = sp_reader_counters(r);
	printf("samples=%" PRIu64 " lost=%" PRIu64 " lost_samples=%" PRIu64 " out_of_order=%" PRIu64
	       " malformed=%" PRIu64 " state=%s\n",
	       samples, c->v[SP_C_lost_events], c->v[SP_C_lost_samples], c->v[SP_C_out_of_order],
	       malformed, states[sp_reader_state(r)]);
	return rc;
}

int main(int argc, char **argv)
{
	struct sp_reader *r;
	struct sp_err err;
	char mode = 0;
	if (argc > 1 && argv[1][0] == '-' && argv[1][1]) {
		mode = argv[1][1];
		argc--, argv++;
	}
	int rc = sp_reader_open(&r, argc > 1 ? argv[1] : NULL,
				mode == 's' ? SP_READER_UNORDERED : 0, &err);
	if (rc == 0) {
		rc = mode == 'n' ? count(r, &err) : copy(r, mode == 'f', &err);
		if (*sp_reader_complaint(r))
			fprintf(stderr, "perf-copy: %s\n", sp_reader_complaint(r));
		if (rc == 0 && sp_reader_state(r) != SP_INPUT_WHOLE)
			rc = 3;
		sp_reader_close(r);
	}
	if (rc < 0)
		fprintf(stderr, "perf-copy: %s\n", err.msg);
	return rc < 0 ? 1 : rc;
}
