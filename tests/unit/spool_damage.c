/* What happens to a spool: every cut length, every flipped bit, hostile contents. */
#define _GNU_SOURCE
#include <zstd.h>

#include "spool_make.h"
#include "spool/format.h"
#include "tap.h"

/* One sample as text, to compare with the intact spool's. */
static void sample_text(struct sp_spool *s, const struct sp_spool_sample *p, struct sp_buf *out)
{
	const struct sp_spool_thread *t = sp_spool_thread(s, p->thread);
	const struct sp_spool_frame *f;
	size_t n = sp_spool_frames(s, &f);
	sp_buf_printf(out, "%llu %d %d %s %s %llu %u", (unsigned long long)p->time_ns, t->pid,
		      t->tid, p->comm, sp_spool_event(s, p->event)->name,
		      (unsigned long long)p->weight, p->cpu);
	for (size_t i = 0; i < n; i++)
		sp_buf_printf(out, " %llx/%llx/%d/%s", (unsigned long long)f[i].abs_ip,
			      (unsigned long long)f[i].rel_ip, (int)f[i].mode,
			      f[i].module == SP_NONE ? "-" : sp_spool_module(s, f[i].module)->path);
	sp_buf_u8(out, '\n');
}

static struct sp_buf whole_text;
static size_t line_at[MAKE_SAMPLES + 1];

/* Every sample of s is one of the intact spool's, in their order; how many. -1: a wrong one. */
static int count_good(struct sp_spool *s)
{
	struct sp_spool_sample p;
	struct sp_err err;
	struct sp_buf line = {0};
	int n = 0, rc;
	uint32_t at = 0;
	while ((rc = sp_spool_next(s, &p, &err)) == 1) {
		line.len = 0;
		sample_text(s, &p, &line);
		for (; at < MAKE_SAMPLES; at++)
			if (line_at[at + 1] - line_at[at] == line.len &&
			    !memcmp(line.data, whole_text.data + line_at[at], line.len))
				break;
		if (at++ >= MAKE_SAMPLES) {
			n = -1;
			printf("# wrong: %.*s", (int)line.len, (const char *)line.data);
			break;
		}
		n++;
	}
	if (rc < 0)
		n = -1;
	sp_buf_deinit(&line);
	return n;
}

static bool counts_hold(struct sp_spool *s, int n, bool all)
{
	const struct sp_spool_info *i = sp_spool_info(s);
	return (uint64_t)n == i->n_samples &&
	       sp_spool_counters(s)->v[SP_C_samples] == (uint64_t)n &&
	       (!all || i->n_samples + i->n_lost_samples == MAKE_SAMPLES);
}

static void remember_whole(const struct sp_buf *b)
{
	struct sp_spool *s;
	struct sp_spool_sample p;
	struct sp_err err;
	if (open_bytes(&s, b->data, b->len, &err) < 0)
		abort();
	for (uint32_t i = 0; i < MAKE_SAMPLES && sp_spool_next(s, &p, &err) == 1; i++) {
		sample_text(s, &p, &whole_text);
		line_at[i + 1] = whole_text.len;
	}
	sp_spool_close(s);
}

static void cuts(const struct sp_buf *b)
{
	unsigned wrong = 0, before = 0, refused = 0;
	for (size_t n = 0; n < b->len; n++) {
		struct sp_spool *s;
		struct sp_err err = {0};
		int rc = open_bytes(&s, b->data, n, &err);
		if (rc < 0) {
			refused++;
			wrong += n >= SP_SPOOL_FILE_HEAD || !err.msg[0];
			continue;
		}
		int got = count_good(s);
		wrong += got < 0 || sp_spool_state(s) != SP_SPOOL_INCOMPLETE ||
			 !*sp_spool_complaint(s) || (unsigned)got < before ||
			 !counts_hold(s, got, false);
		before = got < 0 ? before : (unsigned)got;
		sp_spool_close(s);
	}
	tap_eq(wrong, 0, "every cut gives the samples before it and says that it is incomplete");
	tap_eq(before, MAKE_SAMPLES, "a cut inside the end record keeps all samples");
	tap_eq(refused, SP_SPOOL_FILE_HEAD, "only what has no file header is refused");
}

