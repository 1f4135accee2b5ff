/* What the library shows: names as frames, and stacks that are remembered. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sym/resolver_impl.h"
#include "sym/runtime.h"

#define MAX_STACKS 16384 /* unless the caller says more */

static enum sp_frame_kind kind_of(const struct sp_spool_frame *f, const struct sp_names *names)
{
	if (f->mode == SP_FRAME_KERNEL)
		return SP_KIND_KERNEL;
	if (f->mode == SP_FRAME_TRUNCATED)
		return SP_KIND_UNKNOWN;
	if (names->flags & SP_NAME_PYTHON)
		return SP_KIND_PYTHON;
	bool nowhere = names->origin == SP_ORIGIN_ADDRESS && f->module == SP_NONE;
	return nowhere ? SP_KIND_UNKNOWN : SP_KIND_NATIVE;
}

static struct sp_python_frame python_frame(const struct sp_name *l)
{
	const char *file = l->file ? l->file : "~";
	const char *slash = strrchr(file, '/');
	return (struct sp_python_frame){.file_name = file,
					.base_name = slash && slash[1] ? slash + 1 : file,
					.func_name = l->function,
					.line = -1,
					.end_line = -1,
					.column = -1,
					.end_column = -1,
					.opcode = -1};
}

static struct sp_native_frame native_frame(const struct sp_spool_frame *f,
					   const struct sp_names *names, uint32_t level)
{
	const struct sp_name *l = &names->levels[level];
	bool runtime = names->flags & SP_FLAG_PYTHON_RUNTIME;
	bool named = names->origin != SP_ORIGIN_ADDRESS;
	bool eval = runtime && named && sp_is_eval_frame(l->function);
	return (struct sp_native_frame){
		.pc = f->abs_ip,
		.symbol = named ? l->function : NULL,
		.module = names->module,
		.function_offset = names->function_offset,
		.module_offset = f->mode == SP_FRAME_KERNEL ? f->abs_ip : f->rel_ip,
		.file = l->file,
		.line = l->line,
		.inline_depth = names->n_levels - 1 - level,
		.is_python_runtime = runtime,
		.is_eval_frame = eval,
		.should_ignore = runtime && !eval,
	};
}

/* What stands for a frame without a name. */
static const char *address_name(struct sp_resolver *r, const struct sp_spool_frame *f,
				const struct sp_name *l)
{
	if (f->mode == SP_FRAME_TRUNCATED)
		return "<stack truncated>";
	if (strcmp(l->function, "[unknown]") != 0)
		return l->function; /* of a file, of the kernel */
	r->text.len = 0;
	sp_buf_printf(&r->text, "<0x%" PRIx64 ">", f->abs_ip);
	return r->text.failed ? NULL
			      : sp_strpool_add(&r->names, (const char *)r->text.data, r->text.len);
}

static bool show(struct sp_resolver *r, struct res_shown *s, const struct sp_spool_frame *f,
		 const struct sp_names *names)
{
	struct sp_resolved_frame *levels = sp_arena_take(
		&r->memory, names->n_levels * sizeof *levels, _Alignof(struct sp_resolved_frame));
	if (!levels)
		return false;
	for (uint32_t i = 0; i < names->n_levels; i++) {
		struct sp_resolved_frame *out = &levels[i];
		*out = (struct sp_resolved_frame){.kind = kind_of(f, names),
						  .origin = names->origin,
						  .flags = names->flags & ~SP_NAME_PYTHON,
						  .func_name = names->levels[i].function};
		if (names->origin == SP_ORIGIN_ADDRESS && i + 1 == names->n_levels)
			out->func_name = address_name(r, f, &names->levels[i]);
		if (!out->func_name)
			return false;
		if (out->kind == SP_KIND_PYTHON)
			out->python = python_frame(&names->levels[i]);
		else
			out->native = native_frame(f, names, i);
	}
	s->levels = levels;
	s->n_levels = names->n_levels;
	s->names = names;
	return true;
}

static uint64_t frame_key(int32_t pid, const struct sp_spool_frame *f)
{
	return sp_mix64((uint64_t)(uint32_t)pid << 32 | f->frame_id) ^ sp_mix64(f->abs_ip + 1);
}

/* The frame of a process, made when it is asked first, or when it may have got a name since. Its
 * index, or SP_NOT_FOUND when memory ends. */
static uint32_t find_frame(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *f,
			   uint64_t time_ns)
{
	/* Where names depend on the time there may be several of an address. */
	const struct sp_names *names = NULL;
	if (res_jit_has_times(r, pid) && !(names = sp_resolver_get(r, pid, f, time_ns)))
		return SP_NOT_FOUND;
	uint64_t key = frame_key(pid, f);
	uint32_t first = sp_map64_get(&r->frame_of, key), at = first;
	while (at != SP_NOT_FOUND &&
	       (r->frames[at].pid != pid || r->frames[at].frame_id != f->frame_id ||
		r->frames[at].abs_ip != f->abs_ip || (names && r->frames[at].names != names)))
		at = r->frames[at].next;
	if (at != SP_NOT_FOUND && r->frames[at].round == r->frames_round)
		return at;
	if (!names && !(names = sp_resolver_get(r, pid, f, time_ns)))
		return SP_NOT_FOUND;
	if (at == SP_NOT_FOUND) {
		struct res_shown *s = SP_PUSH(&r->frames, &r->n_frames, &r->frames_cap);
		at = (uint32_t)r->n_frames - 1;
		if (!s || r->n_frames >= SP_NOT_FOUND || !sp_map64_put(&r->frame_of, key, at))
			return SP_NOT_FOUND;
		*s = (struct res_shown){
			.abs_ip = f->abs_ip, .frame_id = f->frame_id, .pid = pid, .next = first};
	}
	struct res_shown *s = &r->frames[at];
	if (s->names != names && !show(r, s, f, names))
		return SP_NOT_FOUND;
	s->round = r->frames_round;
	return at;
}

