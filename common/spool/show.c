/* What the public functions of a reader show. */
#include <stdlib.h>

#include "base/err.h"
#include "base/counters.h"
#include "spool/reader.h"

const char *sp_show_string(const struct sp_spool *s, uint32_t id)
{
	if (id == SP_NONE || s->str[id].len == SP_NONE)
		return "";
	return (const char *)s->bytes.data + s->str[id].at;
}

static const char *text_at(const struct sp_spool *s, size_t at)
{
	return s->bytes.data ? (const char *)s->bytes.data + at : "";
}

/* Equal files of several epochs get one number. */
static bool number_files(struct sp_spool *s)
{
	struct sp_intern seen = {0};
	struct sp_buf key = {0};
	bool ok = true;
	for (size_t i = 0; ok && i < s->n_file; i++) {
		struct sp_rfile *f = &s->file[i];
		key.len = 0;
		sp_buf_u64(&key, f->ino);
		sp_buf_u64(&key, f->gen);
		sp_buf_u64(&key, (uint64_t)f->maj << 32 | f->min);
		sp_buf_u32(&key, f->flags);
		sp_buf_u8(&key, f->id_len);
		sp_buf_add(&key, text_at(s, f->id_at), f->id_len);
		if (f->flags & SP_SPOOL_FILE_CONTENT)
			sp_buf_add(&key, text_at(s, f->content_at), SP_CONTENT_HASH_BYTES);
		sp_buf_str(&key, sp_show_string(s, f->path));
		if (f->lost)
			sp_buf_u64(&key, i); /* equal to no other */
		f->number = key.failed ? SP_NOT_FOUND
				       : sp_intern_add(&seen, key.data, key.len, NULL);
		ok = f->number != SP_NOT_FOUND;
	}
	sp_intern_deinit(&seen);
	sp_buf_deinit(&key);
	return ok;
}

/* Public numbers of frames, where several stored frames are one: copies, epochs. */
static bool number_frames(struct sp_spool *s)
{
	bool needed = s->n_epoch > 1;
	uint32_t kinds = 0;
	for (size_t i = 0; i < s->n_frame; i++)
		kinds |= 1u << s->frame[i].kind;
	needed |= kinds >> SP_FKIND_COPY & 1;
	needed |= (kinds >> SP_FKIND_ADDR & 1) && (kinds >> SP_FKIND_ANON & 1);
	if (!needed)
		return true;
	struct sp_intern seen = {0};
	s->canon = calloc(s->n_frame + 1, sizeof *s->canon);
	bool ok = s->canon != NULL;
	for (size_t i = 0; ok && i < s->n_frame; i++) {
		const struct sp_rframe *f = &s->frame[i];
		bool has_file = f->kind == SP_FKIND_FILE || f->kind == SP_FKIND_COPY;
		uint64_t key[2] = {f->off, f->kind};
		if (has_file)
			key[1] = SP_FKIND_FILE | (uint64_t)s->file[f->file].number << 8;
		else if (f->kind == SP_FKIND_ANON)
			key[1] = SP_FKIND_ADDR;
		s->canon[i] = sp_intern_add(&seen, key, sizeof key, NULL);
		ok = s->canon[i] != SP_NOT_FOUND;
	}
	s->n_canon = seen.n;
	sp_intern_deinit(&seen);
	return ok;
}

static bool make_modules(struct sp_spool *s)
{
	s->pub_module = calloc(s->n_module + 1, sizeof *s->pub_module);
	if (!s->pub_module)
		return false;
	for (size_t i = 0; i < s->n_module; i++) {
		const struct sp_rmodule *m = &s->module[i];
		struct sp_spool_module *p = &s->pub_module[i];
		*p = (struct sp_spool_module){
			.id = (uint32_t)i,
			.pid = s->set[m->set].pid,
			.origin = s->set[m->set].origin,
			.start = m->start,
			.end = m->start + m->len,
			.file_offset = m->foff,
			.path = "",
			.file = SP_NONE,
			.is_kernel = s->set[m->set].pid == -1,
		};
		if (m->file == SP_NONE)
			continue;
		const struct sp_rfile *f = &s->file[m->file];
		p->inode = f->ino;
		p->inode_generation = f->gen;
		p->dev_major = f->maj;
		p->dev_minor = f->min;
		p->build_id = f->id_len ? (const uint8_t *)text_at(s, f->id_at) : NULL;
		p->build_id_len = f->id_len;
		p->path = sp_show_string(s, f->path);
		p->file = f->number;
		p->is_kernel = p->is_kernel || (f->flags & SP_SPOOL_FILE_KERNEL);
		p->is_anon = (f->flags & SP_SPOOL_FILE_ANON) != 0;
	}
	return true;
}

