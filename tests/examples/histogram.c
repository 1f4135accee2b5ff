/* histogram FILE.spool [N]: the N most frequent stacks (10), with how often each was seen.
 *
 * Stacks have dense numbers, so that counting looks at no frame: one is expanded only when it is
 * shown. Processes that run the same code share numbers; they are counted together here.
 * Build: cc histogram.c $(pkg-config --cflags --libs stackpulse) */
#include <inttypes.h>
#include <stackpulse/spool.h>
#include <stdio.h>
#include <stdlib.h>

struct row {
	uint64_t count;
	struct sp_spool_sample one; /* the first sample with this stack */
};

static int by_count(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	return (x->one.time_ns > y->one.time_ns) - (x->one.time_ns < y->one.time_ns);
}

static void print_stack(struct sp_spool *spool, const struct row *r)
{
	const struct sp_spool_frame *f;
	size_t n = sp_spool_sample_frames(spool, &r->one, &f);

	printf("%8" PRIu64, r->count);
	for (size_t i = n; i-- > 0;) { /* from the root to the leaf */
		const struct sp_spool_module *m = sp_spool_module(spool, f[i].module);

		printf("%s%s+0x%" PRIx64, i == n - 1 ? " " : ";", m ? m->path : "", f[i].rel_ip);
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	struct sp_spool *spool;
	struct sp_spool_sample sample;
	struct sp_err err;
	size_t n = argc == 3 ? (size_t)atoi(argv[2]) : 10;
	int more;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "Usage: histogram FILE.spool [N]\n");
		return 2;
	}
	if (sp_spool_open(&spool, argv[1], &err) < 0) {
		fprintf(stderr, "histogram: %s\n", err.msg);
		return 1;
	}
	size_t n_stacks = sp_spool_n_stacks(spool);
	struct row *rows = calloc(n_stacks, sizeof *rows);
	if (!rows)
		return 1;
	while ((more = sp_spool_next(spool, &sample, &err)) > 0) {
		if (!rows[sample.stack].count++)
			rows[sample.stack].one = sample;
	}
	if (more < 0)
		fprintf(stderr, "histogram: %s\n", err.msg);
	qsort(rows, n_stacks, sizeof *rows, by_count);
	for (size_t i = 0; i < n && i < n_stacks && rows[i].count; i++)
		print_stack(spool, &rows[i]);
	free(rows);
	sp_spool_close(spool);
	return more < 0;
}
