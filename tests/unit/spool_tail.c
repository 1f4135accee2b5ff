/* A spool that grows under its reader: sp_spool_refresh and sp_spool_sample_frames. */
#define _GNU_SOURCE
#include "spool_make.h"

#include <stdbool.h>

#include "spool/format.h"
#include "tap.h"

#define MAX_SEEN 200

/* What a reader was given, as text that does not depend on when it was read. */
struct seen {
	struct sp_spool_sample sample[MAX_SEEN];
	char text[MAX_SEEN][1000];
	size_t n;
};

static void describe(struct sp_spool *s, const struct sp_spool_sample *p, const char *comm,
		     const struct sp_spool_frame *f, size_t n, char out[1000])
{
	const struct sp_spool_thread *t = sp_spool_thread(s, p->thread);
	int at = snprintf(out, 1000, "%llu %d/%d %s %llu %d %s:",
			  (unsigned long long)p->time_ns, t->pid, t->tid, comm,
			  (unsigned long long)p->weight, (int)p->cpu,
			  sp_spool_event(s, p->event)->name);
	for (size_t i = 0; i < n && at < 900; i++) {
		const struct sp_spool_module *m = sp_spool_module(s, f[i].module);
		at += snprintf(out + at, 1000 - (size_t)at, " %u=%llx+%llx@%s", f[i].frame_id,
			       (unsigned long long)f[i].abs_ip, (unsigned long long)f[i].rel_ip,
			       m ? m->path : "-");
	}
}

static bool read_all(struct sp_spool *s, struct seen *x)
{
	struct sp_spool_sample p;
	struct sp_err err;
	int rc;
	while ((rc = sp_spool_next(s, &p, &err)) == 1 && x->n < MAX_SEEN) {
		const struct sp_spool_frame *f;
		size_t n = sp_spool_frames(s, &f);
		x->sample[x->n] = p;
		describe(s, &p, p.comm, f, n, x->text[x->n++]);
	}
	return rc == 0;
}

static bool same(const struct seen *a, const struct seen *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->text[i], b->text[i]) != 0)
			return false;
	return true;
}

static int file_of(char path[64])
{
	int fd = memfd_create("tail", MFD_CLOEXEC);
	if (fd < 0)
		abort();
	snprintf(path, 64, "/proc/self/fd/%d", fd);
	return fd;
}

static void add(int fd, const uint8_t *p, size_t n)
{
	if (write(fd, p, n) != (ssize_t)n)
		abort();
}

/* Grow the file by `step` bytes at a time, reading what can be read after each. */
static void follow(const struct sp_buf *b, size_t step, const struct seen *want)
{
	struct sp_err err = {0};
	struct sp_spool *s = NULL;
	char path[64];
	int fd = file_of(path), rc;
	static struct seen x;
	x.n = 0;
	bool ok = true, early = false, objects = true;
	for (size_t at = 0; at < b->len; at += step) {
		add(fd, b->data + at, b->len - at < step ? b->len - at : step);
		if (!s) {
			rc = sp_spool_open(&s, path, &err);
			ok = ok && (rc == 0 || rc == SP_ERR_CORRUPT);
		} else {
			ok = ok && sp_spool_refresh(s, &err) >= 0;
		}
		ok = ok && (!s || read_all(s, &x));
		early = early || (x.n && x.n < want->n);
		for (size_t i = 0; s && i < sp_spool_n_objects(s); i++)
			objects = objects && sp_spool_object(s, i)->size == 15;
		if (s && at + step < b->len)
			ok = ok && sp_spool_state(s) == SP_SPOOL_INCOMPLETE;
	}
	char name[100];
	snprintf(name, sizeof name, "grown by %zu bytes: all samples, once, in order", step);
	tap_ok(ok && s && same(&x, want), name);
	tap_ok(early || step > 1000, "and they come before the end");
	tap_ok(s && sp_spool_state(s) == SP_SPOOL_WHOLE && !*sp_spool_complaint(s) &&
		       !sp_spool_recovered_from_truncated_tail(s),
	       "and at the end it is whole");
	tap_ok(s && objects && sp_spool_n_objects(s) == 1 && sp_spool_n_execs(s) == 2 &&
		       sp_spool_n_losses(s) == 2 &&
		       sp_spool_counters(s)->v[SP_C_lost_events] == 7 &&
		       sp_spool_counters(s)->v[SP_C_samples] == MAKE_SAMPLES,
	       "with its objects, markers, losses and counters");
	bool again = s != NULL;
	for (size_t i = 0; s && i < x.n; i++) {
		const struct sp_spool_frame *f;
		char text[1000];
		size_t n = sp_spool_sample_frames(s, &x.sample[i], &f);
		const char *comm = i < 30 ? "before" : "after";
		describe(s, &x.sample[i], comm, f, n, text);
		again = again && !strcmp(text, x.text[i]);
	}
	tap_ok(again, "and the frames of every sample are the same afterwards, with their numbers");
	tap_ok(s && sp_spool_refresh(s, &err) == 0, "and nothing more is found");
	sp_spool_close(s);
	close(fd);
}