static bool make_rest(struct sp_spool *s)
{
	s->pub_event = calloc(s->n_event + 1, sizeof *s->pub_event);
	s->where = calloc(s->n_frame + 1, sizeof *s->where);
	if (!s->pub_event || !s->where)
		return false;
	for (size_t i = 0; i < s->n_event; i++)
		s->pub_event[i] = (struct sp_spool_event){
			.name = sp_show_string(s, s->event[i].name),
			.weight_is_time = s->event[i].is_time,
		};
	for (size_t i = 0; i < s->n_frame; i++)
		s->where[i].set = SP_NONE - 1;
	for (size_t i = 0; i < s->n_exec; i++)
		if (s->exec[i].pub.cmdline)
			s->exec[i].pub.cmdline = text_at(s, s->exec[i].at);
	s->n_object_shown = s->n_object;
	if (s->n_object && s->object[s->n_object - 1].data.len != s->object[s->n_object - 1].total)
		s->n_object_shown--; /* its other pieces may come */
	for (size_t i = 0; i < s->n_object; i++) {
		struct sp_robject *o = &s->object[i];
		o->pub.path = text_at(s, o->path_at);
		o->pub.build_id = o->pub.build_id_len ? (const uint8_t *)text_at(s, o->id_at) : NULL;
		o->pub.data = o->data.data;
		o->pub.size = o->data.len;
	}
	const char **text[6] = {&s->info.hostname, &s->info.osrelease, &s->info.arch,
				&s->info.cmdline,  &s->info.boot_id,   &s->info.clock};
	for (unsigned i = 0; i < 6; i++)
		*text[i] = s->info_known ? text_at(s, s->info_at[i]) : "";
	s->info.version = SP_SPOOL_VERSION;
	for (uint32_t i = 0; i < s->n_set; i++)
		if (s->set[i].pid == -1 && !s->set[i].lost) {
			uint32_t *p = SP_PUSH(&s->kset, &s->n_kset, &s->cap_kset);
			if (!p)
				return false;
			*p = i;
		}
	return true;
}

/* What was shown before more blocks came. */
static void forget(struct sp_spool *s)
{
	free(s->pub_module);
	free(s->pub_event);
	free(s->canon);
	free(s->where);
	free(s->kernel_addrs);
	s->pub_module = NULL;
	s->pub_event = NULL;
	s->canon = NULL;
	s->where = NULL;
	s->kernel_addrs = NULL;
	s->n_kernel_addrs = s->n_kset = s->n_canon = 0;
	s->kernel_addrs_known = s->frames_valid = false;
}

int sp_show_make(struct sp_spool *s, struct sp_err *err)
{
	forget(s);
	if ((s->n_epoch > 1 && !number_files(s)) || !number_frames(s) || !make_modules(s) ||
	    !make_rest(s))
		return sp_err_nomem(err);
	return 0;
}

void sp_show_counters(struct sp_spool *s)
{
	struct sp_counters *c = &s->counters;
	*c = (struct sp_counters){0};
	for (size_t i = 0; i < s->n_epoch; i++) {
		const struct sp_counters *e = &s->epoch[i].counters;
		for (unsigned k = 0; k < SP_N_COUNTERS; k++) {
			bool had = sp_counter_known(c, k);
			if (!sp_counter_known(e, k))
				continue;
			if (k == SP_C_kernel_enabled || k == SP_C_maximum_ring_buffer_bytes)
				c->v[k] = e->v[k] > c->v[k] ? e->v[k] : c->v[k];
			else if (k == SP_C_minimum_ring_buffer_bytes)
				c->v[k] = had && c->v[k] < e->v[k] ? c->v[k] : e->v[k];
			else
				c->v[k] += e->v[k];
			c->known |= UINT64_C(1) << k;
		}
	}
	sp_count(c, SP_C_samples, s->info.n_samples);
	sp_count(c, SP_C_sample_events,
		 s->info.n_samples + c->v[SP_C_rejected_samples] +
			 c->v[SP_C_excluded_kernel_samples]);
	s->info.n_lost_samples = s->n_lost;
}

