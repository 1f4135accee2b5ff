/* Addresses as names, as long as the resolver is not part of common/sym. */
#include <stdlib.h>

#include "view.h"

struct sp_resolver {
	struct sp_spool *spool;
};

int sp_resolver_new(struct sp_resolver **out, struct sp_spool *spool,
		    const struct sp_resolver_options *options, struct sp_err *err)
{
	(void)options;
	*out = malloc(sizeof **out);
	if (!*out)
		return sp_err_nomem(err);
	(*out)->spool = spool;
	return 0;
}

void sp_resolver_free(struct sp_resolver *r)
{
	free(r);
}

int sp_resolver_add(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *f,
		    struct sp_err *err)
{
	(void)r, (void)pid, (void)f, (void)err;
	return 0;
}

int sp_resolver_run(struct sp_resolver *r, struct sp_err *err)
{
	(void)r, (void)err;
	return 0;
}

const struct sp_names *sp_resolver_get(struct sp_resolver *r, int32_t pid,
				       const struct sp_spool_frame *f)
{
	struct {
		struct sp_names names;
		struct sp_name level;
		char text[300];
	} *n = calloc(1, sizeof *n);
	(void)pid;
	if (!n)
		return NULL;
	const struct sp_spool_module *m =
		f->module == SP_NONE ? NULL : sp_spool_module(r->spool, f->module);
	n->names = (struct sp_names){.levels = &n->level, .n_levels = 1};
	n->names.module = f->mode == SP_FRAME_KERNEL ? "[kernel]" : m ? view_base(m->path) : "[unknown]";
	struct out o = {.memory = true};
	out_printf(&o, "[%.200s+0x%llx]", n->names.module, (unsigned long long)f->rel_ip);
	out_char(&o, 0);
	memcpy(n->text, o.buf.data, o.buf.len);
	sp_buf_deinit(&o.buf);
	n->level.function = n->text;
	return &n->names;
}

const char *sp_resolver_module_problem(struct sp_resolver *r, uint32_t module)
{
	(void)r, (void)module;
	return NULL;
}
