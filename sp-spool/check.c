#include "check.h"

#include <stdio.h>
#include <string.h>

#include "base/cli.h"
#include "spool/reader.h"

/* Read all samples and their frames, as a report would. */
static int replay(struct sp_spool *s, uint64_t *n, uint64_t *n_frames, struct sp_err *err)
{
	struct sp_spool_sample sample;
	const struct sp_spool_frame *f;
	int rc;
	while ((rc = sp_spool_next(s, &sample, err)) == 1) {
		++*n;
		*n_frames += sp_spool_frames(s, &f);
	}
	return rc;
}

int spool_check(const char *path)
{
	struct sp_spool *s;
	struct sp_err err;
	uint64_t n = 0, n_frames = 0;
	if (sp_spool_open(&s, path, &err) < 0)
		sp_die(&err, NULL);
	if (replay(s, &n, &n_frames, &err) < 0)
		sp_die(&err, NULL);
	const struct sp_spool_info *i = sp_spool_info(s);
	static const char *const states[] = {"whole", "incomplete", "damaged"};
	enum sp_spool_state state = sp_spool_state(s);
	printf("%s: %s", path, states[state]);
	if (state != SP_SPOOL_WHOLE)
		printf(": %s", sp_spool_complaint(s));
	printf("\n%llu samples, %llu frames, %zu stacks, %zu modules, %zu threads, %zu embedded files",
	       (unsigned long long)n, (unsigned long long)n_frames, sp_spool_n_stacks(s) - 1,
	       sp_spool_n_modules(s), sp_spool_n_threads(s), sp_spool_n_objects(s));
	if (sp_spool_n_epochs(s) > 1)
		printf(", %zu recordings", sp_spool_n_epochs(s));
	printf("\n");
	if (i->n_lost_samples)
		printf("%llu samples can't be given: their block or what they refer to was lost\n",
		       (unsigned long long)i->n_lost_samples);
	if (sp_spool_n_bad_blocks(s))
		printf("%llu damaged places\n", (unsigned long long)sp_spool_n_bad_blocks(s));
	if (sp_spool_n_unknown_blocks(s))
		printf("%llu blocks of a later version, skipped\n",
		       (unsigned long long)sp_spool_n_unknown_blocks(s));
	sp_spool_close(s);
	return sp_finish_stdout(state == SP_SPOOL_WHOLE ? SP_EXIT_OK : SP_EXIT_PARTIAL);
}