uint32_t sp_show_kernel_set(const struct sp_spool *s, uint32_t epoch, uint32_t thread)
{
	uint32_t origin = s->thread[thread].origin;
	for (size_t i = 0; i < s->n_kset; i++) {
		const struct sp_rset *k = &s->set[s->kset[i]];
		if (k->epoch == epoch && k->origin == origin)
			return s->kset[i];
	}
	return SP_NONE;
}

/* The module of a frame in a set: SP_NONE when it has none, SP_NONE - 1 when it was lost. */
static uint32_t find_module(const struct sp_spool *s, const struct sp_rframe *f, uint32_t set)
{
	if (set == SP_NONE)
		return SP_NONE - 1;
	uint32_t copy = 0;
	uint32_t m = s->set[set].first;
	for (; m != SP_NONE; m = s->module[m].next) {
		const struct sp_rmodule *p = &s->module[m];
		if (p->file == SP_NONE)
			return SP_NONE - 1; /* it may have been this one */
		if (f->kind == SP_FKIND_ANON) {
			if (f->off - p->start < p->len)
				return m;
		} else if (p->file == f->file && f->off - p->foff < p->len && copy++ == f->copy) {
			return m;
		}
	}
	return SP_NONE - 1;
}

static uint32_t find_kernel_module(const struct sp_spool *s, uint64_t addr, uint32_t set)
{
	uint32_t found = SP_NONE;
	for (uint32_t m = set == SP_NONE ? SP_NONE : s->set[set].first; m != SP_NONE;
	     m = s->module[m].next)
		if (s->module[m].file != SP_NONE && addr - s->module[m].start < s->module[m].len)
			found = m;
	return found;
}

static uint32_t module_of(struct sp_spool *s, uint32_t frame, uint32_t set, uint32_t kset)
{
	const struct sp_rframe *f = &s->frame[frame];
	if (f->kind == SP_FKIND_TRUNCATED || f->kind == SP_FKIND_ADDR)
		return SP_NONE;
	bool kernel = f->kind == SP_FKIND_KERNEL;
	uint32_t in = kernel ? kset : set;
	struct sp_rwhere *w = &s->where[frame];
	if (w->set != in) {
		w->set = in;
		w->module = kernel ? find_kernel_module(s, f->off, in) : find_module(s, f, in);
	}
	return w->module;
}

bool sp_load_expand(struct sp_spool *s, uint32_t stack, uint32_t set, uint32_t kset)
{
	if (s->frames_valid && s->frames_stack == stack && s->frames_set == set &&
	    s->frames_kset == kset)
		return true;
	s->frames_valid = false;
	uint32_t depth = stack == SP_NONE ? 0 : s->node[stack].depth;
	if (!sp_grow(&s->frames, &s->cap_frames, depth, sizeof *s->frames))
		return false;
	size_t n = 0;
	for (uint32_t at = stack; at != SP_NONE; at = s->node[at].parent) {
		uint32_t frame = s->node[at].frame;
		if (frame == SP_NONE || n >= depth)
			return false;
		const struct sp_rframe *f = &s->frame[frame];
		uint32_t m = module_of(s, frame, set, kset);
		if (m == SP_NONE - 1)
			return false;
		struct sp_spool_frame *out = &s->frames[n++];
		out->frame_id = s->canon ? s->canon[frame] : frame;
		out->module = m;
		out->mode = f->kind == SP_FKIND_TRUNCATED ? SP_FRAME_TRUNCATED
			    : f->kind == SP_FKIND_KERNEL  ? SP_FRAME_KERNEL
							  : SP_FRAME_USER;
		out->rel_ip = out->abs_ip = f->off;
		if (m == SP_NONE)
			continue;
		const struct sp_rmodule *p = &s->module[m];
		if (f->kind == SP_FKIND_FILE || f->kind == SP_FKIND_COPY)
			out->abs_ip = f->off - p->foff + p->start;
		else
			out->rel_ip = f->off - p->start + p->foff;
	}
	s->n_frames = n;
	s->frames_stack = stack;
	s->frames_set = set;
	s->frames_kset = kset;
	s->frames_valid = true;
	return true;
}

