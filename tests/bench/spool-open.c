/* spool-open FILE: open a spool and look at its first sample: what a report waits for first. */
#include <stdio.h>

#include "stackpulse/spool.h"

int main(int argc, char **argv)
{
	struct sp_spool *s;
	struct sp_spool_sample first;
	struct sp_err err;
	if (argc != 2)
		return 2;
	if (sp_spool_open(&s, argv[1], &err) < 0 || sp_spool_next(s, &first, &err) < 0) {
		fprintf(stderr, "spool-open: %s\n", err.msg);
		return 1;
	}
	printf("%llu samples\n", (unsigned long long)sp_spool_info(s)->n_samples);
	sp_spool_close(s);
	return 0;
}
