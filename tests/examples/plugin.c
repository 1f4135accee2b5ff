/* plugin FILE.spool: a symbolizer of one's own. This one stands in front of the built-in one: it
 * lets that name the addresses and counts them by source file; one with a symbol server of its own
 * would look there first.
 * Build: cc plugin.c $(pkg-config --cflags --libs stackpulse) */
#include <stackpulse/spool.h>
#include <stackpulse/symbolize.h>
#include <stdio.h>
#include <stdlib.h>

struct counter { /* what the factory's ctx points to */
	struct sp_native_factory builtin;
	unsigned long modules, asked, named, with_line;
};

struct plugin {
	struct sp_native_symbolizer base; /* first: the library knows only this */
	struct sp_native_symbolizer *inner;
	struct counter *counter;
};

static int set_modules(struct sp_native_symbolizer *self, const struct sp_native_module *modules,
		       size_t n, struct sp_err *err)
{
	struct plugin *p = (struct plugin *)self;

	for (size_t i = 0; i < n; i++) /* its address as linked: sp_image_base_svma */
		p->counter->modules += modules[i].has_image_base;
	return p->inner->set_modules(p->inner, modules, n, err);
}

static int symbolize_one(struct sp_native_symbolizer *self, uint64_t avma, struct sp_symbols *out,
			 struct sp_err *err)
{
	struct plugin *p = (struct plugin *)self;
	int rc = p->inner->symbolize_one(p->inner, avma, out, err);

	p->counter->asked++;
	if (rc > 0) {
		p->counter->named++;
		p->counter->with_line += out->levels[0].line > 0;
	}
	return rc;
}

static void plugin_free(struct sp_native_symbolizer *self)
{
	struct plugin *p = (struct plugin *)self;

	p->inner->free(p->inner);
	free(p);
}

static int make(void *ctx, int32_t pid, struct sp_native_symbolizer **out, struct sp_err *err)
{
	struct plugin *p = calloc(1, sizeof *p);
	struct counter *c = ctx;

	if (!p)
		return SP_ERR_NOMEM;
	p->base = (struct sp_native_symbolizer){set_modules, symbolize_one, plugin_free};
	p->counter = c;
	int rc = c->builtin.make(c->builtin.ctx, pid, &p->inner, err);
	if (rc < 0) {
		free(p);
		return rc;
	}
	*out = &p->base;
	return 0;
}

int main(int argc, char **argv)
{
	struct counter c = {.builtin = sp_native_factory_builtin(NULL)};
	struct sp_native_factory factory = {.make = make, .ctx = &c};
	struct sp_resolver_options options = {.native = &factory};
	const struct sp_resolved_frame *const *frames;
	struct sp_resolver *resolver;
	struct sp_spool *spool;
	struct sp_spool_sample sample;
	struct sp_err err;
	int rc;

	if (argc != 2) {
		fprintf(stderr, "Usage: plugin FILE.spool\n");
		return 2;
	}
	rc = sp_spool_open(&spool, argv[1], &err);
	if (rc < 0) {
		fprintf(stderr, "plugin: %s\n", err.msg);
		return 1;
	}
	rc = sp_resolver_new(&resolver, spool, &options, &err);
	while (rc >= 0 && (rc = sp_spool_next(spool, &sample, &err)) > 0)
		rc = sp_resolver_sample(resolver, &sample, &frames, &err);
	if (rc < 0)
		fprintf(stderr, "plugin: %s\n", err.msg);
	else
		sp_resolver_free(resolver);
	sp_spool_close(spool);
	printf("%lu modules, %lu addresses asked, %lu named, %lu with a line\n", c.modules, c.asked,
	       c.named, c.with_line);
	return rc < 0;
}