size_t sp_spool_frames(struct sp_spool *s, const struct sp_spool_frame **out)
{
	bool ok = sp_load_expand(s, s->cur_stack, s->cur_set, s->cur_kset);
	*out = s->frames;
	if (ok)
		return s->n_frames;
	/* Only a spool that was written wrong comes here: damage is known when a spool is opened,
	 * and sp_spool_next leaves out what it has made unknown. */
	s->state = SP_SPOOL_DAMAGED;
	sp_load_complain(s, "a stack refers to a module that is not there");
	return 0;
}

/* Dictionaries begin anew with each epoch. */
static uint32_t epoch_of_thread(const struct sp_spool *s, uint32_t thread)
{
	uint32_t epoch = (uint32_t)s->n_epoch;
	while (epoch > 1 && s->epoch[epoch - 1].thread > thread)
		epoch--;
	return epoch - 1;
}

size_t sp_spool_sample_frames(struct sp_spool *s, const struct sp_spool_sample *sample,
			      const struct sp_spool_frame **out)
{
	*out = NULL;
	if (sample->stack > s->n_node || sample->thread >= s->n_thread ||
	    (sample->maps != SP_NONE && sample->maps >= s->n_set))
		return 0;
	uint32_t epoch = epoch_of_thread(s, sample->thread);
	s->cur_stack = sample->stack - 1;
	s->cur_set = sample->maps;
	s->cur_kset = sp_show_kernel_set(s, epoch, sample->thread);
	return sp_spool_frames(s, out);
}

enum sp_spool_state sp_spool_state(const struct sp_spool *s)
{
	return s->state;
}

bool sp_spool_recovered_from_truncated_tail(const struct sp_spool *s)
{
	return s->tail_cut;
}

const char *sp_spool_complaint(const struct sp_spool *s)
{
	return s->complaint;
}

const struct sp_spool_info *sp_spool_info(const struct sp_spool *s)
{
	return &s->info;
}

const struct sp_counters *sp_spool_counters(const struct sp_spool *s)
{
	return &s->counters;
}

size_t sp_spool_n_origins(const struct sp_spool *s)
{
	return s->n_origin + 1;
}

struct sp_spool_origin sp_spool_origin(const struct sp_spool *s, uint32_t origin)
{
	if (origin == 0 || origin > s->n_origin)
		return (struct sp_spool_origin){s->info.hostname, s->info.boot_id};
	return (struct sp_spool_origin){sp_show_string(s, s->origin[origin - 1].host),
					sp_show_string(s, s->origin[origin - 1].boot)};
}

size_t sp_spool_n_modules(const struct sp_spool *s)
{
	return s->n_module;
}

const struct sp_spool_module *sp_spool_module(const struct sp_spool *s, uint32_t id)
{
	return id < s->n_module ? &s->pub_module[id] : NULL;
}

const uint8_t *sp_spool_content_hash(const struct sp_spool *s, uint32_t id)
{
	const struct sp_rfile *f = id < s->n_module && s->module[id].file != SP_NONE
					   ? &s->file[s->module[id].file]
					   : NULL;
	return f && f->flags & SP_SPOOL_FILE_CONTENT ? (const uint8_t *)text_at(s, f->content_at)
						     : NULL;
}

size_t sp_spool_n_threads(const struct sp_spool *s)
{
	return s->n_thread;
}

const struct sp_spool_thread *sp_spool_thread(const struct sp_spool *s, uint32_t id)
{
	return id < s->n_thread ? &s->thread[id].pub : NULL;
}

size_t sp_spool_n_events(const struct sp_spool *s)
{
	return s->n_event;
}

const struct sp_spool_event *sp_spool_event(const struct sp_spool *s, uint32_t index)
{
	return index < s->n_event ? &s->pub_event[index] : NULL;
}

size_t sp_spool_n_frames(const struct sp_spool *s)
{
	return s->canon ? s->n_canon : s->n_frame;
}

size_t sp_spool_n_stacks(const struct sp_spool *s)
{
	return s->n_node + 1; /* 0 is the empty stack */
}

size_t sp_spool_n_waits(const struct sp_spool *s)
{
	return s->n_wait + 1;
}

