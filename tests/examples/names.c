/* names FILE.spool: every sample as one line, its functions from the root to the leaf, in the way
 * that flame graphs are made of: what PerfSymbolizer::for_each_sample_stack is for in the Rust
 * crate. Build: cc names.c $(pkg-config --cflags --libs stackpulse) */
#include <stackpulse/spool.h>
#include <stackpulse/symbolize.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct sp_spool *spool;
	struct sp_spool_sample sample;
	struct sp_resolver *resolver;
	struct sp_err err;
	int more;

	if (argc != 2) {
		fprintf(stderr, "Usage: names FILE.spool\n");
		return 2;
	}
	if (sp_spool_open(&spool, argv[1], &err) < 0) {
		fprintf(stderr, "names: %s\n", err.msg);
		return 1;
	}
	if (sp_resolver_new(&resolver, spool, NULL, &err) < 0) {
		fprintf(stderr, "names: %s\n", err.msg);
		sp_spool_close(spool);
		return 1;
	}
	while ((more = sp_spool_next(spool, &sample, &err)) > 0) {
		const struct sp_resolved_frame *const *frames;
		int n = sp_resolver_sample(resolver, &sample, &frames, &err);

		if (n < 0) {
			more = n;
			break;
		}
		while (n-- > 0) {
			/* The interpreter's own frames say nothing beside its functions. */
			if (frames[n]->flags & SP_FLAG_HIDDEN_DEFAULT)
				continue;
			printf("%s%s", frames[n]->func_name, n ? ";" : "");
		}
		printf("\n");
	}
	if (more < 0)
		fprintf(stderr, "names: %s\n", err.msg);
	sp_resolver_free(resolver);
	sp_spool_close(spool);
	return more < 0;
}