static void flips(struct sp_buf *b)
{
	unsigned wrong = 0, silent = 0, lost = 0;
	for (size_t bit = 0; bit < b->len * 8; bit++) {
		struct sp_spool *s;
		struct sp_err err = {0};
		b->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (open_bytes(&s, b->data, b->len, &err) == 0) {
			int got = count_good(s);
			silent += sp_spool_state(s) == SP_SPOOL_WHOLE || !*sp_spool_complaint(s);
			wrong += got < 0 || !counts_hold(s, got, false);
			lost += got < (int)MAKE_SAMPLES;
			sp_spool_close(s);
		} else {
			wrong++;
		}
		b->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	tap_eq(silent, 0, "every flipped bit is noticed and said");
	tap_eq(wrong, 0, "no flipped bit gives a wrong sample, and the counts tell what is lost");
	tap_ok(lost > 0, "some samples were lost by that");
}

/* A damaged block in the middle: later samples whose definitions are whole are still given. */
static void later_blocks(struct sp_buf *b)
{
	struct sp_block h;
	unsigned data_blocks = 0, later = 0, conserved = 0;
	for (size_t at = SP_SPOOL_FILE_HEAD; at + SP_SPOOL_BLOCK_HEAD <= b->len;
	     at += SP_SPOOL_BLOCK_HEAD + h.stored) {
		if (!sp_block_decode(&h, b->data + at))
			break;
		if (h.type != SP_BLOCK_DATA)
			continue;
		data_blocks++;
		struct sp_spool *s;
		struct sp_err err;
		b->data[at + SP_SPOOL_BLOCK_HEAD + h.stored / 2] ^= 1;
		if (open_bytes(&s, b->data, b->len, &err) == 0) {
			int got = count_good(s);
			later += got >= 0 && sp_spool_state(s) == SP_SPOOL_DAMAGED;
			conserved += counts_hold(s, got, true);
			sp_spool_close(s);
		}
		b->data[at + SP_SPOOL_BLOCK_HEAD + h.stored / 2] ^= 1;
	}
	tap_eq(data_blocks, 6, "the spool has six blocks of samples");
	tap_eq(later, data_blocks, "each may be damaged");
	tap_eq(conserved, data_blocks, "samples given and lost are all samples");
}

/* A block as a hostile writer would make it. */
static void add_block(struct sp_buf *b, uint8_t type, const void *raw, size_t n, uint32_t seq)
{
	struct sp_block h = {.type = type,
			     .raw = (uint32_t)n,
			     .stored = (uint32_t)n,
			     .seq = seq,
			     .salt = 7,
			     .crc = sp_spool_crc(raw, n)};
	uint8_t head[SP_SPOOL_BLOCK_HEAD];
	sp_block_encode(head, &h);
	sp_buf_add(b, head, sizeof head);
	sp_buf_add(b, raw, n);
}

static void add_head(struct sp_buf *b)
{
	uint8_t head[SP_SPOOL_FILE_HEAD];
	b->len = 0;
	sp_spool_head_encode(head, 7);
	sp_buf_add(b, head, sizeof head);
	add_block(b, SP_BLOCK_INFO, "", 0, 0);
}

/* DATA blocks whose head claims anything: opened or refused, never trusted. */
static void hostile_heads(void)
{
	static const uint64_t claims[] = {1,          1000,       1u << 18,
					  UINT32_MAX, UINT64_MAX, UINT64_MAX / 2};
	unsigned bad = 0, tried = 0;
	for (unsigned field = 0; field < SP_HEAD_N; field++) {
		for (unsigned c = 0; c < sizeof claims / sizeof *claims; c++) {
			struct sp_buf b = {0}, head = {0}, raw = {0};
			for (unsigned i = 0; i < SP_HEAD_N; i++)
				sp_buf_uleb(&head, i == field                ? claims[c]
						   : i == SP_HEAD_RESOLUTION ? 1
						   : i == SP_HEAD_FRAME      ? 1
									     : 0);
			sp_col_bytes(&raw, SP_COL_HEAD, head.data, head.len);
			add_head(&b);
			add_block(&b, SP_BLOCK_DATA, raw.data, raw.len, 1);
			struct sp_spool *s;
			struct sp_spool_sample p;
			struct sp_err err;
			int rc = open_bytes(&s, b.data, b.len, &err);
			if (rc == 0) {
				while (sp_spool_next(s, &p, &err) == 1)
					bad++; /* nothing can come of nothing */
				bad += sp_spool_state(s) == SP_SPOOL_WHOLE;
				sp_spool_close(s);
			}
			tried++;
			sp_buf_deinit(&b);
			sp_buf_deinit(&head);
			sp_buf_deinit(&raw);
		}
	}
	tap_eq(tried, SP_HEAD_N * 6, "every field of a block's head claims six things");
	tap_eq(bad, 0, "and none of them makes a sample");
}

/* A block of one thread and one event: what it says of its samples. */
struct says {
	const char *name;
	uint32_t n_frames, n_nodes, n_samples, in_group;
	uint32_t kind, node, pops, pushes, frame,
		wait; /* of the first sample; the others: the same stack */
	bool good;
};

/* And besides, unless 0. */
struct says_more {
	uint32_t then;     /* kind of the second sample, which pushes as many as the first */
	uint64_t in_group; /* samples in a second group */
	uint32_t no_waits; /* lost with the block that defined them */
};

static void put_says(struct sp_buf *raw, const struct says *y, const struct says_more *more)
{
	const uint64_t fields[SP_HEAD_N] = {
		[SP_HEAD_RESOLUTION] = 1,
		[SP_HEAD_N_STRINGS] = 1,
		[SP_HEAD_N_EVENTS] = 1,
		[SP_HEAD_N_THREADS] = 1,
		[SP_HEAD_FRAME] = 1,
		[SP_HEAD_N_FRAMES] = y->n_frames,
		[SP_HEAD_N_NODES] = y->n_nodes,
		[SP_HEAD_N_SAMPLES] = y->n_samples,
		[SP_HEAD_N_GROUPS] = more->in_group ? 2 : 1,
		[SP_HEAD_WAIT] = more->no_waits,
	};
	uint32_t n_pushing = more->then ? 2 : 1;
	const struct {
		enum sp_column id;
		uint32_t value, times, zeros;
		uint64_t last; /* unless 0 */
	} columns[] = {
		{SP_COL_STR_LEN, 1, 1, 0, 0},
		{SP_COL_FRAME_KIND, SP_FKIND_ADDR, y->n_frames, 0, 0},
		{SP_COL_GRP_N, y->in_group, 1, 0, more->in_group},
		{SP_COL_GRP_WEIGHT, 1, 1, 0, 2},
		{SP_COL_S_KIND, y->kind, 1, y->n_samples - n_pushing, more->then},
		{SP_COL_S_NODE, y->node, 1, 0, 0},
		{SP_COL_S_POP, y->pops, 1, 0, 0},
		{SP_COL_S_PUSH, y->pushes, n_pushing, 0, 0},
		{SP_COL_S_FRAME, y->frame, y->pushes * n_pushing, 0, 0},
		{SP_COL_S_WAIT, y->wait, 1, y->n_samples - 1, 0},
	};
	struct sp_buf head = {0};
	for (unsigned i = 0; i < SP_HEAD_N; i++)
		sp_buf_uleb(&head, fields[i]);
	sp_col_bytes(raw, SP_COL_HEAD, head.data, head.len);
	sp_buf_deinit(&head);
	for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
		struct sp_col_out c = {0};
		for (uint32_t k = 0; k < columns[i].times; k++)
			sp_col_push(&c, columns[i].value);
		for (uint32_t k = 0; k < columns[i].zeros; k++)
			sp_col_push(&c, 0);
		if (columns[i].last)
			sp_col_push(&c, columns[i].last);
		sp_col_flush(raw, columns[i].id, &c);
		sp_col_out_deinit(&c);
		if (i == 0)
			sp_col_bytes(raw, SP_COL_STR_BYTES, "x", 1);
	}
}