struct sp_spool_wait sp_spool_wait(const struct sp_spool *s, uint32_t id)
{
	if (!id || id > s->n_wait)
		return (struct sp_spool_wait){.waker_comm = ""};
	const struct sp_rwait *w = &s->wait[id - 1];
	return (struct sp_spool_wait){.state = w->state,
				      .waker_pid = w->waker_pid,
				      .waker_tid = w->waker_tid,
				      .waker_comm = sp_show_string(s, w->comm)};
}

/* The bits are the kernel's own, include/linux/sched.h; the words fs/proc/array.c's. TASK_NOLOAD
 * (0x400) beside TASK_UNINTERRUPTIBLE is TASK_IDLE. */
const char *sp_spool_wait_state(uint32_t state)
{
	static const struct {
		uint32_t bits;
		const char *word;
	} words[] = {{UINT32_MAX, "unknown"},
		     {0x402, "idle"},
		     {0x2, "disk sleep"},
		     {0x1000, "disk sleep"}, /* at a lock, PREEMPT_RT */
		     {0x1, "sleeping"},
		     {0x4, "stopped"},
		     {0x8, "tracing stop"},
		     {0x40, "parked"}};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if ((state & words[i].bits) == words[i].bits)
			return words[i].word;
	return "runnable";
}

size_t sp_spool_n_losses(const struct sp_spool *s)
{
	return s->n_loss;
}

const struct sp_spool_loss *sp_spool_loss(const struct sp_spool *s, size_t index)
{
	return index < s->n_loss ? &s->loss[index] : NULL;
}

size_t sp_spool_n_execs(const struct sp_spool *s)
{
	return s->n_exec;
}

const struct sp_spool_exec *sp_spool_exec(const struct sp_spool *s, size_t index)
{
	return index < s->n_exec ? &s->exec[index].pub : NULL;
}

size_t sp_spool_n_objects(const struct sp_spool *s)
{
	return s->n_object_shown;
}

const struct sp_spool_object *sp_spool_object(const struct sp_spool *s, size_t index)
{
	return index < s->n_object_shown ? &s->object[index].pub : NULL;
}

static int by_address(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

size_t sp_spool_kernel_frame_addresses(struct sp_spool *s, const uint64_t **out)
{
	if (!s->kernel_addrs_known) {
		size_t n = 0, cap = 0;
		for (size_t i = 0; i < s->n_frame; i++)
			if (s->frame[i].kind == SP_FKIND_KERNEL &&
			    sp_grow(&s->kernel_addrs, &cap, n + 1, sizeof *s->kernel_addrs))
				s->kernel_addrs[n++] = s->frame[i].off;
		if (n)
			qsort(s->kernel_addrs, n, sizeof *s->kernel_addrs, by_address);
		for (size_t i = 0; i < n; i++)
			if (!i || s->kernel_addrs[i] != s->kernel_addrs[i - 1])
				s->kernel_addrs[s->n_kernel_addrs++] = s->kernel_addrs[i];
		s->kernel_addrs_known = true;
	}
	*out = s->kernel_addrs;
	return s->n_kernel_addrs;
}

uint64_t sp_spool_timestamp_us(const struct sp_spool *s, uint64_t time_ns)
{
	return s->info.start_timestamp_us + (time_ns - s->info.first_ns) / 1000;
}

uint64_t sp_spool_good_end(const struct sp_spool *s)
{
	return s->good_end;
}

uint32_t sp_spool_next_seq(const struct sp_spool *s)
{
	return s->next_seq;
}

uint64_t sp_spool_salt(const struct sp_spool *s)
{
	return s->scan.salt;
}

size_t sp_spool_n_epochs(const struct sp_spool *s)
{
	return s->n_epoch;
}

uint64_t sp_spool_n_bad_blocks(const struct sp_spool *s)
{
	return s->n_bad;
}

uint64_t sp_spool_n_unknown_blocks(const struct sp_spool *s)
{
	return s->n_unknown;
}

uint32_t sp_spool_current_set(const struct sp_spool *s)
{
	return s->cur_set;
}

size_t sp_spool_n_sets(const struct sp_spool *s)
{
	return s->n_set;
}

size_t sp_spool_n_stages(const struct sp_spool *s)
{
	return s->n_stage;
}

const char *sp_spool_stage(const struct sp_spool *s, size_t index, const char **text)
{
	*text = text_at(s, s->stage[index].text_at);
	return text_at(s, s->stage[index].name_at);
}
