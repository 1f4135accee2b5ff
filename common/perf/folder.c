/* The folder that `perf record --threads` leaves: `data` is a perf.data file with the header and
 * what perf wrote itself; data.0, data.1, … hold the records of one thread's ring buffers each,
 * bare and without rounds (tried with perf 6.1; tools/perf/Documentation/ of Linux has the layout
 * in perf.data-directory-format.txt). That of --kcore has `data` alone, and the kernel's image. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "perf/parse.h"
#include "perf/reader_priv.h"

#define PARTS_MAX 65536 /* perf makes at most one per CPU */

/* N of "data.N", or -1. */
static long number_of(const char *name)
{
	if (strncmp(name, "data.", 5) != 0 || !isdigit((unsigned char)name[5]))
		return -1;
	char *end;
	long n = strtol(name + 5, &end, 10);
	return *end || n >= PARTS_MAX ? -1 : n;
}

static int by_number(const void *a, const void *b)
{
	const long *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

static int list(const char *path, long **numbers, size_t *n, struct sp_err *err)
{
	size_t cap = 0;
	DIR *d = opendir(path);
	if (!d)
		return sp_err_errno(err, "cannot open %s", path);
	int rc = 0;
	for (const struct dirent *e; rc == 0 && (e = readdir(d));) {
		long number = number_of(e->d_name);
		long *slot = number < 0 ? NULL : SP_PUSH(numbers, n, &cap);
		if (slot)
			*slot = number;
		else if (number >= 0)
			rc = sp_err_nomem(err);
	}
	closedir(d);
	if (*n)
		qsort(*numbers, *n, sizeof **numbers, by_number);
	return rc;
}

/* Opening a fifo would wait for a writer. */
static int open_file(struct sp_source *s, const char *path, struct sp_chunk_pool *pool,
		     struct sp_err *err)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return sp_err_errno(err, "cannot open %s", path);
	if (!S_ISREG(st.st_mode))
		return sp_err_set(err, SP_ERR_INVALID, 0, "cannot read %s: not a regular file",
				  path);
	return sp_source_open(s, path, pool, err);
}

static int open_part(struct sp_reader *r, const char *folder, long number, struct sp_err *err)
{
	char path[4096];
	struct part *p = calloc(1, sizeof *p);
	if (!p)
		return sp_err_nomem(err);
	r->parts[r->n_parts++] = p;
	p->src = (struct sp_source){.fd = -1, .map_fd = -1, .trim.fd = -1};
	if (snprintf(path, sizeof path, "%s/data.%ld", folder, number) >= (int)sizeof path)
		return sp_err_set(err, SP_ERR_INVALID, 0, "cannot open %s: a long name", folder);
	return open_file(&p->src, path, r->pool, err);
}

int sp_reader_open_folder(struct sp_reader *r, const char *path, struct sp_err *err)
{
	char data[4096];
	long *numbers = NULL;
	size_t n = 0;
	struct sp_err why;
	snprintf(data, sizeof data, "%s/data", path);
	int rc = open_file(&r->main.src, data, r->pool, &why);
	if (rc < 0)
		return sp_err_set(err, rc, 0, "cannot read %s: a folder, but none of perf record "
					      "--threads or --kcore: %s",
				  path, why.msg);
	rc = list(path, &numbers, &n, err);
	if (rc == 0 && n) {
		r->looked_ahead = true; /* there are no rounds */
		r->parts = calloc(n + 1, sizeof(struct part *));
		if (r->parts)
			r->parts[r->n_parts++] = &r->main;
		else
			rc = sp_err_nomem(err);
	}
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = open_part(r, path, numbers[i], err);
	free(numbers);
	return rc;
}

void sp_reader_close_folder(struct sp_reader *r)
{
	if (r->lent)
		sp_chunk_release(r->lent);
	for (size_t i = 0; i < r->n_parts; i++) {
		struct part *p = r->parts[i];
		if (p->has_head)
			sp_chunk_release(p->head.chunk);
		if (p == &r->main)
			continue;
		sp_decomp_free(p->decomp);
		sp_source_close(&p->src);
		free(p);
	}
	free(r->parts);
}

/* The next record of a part, for the merge; what ends rounds ends none here. */
static int fill_head(struct sp_reader *r, struct part *p, struct sp_err *err)
{
	uint32_t type;
	r->in = p;
	do {
		int rc = sp_reader_part_frame(r, &p->head, err);
		p->ended = rc <= 0;
		if (rc <= 0)
			return rc;
		type = sp_get32(p->head.raw);
	} while (type == SP_PERF_FINISHED_ROUND);
	p->head_time = type >= SP_PERF_HEADER_ATTR
			       ? 0
			       : sp_record_time(p->head.raw, p->head.size,
						sp_events_of(&r->ev, p->head.raw, p->head.size));
	sp_chunk_hold(p->head.chunk);
	p->has_head = true;
	return 1;
}

int sp_reader_merged_frame(struct sp_reader *r, struct frame *f, struct sp_err *err)
{
	struct part *first = NULL;
	if (r->lent)
		sp_chunk_release(r->lent);
	r->lent = NULL;
	for (size_t i = 0; i < r->n_parts; i++) {
		struct part *p = r->parts[i];
		int rc = p->has_head || p->ended ? 0 : fill_head(r, p, err);
		if (rc < 0)
			return rc;
		if (p->has_head && (!first || p->head_time < first->head_time))
			first = p;
	}
	if (!first)
		return 0;
	*f = first->head;
	first->has_head = false;
	r->lent = f->chunk;
	return 1;
}
