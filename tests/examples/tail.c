/* tail FILE.spool: follow a spool while it is written: a line for what has come, until its end.
 * Build: cc tail.c $(pkg-config --cflags --libs stackpulse) */
#include <stackpulse/spool.h>
#include <stdio.h>
#include <time.h>

static void wait_a_moment(void)
{
	const struct timespec t = {.tv_nsec = 100000000};

	nanosleep(&t, NULL);
}

int main(int argc, char **argv)
{
	struct sp_spool *spool;
	struct sp_spool_sample sample;
	struct sp_err err;
	unsigned long total = 0;
	int rc;

	if (argc != 2) {
		fprintf(stderr, "Usage: tail FILE.spool\n");
		return 2;
	}
	rc = sp_spool_open(&spool, argv[1], &err);
	if (rc < 0) {
		fprintf(stderr, "tail: %s\n", err.msg);
		return 1;
	}
	for (;;) {
		unsigned long n = 0;

		while ((rc = sp_spool_next(spool, &sample, &err)) > 0)
			n++;
		if (rc < 0)
			break;
		total += n;
		if (n) {
			/* Strings and modules may have moved: ask for them anew after a refresh. */
			printf("%lu samples, %zu threads, %zu modules\n", n,
			       sp_spool_n_threads(spool), sp_spool_n_modules(spool));
			fflush(stdout);
		}
		if (sp_spool_state(spool) == SP_SPOOL_WHOLE)
			break;
		rc = sp_spool_refresh(spool, &err);
		if (rc < 0)
			break;
		if (rc == 0)
			wait_a_moment();
	}
	if (rc < 0)
		fprintf(stderr, "tail: %s\n", err.msg);
	else
		printf("the end: %lu samples\n", total);
	sp_spool_close(spool);
	return rc < 0;
}
