#define _GNU_SOURCE
#include "stackpulse/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "spool/load.h"
#include "spool/reader.h"

void sp_load_complain(struct sp_spool *s, const char *fmt, ...)
{
	if (s->complaint[0])
		return; /* the first one is the cause */
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->complaint, sizeof s->complaint, fmt, ap);
	va_end(ap);
}

static void damaged(struct sp_spool *s, uint64_t at, const char *what, const char *why)
{
	s->state = SP_SPOOL_DAMAGED;
	s->n_bad++;
	sp_load_complain(s, "damaged at offset %llu: %s%s%s", (unsigned long long)at, what,
			 *what ? ": " : "", why);
}

static const char *const type_names[] = {
	"a block",          "an info block",  "a data block", "an event block",
	"an embedded file", "a stage's block", "the end record",
};

/* Take one sound block in. */
static int take(struct sp_spool *s, const struct sp_block *b, uint64_t at, const uint8_t *payload,
		struct sp_err *err)
{
	s->stored += SP_SPOOL_BLOCK_HEAD + b->stored;
	if (b->seq < s->next_seq) {
		damaged(s, at, "a block", "it was there before");
		return 0;
	}
	if (b->seq > s->next_seq && s->n_bad == s->n_bad_seen)
		damaged(s, at, "", "blocks before this one are missing");
	s->n_bad_seen = s->n_bad;
	s->next_seq = b->seq + 1;
	const char *why = NULL;
	switch ((enum sp_block_type)b->type) {
	case SP_BLOCK_INFO:
		why = sp_load_info(s, payload, b->raw, false);
		break;
	case SP_BLOCK_DATA:
		why = sp_load_data(s, payload, b->raw, at);
		break;
	case SP_BLOCK_EVENTS:
		why = sp_load_events(s, payload, b->raw);
		break;
	case SP_BLOCK_OBJECT:
		why = sp_load_object(s, payload, b->raw);
		break;
	case SP_BLOCK_STAGE:
		why = sp_load_stage(s, payload, b->raw);
		break;
	case SP_BLOCK_FACTS:
		why = sp_load_info(s, payload, b->raw, true);
		break;
	case SP_BLOCK_END:
		why = sp_load_end(s, payload, b->raw);
		break;
	default:
		if (b->flags & SP_BLOCK_CRITICAL)
			return sp_err_set(err, SP_ERR_UNSUPPORTED, 0,
					  "a later version's block (type %u) at offset %llu",
					  b->type, (unsigned long long)at);
		s->n_unknown++;
	}
	s->ended = b->type == SP_BLOCK_END;
	if (why) {
		damaged(s, at, type_names[b->type <= 6 ? b->type : 0], why);
		s->n_bad_seen = s->n_bad;
	}
	return 0;
}

/* Whether what was read so far is a whole spool. */
static void judge(struct sp_spool *s)
{
	bool all_ended = s->ended;
	for (size_t i = 0; i < s->n_epoch; i++)
		all_ended = all_ended && s->epoch[i].ended;
	if (s->state == SP_SPOOL_WHOLE && (!all_ended || s->tail_cut)) {
		s->state = SP_SPOOL_INCOMPLETE;
		s->open_end = true;
		sp_load_complain(s, "no end record: the recording was cut, or goes on");
	}
}

/* The blocks from s->load_at to the file's end. */
static int load_blocks(struct sp_spool *s, struct sp_err *err)
{
	s->cur = &s->first_pass;
	s->scan.at = s->load_at;
	for (;;) {
		struct sp_block b;
		uint64_t at;
		const uint8_t *payload;
		const char *why = "";
		int rc = sp_scan_next(&s->scan, &b, &at, &payload, &why, err);
		if (rc < 0)
			return rc;
		s->load_at = s->scan.at;
		if (rc == SP_SCAN_END)
			break;
		if (rc == SP_SCAN_TAIL) {
			s->tail_cut = true;
			sp_load_complain(s,
					 "cut at offset %llu, inside a block that begins at %llu",
					 (unsigned long long)s->scan.size, (unsigned long long)at);
			break;
		}
		if (rc == SP_SCAN_BAD) {
			damaged(s, at, "", why);
			continue;
		}
		rc = take(s, &b, at, payload, err);
		if (rc < 0)
			return rc;
		s->good_end = s->scan.at;
	}
	if (s->ended)
		sp_load_object_end(s);
	judge(s);
	return 0;
}