static void check_says(const struct says *y, const struct says_more *more)
{
	struct sp_buf b = {0}, raw = {0};
	struct sp_spool *s;
	struct sp_spool_sample p;
	struct sp_err err = {0};
	uint64_t n = 0;
	put_says(&raw, y, more);
	add_head(&b);
	add_block(&b, SP_BLOCK_DATA, raw.data, raw.len, 1);
	int rc = open_bytes(&s, b.data, b.len, &err);
	bool damaged = rc < 0;
	if (rc == 0) {
		while (sp_spool_next(s, &p, &err) == 1)
			/* No wait is known, and all have one time: the groups stay in order. */
			n += p.wait == 0 && p.weight == (n < y->in_group ? 1 : 2);
		damaged = sp_spool_state(s) == SP_SPOOL_DAMAGED;
		sp_spool_close(s);
	}
	if (!tap_ok(n == (y->good ? y->n_samples : 0) && damaged == !y->good,
		    y->name))
		printf("# %llu samples, %s\n", (unsigned long long)n, err.msg);
	sp_buf_deinit(&b);
	sp_buf_deinit(&raw);
}

/* Stacks that refer to what is not there, and more than a block may hold. Frame 1 is the marker. */
static void hostile_stacks(void)
{
	enum { SAME = SP_SKIND_SAME, NODE = SP_SKIND_NODE, POP = SP_SKIND_POP, NEW = SP_SKIND_NEW };
	static const struct says all[] = {
		{"a new stack", 0, 1, 1, 1, NEW, 0, 0, 1, 1, 0, true},
		{"of a new frame", 1, 1, 1, 1, NEW, 0, 0, 1, 0, 0, true},
		{"the empty stack", 0, 0, 1, 1, NODE, 0, 0, 0, 0, 0, true},
		{"a node that is not there", 0, 0, 1, 1, NODE, 1, 0, 0, 0, 0, false},
		{"a stack upon such a node", 0, 1, 1, 1, NEW, 1, 0, 1, 1, 0, false},
		{"a frame that is not there", 0, 1, 1, 1, NEW, 0, 0, 1, 2, 0, false},
		{"a new frame too many", 0, 1, 1, 1, NEW, 0, 0, 1, 0, 0, false},
		{"a frame that no stack has", 1, 1, 1, 1, NEW, 0, 0, 1, 1, 0, false},
		{"fewer nodes than are claimed", 0, 2, 1, 1, NEW, 0, 0, 1, 1, 0, false},
		{"more nodes than are claimed", 0, 1, 1, 1, NEW, 0, 0, 2, 1, 0, false},
		{"pops off nothing", 0, 1, 1, 1, POP, 0, 1, 1, 1, 0, false},
		{"an unknown kind", 0, 0, 1, 1, 9, 0, 0, 0, 0, 0, false},
		{"a wait that is not there", 0, 1, 1, 1, NEW, 0, 0, 1, 1, 1, false},
		{"a group of fewer samples", 0, 1, 2, 1, NEW, 0, 0, 1, 1, 0, false},
		{"as deep as may be", 0, SP_SPOOL_MAX_DEPTH, 1, 1, NEW, 0, 0, SP_SPOOL_MAX_DEPTH, 1,
		 0, true},
		{"one deeper", 0, SP_SPOOL_MAX_DEPTH + 1, 1, 1, NEW, 0, 0, SP_SPOOL_MAX_DEPTH + 1,
		 1, 0, false},
		{"as many samples as may be", 0, 1, SP_SPOOL_MAX_SAMPLES, SP_SPOOL_MAX_SAMPLES, NEW,
		 0, 0, 1, 1, 0, true},
		{"one more", 0, 1, SP_SPOOL_MAX_SAMPLES + 1, SP_SPOOL_MAX_SAMPLES + 1, NEW, 0, 0, 1,
		 1, 0, false},
	};
	static const struct {
		struct says says;
		struct says_more more;
	} odd[] = {
		{{"groups that hold 2^64 + 3", 0, 1, 3, 4, NEW, 0, 0, 1, 1, 0, false},
		 {.in_group = UINT64_MAX}},
		{{"two groups of one time", 0, 1, 5, 3, NEW, 0, 0, 1, 1, 0, true}, {.in_group = 2}},
		{{"a wait that was lost", 0, 1, 1, 1, NEW, 0, 0, 1, 1, 1, true}, {.no_waits = 1}},
		{{"as many pops as may be", 0, 2, 2, 2, NEW, 0, SP_SPOOL_MAX_POPS, 1, 1, 0, true},
		 {.then = POP}},
		{{"one pop more", 0, 2, 2, 2, NEW, 0, SP_SPOOL_MAX_POPS + 1, 1, 1, 0, false},
		 {.then = POP}},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		check_says(&all[i], &(struct says_more){0});
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
		check_says(&odd[i].says, &odd[i].more);
}

static void bombs(void)
{
	struct sp_buf b = {0}, zeros = {0};
	sp_buf_zero(&zeros, SP_SPOOL_RAW_MAX);
	uint8_t packed[8192];
	size_t n = ZSTD_compress(packed, sizeof packed, zeros.data, zeros.len, 19);
	struct sp_block h = {.type = SP_BLOCK_DATA,
			     .flags = SP_BLOCK_ZSTD,
			     .raw = SP_SPOOL_RAW_MAX,
			     .stored = (uint32_t)n,
			     .seq = 1,
			     .salt = 7,
			     .crc = sp_spool_crc(packed, n)};
	uint8_t head[SP_SPOOL_BLOCK_HEAD];
	sp_block_encode(head, &h);
	tap_ok(!sp_block_decode(&h, head), "a block that expands too far is refused by its header");
	add_head(&b);
	h.raw = UINT32_MAX;
	h.stored = UINT32_MAX;
	sp_block_encode(head, &h);
	sp_buf_add(&b, head, sizeof head);
	struct sp_spool *s;
	struct sp_err err;
	tap_ok(open_bytes(&s, b.data, b.len, &err) == 0 && sp_spool_state(s) == SP_SPOOL_DAMAGED,
	       "a block of 4 GiB is damage, not an allocation");
	sp_spool_close(s);
	sp_buf_deinit(&b);
	sp_buf_deinit(&zeros);
}

static void other_versions(void)
{
	struct sp_buf b = {0};
	struct sp_spool *s;
	struct sp_err err = {0};
	add_head(&b);
	sp_put16(b.data + 8, 9);
	sp_put32(b.data + 28, sp_spool_crc(b.data, 28));
	tap_ok(open_bytes(&s, b.data, b.len, &err) == SP_ERR_UNSUPPORTED && strstr(err.msg, "9") &&
		       strstr(err.msg, "1"),
	       "another version is refused, naming both");
	add_head(&b);
	add_block(&b, 77, "later", 5, 1);
	add_block(&b, SP_BLOCK_END, "", 0, 2);
	tap_ok(open_bytes(&s, b.data, b.len, &err) == 0 && sp_spool_state(s) == SP_SPOOL_WHOLE,
	       "an unknown block is skipped");
	sp_spool_close(s);
	add_head(&b);
	add_block(&b, SP_BLOCK_END, "", 0, 3);
	tap_ok(open_bytes(&s, b.data, b.len, &err) == 0 && sp_spool_state(s) == SP_SPOOL_DAMAGED,
	       "missing blocks are noticed by the sequence number");
	sp_spool_close(s);
	static const char text[] = "#!/bin/sh\nthis is no spool at all, only a text file\n";
	tap_ok(open_bytes(&s, text, sizeof text, &err) == SP_ERR_CORRUPT &&
		       strstr(err.msg, "not a spool"),
	       "a text file is no spool");
	sp_buf_deinit(&b);
}

/* The file loses its end between opening and reading: an error, after what could be read. */
static void shrinking(const struct sp_buf *b)
{
	char path[64];
	struct sp_spool *s;
	struct sp_spool_sample p;
	struct sp_err err = {0};
	int fd = memfd_create("spool-test", MFD_CLOEXEC), rc, n = 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (fd < 0 || write(fd, b->data, b->len) != (ssize_t)b->len ||
	    sp_spool_open(&s, path, &err) < 0 || ftruncate(fd, (off_t)(b->len / 2)) < 0)
		abort();
	while ((rc = sp_spool_next(s, &p, &err)) == 1)
		n++;
	tap_ok(rc < 0 && n < (int)MAKE_SAMPLES && strstr(err.msg, "shrank"),
	       "a file that shrinks under the reader is an error");
	sp_spool_close(s);
	close(fd);
}

int main(void)
{
	struct sp_buf b = {0};
	make_spool(&b, 1);
	shrinking(&b);
	remember_whole(&b);
	cuts(&b);
	flips(&b);
	later_blocks(&b);
	hostile_heads();
	hostile_stacks();
	bombs();
	other_versions();
	sp_buf_deinit(&b);
	sp_buf_deinit(&whole_text);
	return tap_done();
}