/* The frames of a stack, behind the stacks that are kept: how many there are. */
static int add_frames(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *frames,
		      size_t n, uint64_t time_ns, struct sp_err *err)
{
	size_t at = r->n_kept;
	for (size_t i = 0; i < n; i++) {
		struct sp_spool_frame f = frames[i];
		int rc = res_frame_fix(r, pid, &f, err);
		if (rc < 0)
			return rc;
		uint32_t id = find_frame(r, pid, &f, time_ns);
		if (id == SP_NOT_FOUND)
			return sp_err_nomem(err);
		const struct res_shown *s = &r->frames[id];
		if (at - r->n_kept > INT32_MAX - (size_t)s->n_levels)
			return sp_err_set(err, SP_ERR_LIMIT, 0, "a stack of too many frames");
		if (!sp_grow(&r->levels, &r->levels_cap, at + s->n_levels + 1, sizeof *r->levels))
			return sp_err_nomem(err);
		for (uint32_t k = 0; k < s->n_levels; k++)
			r->levels[at++] = &s->levels[k];
	}
	return (int)(at - r->n_kept);
}

int sp_resolver_frames(struct sp_resolver *r, int32_t pid, uint64_t time_ns,
		       const struct sp_spool_frame *frames, size_t n,
		       const struct sp_resolved_frame *const **out, struct sp_err *err)
{
	int rc = add_frames(r, pid, frames, n, time_ns ? time_ns : UINT64_MAX, err);
	if (rc >= 0)
		*out = r->levels ? r->levels + r->n_kept : NULL;
	return rc;
}

static void forget_stacks(struct sp_resolver *r)
{
	sp_map64_clear(&r->stack_of);
	r->n_stacks = 0;
	r->n_kept = 0;
}

/* A stack that is new, kept if there is room for it. */
static int add_stack(struct sp_resolver *r, const struct sp_spool_sample *sample, int32_t pid,
		     uint64_t key, const struct sp_resolved_frame *const **out, struct sp_err *err)
{
	uint32_t max = r->options.max_stacks ? r->options.max_stacks : MAX_STACKS;
	if (r->n_stacks >= max || max == SP_NONE)
		forget_stacks(r);
	const struct sp_spool_frame *frames = NULL;
	size_t n = sp_spool_sample_frames(r->spool, sample, &frames), at = r->n_kept;
	uint32_t first = sp_map64_get(&r->stack_of, key);
	int n_levels = add_frames(r, pid, frames, n, sample->time_ns, err);
	if (n_levels < 0)
		return n_levels;
	if (max != SP_NONE && !res_jit_has_times(r, pid)) {
		struct res_stack *s = SP_PUSH(&r->stacks, &r->n_stacks, &r->stacks_cap);
		if (!s || !sp_map64_put(&r->stack_of, key, (uint32_t)r->n_stacks - 1))
			return sp_err_nomem(err);
		*s = (struct res_stack){.stack = sample->stack,
					.maps = sample->maps,
					.pid = pid,
					.at = at,
					.n_levels = n_levels,
					.next = first};
		r->n_kept += (size_t)n_levels;
	}
	*out = r->levels ? r->levels + at : NULL;
	return n_levels;
}

int sp_resolver_sample(struct sp_resolver *r, const struct sp_spool_sample *sample,
		       const struct sp_resolved_frame *const **out, struct sp_err *err)
{
	if (!r->spool || sample->thread >= sp_spool_n_threads(r->spool) ||
	    sample->stack >= sp_spool_n_stacks(r->spool))
		return sp_err_set(err, SP_ERR_INVALID, 0, "the sample is not of this spool");
	int32_t pid = sp_spool_thread(r->spool, sample->thread)->pid;
	uint64_t key = ((uint64_t)sample->stack << 32 | sample->maps) ^ sp_mix64((uint32_t)pid);
	for (uint32_t i = sp_map64_get(&r->stack_of, key); i != SP_NOT_FOUND;
	     i = r->stacks[i].next) {
		const struct res_stack *s = &r->stacks[i];
		if (s->stack != sample->stack || s->maps != sample->maps || s->pid != pid)
			continue;
		*out = r->levels ? r->levels + s->at : NULL;
		return s->n_levels;
	}
	return add_stack(r, sample, pid, key, out, err);
}

void res_frames_refresh(struct sp_resolver *r)
{
	forget_stacks(r);
	res_list_refresh(r);
	r->frames_round++;
}

void res_frames_deinit(struct sp_resolver *r)
{
	sp_map64_deinit(&r->frame_of);
	free(r->frames);
	sp_map64_deinit(&r->stack_of);
	free(r->stacks);
	free(r->levels);
}