/* The file header; a damaged one does not matter as long as blocks follow. */
static int load_head(struct sp_spool *s, const char *name, struct sp_err *err)
{
	uint8_t head[SP_SPOOL_FILE_HEAD] = {0};
	ssize_t n = pread(s->scan.fd, head, sizeof head, 0);
	if (n < 0)
		return sp_err_errno(err, "cannot read %s", name);
	if (n == 0)
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "cannot read %s: it is empty", name);
	if (n < SP_SPOOL_FILE_HEAD) {
		bool begins = !memcmp(head, SP_SPOOL_MAGIC, n < 8 ? (size_t)n : 8);
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "cannot read %s: %s", name,
				  begins ? "a spool that was cut inside its first 32 bytes"
					 : "not a spool");
	}
	struct sp_err why;
	int rc = sp_spool_head_decode(head, &s->scan.salt, &why);
	s->load_at = SP_SPOOL_FILE_HEAD;
	s->scan.salt_known = rc == 0;
	if (rc == 0)
		return 0;
	struct sp_block b;
	n = pread(s->scan.fd, head, sizeof head, SP_SPOOL_FILE_HEAD);
	if (rc == SP_ERR_CORRUPT && n == sizeof head && sp_block_decode(&b, head)) {
		s->state = SP_SPOOL_DAMAGED;
		s->n_bad++;
		sp_load_complain(s, "the file header at offset 0 is damaged");
		return 0;
	}
	return sp_err_set(err, rc, 0, "cannot read %s: %s", name, why.msg);
}

/* A descriptor that can be read at any offset: the file, or a copy of what a pipe holds. */
static int open_input(const char *path, struct sp_err *err)
{
	bool is_stdin = !strcmp(path, "-");
	int fd = is_stdin ? dup(STDIN_FILENO)
			  : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0) {
		int rc = sp_err_errno(err, "cannot open %s", path);
		if (fd >= 0)
			close(fd);
		return rc;
	}
	if (S_ISREG(st.st_mode))
		return fd;
	if (!is_stdin) {
		close(fd);
		return sp_err_set(err, SP_ERR_INVALID, 0, "cannot read %s: not a regular file",
				  path);
	}
	int copy = memfd_create("spool", MFD_CLOEXEC);
	static const size_t piece = 1u << 18;
	uint8_t *buf = malloc(piece);
	int rc = copy < 0 ? sp_err_errno(err, "cannot make a memory file") : 0;
	if (!buf)
		rc = sp_err_nomem(err);
	while (rc == 0) {
		ssize_t n = sp_fd_read(fd, buf, piece, "standard input", err);
		if (n <= 0) {
			rc = (int)n;
			break;
		}
		rc = sp_fd_write(copy, buf, (size_t)n, "a memory file", err);
	}
	free(buf);
	close(fd);
	if (rc < 0 && copy >= 0)
		close(copy);
	return rc < 0 ? rc : copy;
}

static void note_time(struct sp_spool *s, uint64_t time_ns, bool first)
{
	if (first)
		s->info.first_ns = s->info.last_ns = 0;
	if (time_ns && (!s->info.first_ns || time_ns < s->info.first_ns))
		s->info.first_ns = time_ns;
	if (time_ns > s->info.last_ns)
		s->info.last_ns = time_ns;
}

