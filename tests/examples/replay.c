/* replay FILE.spool: every sample in time order with its raw frames, as `sp-sym --format=raw` shows
 * them: for programs that name addresses by themselves.
 * Build: cc replay.c $(pkg-config --cflags --libs stackpulse) */
#include <inttypes.h>
#include <stackpulse/spool.h>
#include <stdio.h>

static void print_frame(const struct sp_spool *spool, const struct sp_spool_frame *f)
{
	const struct sp_spool_module *m = sp_spool_module(spool, f->module);

	if (f->mode == SP_FRAME_TRUNCATED)
		printf("\t[truncated]\n");
	else if (f->mode == SP_FRAME_KERNEL)
		printf("\t%" PRIx64 " [kernel] %" PRIx64 "\n", f->abs_ip, f->abs_ip);
	else /* rel_ip: where in the file the code is; equal for all processes */
		printf("\t%" PRIx64 " %s %" PRIx64 "\n", f->abs_ip, m ? m->path : "-", f->rel_ip);
}

int main(int argc, char **argv)
{
	struct sp_spool *spool;
	struct sp_spool_sample sample;
	const struct sp_spool_frame *frames;
	struct sp_err err;
	int more;

	if (argc != 2) {
		fprintf(stderr, "Usage: replay FILE.spool\n");
		return 2;
	}
	if (sp_spool_open(&spool, argv[1], &err) < 0) {
		fprintf(stderr, "replay: %s\n", err.msg);
		return 1;
	}
	while ((more = sp_spool_next(spool, &sample, &err)) > 0) {
		const struct sp_spool_thread *t = sp_spool_thread(spool, sample.thread);
		const struct sp_spool_event *e = sp_spool_event(spool, sample.event);
		size_t n = sp_spool_frames(spool, &frames);

		printf("sample %" PRIu64 " %d %d %s %" PRIu64 "\n", sample.time_ns, t->pid, t->tid,
		       e->name, sample.weight);
		for (size_t i = 0; i < n; i++) /* the leaf first */
			print_frame(spool, &frames[i]);
		printf("\n");
	}
	if (more < 0)
		fprintf(stderr, "replay: %s\n", err.msg);
	else if (sp_spool_state(spool) != SP_SPOOL_WHOLE)
		fprintf(stderr, "replay: %s\n", sp_spool_complaint(spool));
	sp_spool_close(spool);
	return more < 0;
}