/* Another recording is appended while the first one is open. */
static void append(const struct sp_buf *b)
{
	struct sp_err err;
	struct sp_spool *s;
	char path[64];
	int fd = file_of(path);
	static struct seen x, all;
	x.n = all.n = 0;
	add(fd, b->data, b->len);
	if (sp_spool_open(&s, path, &err) < 0)
		abort();
	bool ok = read_all(s, &x) && x.n == MAKE_SAMPLES;
	struct sp_buf more = {0};
	struct sp_spool_writer *w;
	struct sp_spool_wopts opts = {.sink = buf_sink, .ctx = &more, .salt = 0x1234567890abcdef,
				      .append = true, .seq = 0, .epoch = 1};
	for (const uint8_t *p = b->data + SP_SPOOL_FILE_HEAD; p < b->data + b->len; opts.seq++)
		p += SP_SPOOL_BLOCK_HEAD + sp_get32(p + 8);
	if (sp_spool_writer_new(&w, &opts, &err) < 0 ||
	    sp_spool_put_info(w, &(struct sp_spool_info){.hostname = "host"}, &err) < 0)
		abort();
	make_samples(w);
	if (sp_spool_finish(w, NULL, &err) < 0)
		abort();
	sp_spool_writer_free(w);
	add(fd, more.data, more.len / 2);
	ok = ok && sp_spool_refresh(s, &err) == 1 && read_all(s, &x) && x.n > MAKE_SAMPLES;
	ok = ok && sp_spool_state(s) == SP_SPOOL_INCOMPLETE;
	add(fd, more.data + more.len / 2, more.len - more.len / 2);
	ok = ok && sp_spool_refresh(s, &err) == 1 && read_all(s, &x) && x.n == 2 * MAKE_SAMPLES;
	tap_ok(ok && sp_spool_state(s) == SP_SPOOL_WHOLE, "an appended recording is followed");
	bool equal = ok;
	for (size_t i = 0; i < MAKE_SAMPLES; i++)
		equal = equal && !strcmp(x.text[i], x.text[MAKE_SAMPLES + i]);
	tap_ok(equal, "and its frames have the numbers of the first one's");
	sp_spool_rewind(s);
	tap_ok(read_all(s, &all) && all.n == 2 * MAKE_SAMPLES, "rewind gives all of them again");
	if (ftruncate(fd, (off_t)b->len - 1) < 0)
		abort();
	tap_ok(sp_spool_refresh(s, &err) == SP_ERR_CORRUPT && strstr(err.msg, "shrank"),
	       "a file that shrinks is an error, which says so");
	sp_spool_close(s);
	sp_buf_deinit(&more);
	close(fd);
}

int main(void)
{
	struct sp_buf b = {0};
	struct sp_spool *s;
	struct sp_err err;
	static struct seen want;
	make_spool(&b, 1);
	if (open_bytes(&s, b.data, b.len, &err) < 0)
		abort();
	tap_ok(read_all(s, &want) && want.n == MAKE_SAMPLES, "the whole spool has all samples");
	sp_spool_close(s);
	static const size_t steps[] = {1, 7, 100, 997, 1000000};
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
		follow(&b, steps[i], &want);
	append(&b);
	sp_buf_deinit(&b);
	return tap_done();
}