/* Damaged spools only: which samples can't be given, so that the numbers are right at once. */
static int count_lost(struct sp_spool *s, struct sp_err *err)
{
	struct sp_spool_sample sample;
	uint64_t n = 0;
	int rc;
	while ((rc = sp_spool_next(s, &sample, err)) == 1)
		note_time(s, sample.time_ns, n++ == 0);
	if (rc < 0)
		return rc;
	s->n_lost_counted = s->info.n_samples - n;
	s->n_lost += s->n_lost_counted;
	s->info.n_samples = n;
	sp_spool_rewind(s);
	return 0;
}

int sp_spool_open(struct sp_spool **out, const char *path, struct sp_err *err)
{
	int fd = open_input(path, err);
	if (fd < 0)
		return fd;
	const char *name = strcmp(path, "-") ? path : "standard input";
	struct sp_spool *s = calloc(1, sizeof *s);
	if (!s) {
		close(fd);
		return sp_err_nomem(err);
	}
	s->cur = &s->first_pass;
	s->scan.fd = fd;
	s->scan.zstd = ZSTD_createDCtx();
	struct stat st;
	int rc = s->scan.zstd ? 0 : sp_err_nomem(err);
	if (rc == 0 && fstat(fd, &st) < 0)
		rc = sp_err_errno(err, "cannot stat %s", name);
	if (rc == 0) {
		s->scan.size = (uint64_t)st.st_size;
		rc = load_head(s, name, err);
	}
	if (rc == 0)
		rc = load_blocks(s, err);
	if (rc == 0)
		rc = sp_show_make(s, err);
	if (rc == 0)
		rc = sp_replay_make(s, err);
	if (rc == 0 && s->state == SP_SPOOL_DAMAGED)
		rc = count_lost(s, err);
	if (rc < 0) {
		sp_spool_close(s);
		return rc;
	}
	sp_show_counters(s);
	*out = s;
	return 0;
}

int sp_spool_refresh(struct sp_spool *s, struct sp_err *err)
{
	struct stat st;
	if (fstat(s->scan.fd, &st) < 0)
		return sp_err_errno(err, "cannot stat the spool");
	if ((uint64_t)st.st_size < s->load_at)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "cannot follow the spool: it shrank to %llu bytes, %llu were read",
				  (unsigned long long)st.st_size, (unsigned long long)s->load_at);
	/* A half block that went away again is no loss: its writer had failed. */
	bool same = (uint64_t)st.st_size == s->scan.size;
	uint64_t before = s->load_at;
	s->scan.size = (uint64_t)st.st_size;
	if (same)
		return 0;
	if (s->open_end) {
		s->open_end = false;
		s->state = SP_SPOOL_WHOLE;
		s->complaint[0] = 0;
	}
	s->tail_cut = false;
	/* Samples of a damaged spool are counted one by one only when it is opened. */
	s->info.n_samples += s->n_lost_counted;
	s->n_lost -= s->n_lost_counted;
	s->n_lost_counted = 0;
	int rc = load_blocks(s, err);
	if (rc == 0)
		rc = sp_show_make(s, err);
	if (rc == 0)
		rc = sp_replay_make(s, err);
	sp_show_counters(s);
	return rc < 0 ? rc : s->load_at != before;
}

void sp_spool_close(struct sp_spool *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_object; i++)
		sp_buf_deinit(&s->object[i].data);
	sp_scan_deinit(&s->scan);
	sp_buf_deinit(&s->bytes);
	free(s->str);
	free(s->origin);
	free(s->file);
	free(s->seg);
	free(s->event);
	free(s->thread);
	free(s->set);
	free(s->module);
	free(s->frame);
	free(s->node);
	free(s->wait);
	free(s->epoch);
	free(s->block);
	free(s->loss);
	free(s->exec);
	free(s->object);
	free(s->stage);
	free(s->pub_module);
	free(s->pub_event);
	free(s->canon);
	free(s->kernel_addrs);
	free(s->where);
	free(s->kset);
	sp_replay_deinit(s);
	free(s->frames);
	free(s);
}
