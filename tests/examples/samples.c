/* samples FILE.spool: how many samples a spool holds, their frames and the modules.
 * Build: cc samples.c $(pkg-config --cflags --libs stackpulse) */
#include <stackpulse/error.h>
#include <stackpulse/spool.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct sp_spool *spool;
	struct sp_spool_sample sample;
	const struct sp_spool_frame *frames;
	struct sp_err err;
	unsigned long samples = 0, all_frames = 0;
	int more;

	if (argc != 2) {
		fprintf(stderr, "Usage: samples FILE.spool\n");
		return 2;
	}
	if (sp_spool_open(&spool, argv[1], &err) < 0) {
		fprintf(stderr, "samples: %s\n", err.msg);
		return 1;
	}
	while ((more = sp_spool_next(spool, &sample, &err)) > 0) {
		samples++;
		all_frames += sp_spool_frames(spool, &frames);
	}
	if (more < 0)
		fprintf(stderr, "samples: %s\n", err.msg);
	printf("%lu samples, %lu frames, %zu modules\n", samples, all_frames,
	       sp_spool_n_modules(spool));
	sp_spool_close(spool);
	return more < 0;
}
