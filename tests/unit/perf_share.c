/* Records beside the pipe: the offer, what is read out of it, and what is refused. Locks are between
 * processes: the reader is a child. */
#define _GNU_SOURCE
#include "perf_read.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf/share.h"

enum { FAULTLESS, BEYOND, NOWHERE };

struct child {
	pid_t pid;
	int to, from; /* the stream, and what the reader tells */
};

/* The child: read a stream from standard input, tell that the offer is made, then what was read. */
static int read_and_tell(int to, unsigned flags)
{
	struct sp_reader *r = NULL;
	struct sp_err err = {0};
	if (sp_reader_open(&r, NULL, flags, &err) < 0 || write(to, "r", 1) != 1)
		return 1;
	const char *seen = times(r);
	char text[1000];
	int n = snprintf(text, sizeof text, "%s; %s", seen, sp_reader_complaint(r));
	sp_reader_close(r); /* the memory is let go of before the parent looks */
	return write(to, text, (size_t)n) != n;
}

static struct child reader_start(unsigned flags, const struct enc *head)
{
	int stream[2], told[2];
	char ready;
	struct child c = {.pid = -1};
	if (pipe(stream) < 0 || pipe(told) < 0)
		return c;
	c.pid = fork();
	if (c.pid == 0) {
		dup2(stream[0], STDIN_FILENO);
		close(stream[0]);
		close(stream[1]);
		close(told[0]);
		_exit(read_and_tell(told[1], flags));
	}
	close(stream[0]);
	close(told[1]);
	c.to = stream[1];
	c.from = told[0];
	tap_ok(write(c.to, head->b.data, head->b.len) == (ssize_t)head->b.len &&
		       read(c.from, &ready, 1) == 1,
	       "a reader begins");
	return c;
}

static const char *reader_end(struct child *c)
{
	static char text[1000];
	size_t at = 0;
	ssize_t n;
	int status;
	close(c->to);
	while ((n = read(c->from, text + at, sizeof text - 1 - at)) > 0)
		at += (size_t)n;
	text[at] = 0;
	close(c->from);
	return waitpid(c->pid, &status, 0) == c->pid && status == 0 ? text : NULL;
}

static void send_comm(const struct child *c, uint64_t time)
{
	struct enc e = {0};
	e_comm(&e, id_a, time, "piped");
	tap_ok(write(c->to, e.b.data, e.b.len) == (ssize_t)e.b.len, "a record through the pipe");
	sp_buf_deinit(&e.b);
}

static void send_place(const struct child *c, struct sp_ext_shared x)
{
	uint8_t rec[SP_EXT_MIN];
	sp_ext_shared_encode(rec, &x);
	tap_ok(write(c->to, rec, sizeof rec) == (ssize_t)sizeof rec, "a place through the pipe");
}

/* Two records into a slot: how many bytes. */
static uint32_t fill(struct sp_share *s, int slot, uint32_t offset, uint64_t time)
{
	struct enc e = {0};
	e_comm(&e, id_a, time, "shared");
	e_comm(&e, id_a, time + 1, "shared too");
	memcpy(sp_share_slot(s, slot) + offset, e.b.data, e.b.len);
	uint32_t n = (uint32_t)e.b.len;
	sp_buf_deinit(&e.b);
	return n;
}

static int n_free(struct sp_share *s)
{
	int n = 0;
	while (sp_share_take(s) >= 0)
		n++;
	return n;
}

static void test_order(const struct enc *head)
{
	struct child c = reader_start(SP_READER_SHARE, head);
	struct sp_share *s = sp_share_find(c.to);
	if (!tap_ok(s != NULL, "the writer finds what its pipe's reader offers"))
		return;
	int slot = sp_share_take(s);
	send_comm(&c, 1);
	uint32_t n = fill(s, slot, 0, 2);
	sp_share_hold(s, slot);
	send_place(&c, (struct sp_ext_shared){.slot = (uint32_t)slot, .bytes = n});
	send_comm(&c, 4);
	/* In the same slot, behind what the reader may have in hand. */
	uint32_t more = fill(s, slot, n, 5);
	sp_share_hold(s, slot);
	send_place(&c, (struct sp_ext_shared){.slot = (uint32_t)slot, .offset = n, .bytes = more});
	send_comm(&c, 7);
	tap_str(reader_end(&c), "1 2 3 4 5 6 7; ",
		"records of the pipe and of the memory come in the stream's order");
	tap_eq((uint64_t)n_free(s), SP_SHARE_SLOTS - 1, "what the writer holds is not free");
	sp_share_drop(s, slot);
	tap_eq((uint64_t)n_free(s), 1, "what neither end holds is free again, after the reader too");
	sp_share_leave(s);
}

/* Streams that our writers do not make. */
static void test_wrong(const struct enc *head, int which, const char *want, const char *name)
{
	struct child c = reader_start(SP_READER_SHARE, head);
	struct sp_share *s = sp_share_find(c.to);
	if (!tap_ok(s != NULL, "an offer is found"))
		return;
	int slot = sp_share_take(s);
	uint32_t n = fill(s, slot, 0, 2);
	sp_share_hold(s, slot);
	struct sp_ext_shared x = {.slot = (uint32_t)slot, .bytes = n};
	if (which == BEYOND)
		x.bytes = n - 8;
	else if (which == NOWHERE)
		x = (struct sp_ext_shared){.slot = SP_SHARE_SLOTS, .bytes = 8};
	send_comm(&c, 1);
	send_place(&c, x);
	if (which != BEYOND) /* nobody may be there to read on */
		send_comm(&c, 9);
	const char *got = reader_end(&c);
	if (!tap_ok(got && strstr(got, want) == got, name))
		printf("# got '%s', want '%s…'\n", got ? got : "(null)", want);
	sp_share_leave(s);
}

static void test_no_offer(const struct enc *head)
{
	struct child c = reader_start(0, head);
	tap_ok(sp_share_find(c.to) == NULL, "a reader that offers nothing is written to as ever");
	send_place(&c, (struct sp_ext_shared){.bytes = 8});
	send_comm(&c, 3);
	const char *got = reader_end(&c);
	tap_ok(got && strstr(got, "3; the records at offset ") == got,
	       "and a place in memory that it did not offer is damage");
	int file = open("/dev/null", O_RDWR | O_CLOEXEC);
	tap_ok(sp_share_offer(file) == NULL && sp_share_find(file) == NULL,
	       "only pipes have memory beside them");
	close(file);
}

/* What a lock names need not be such memory. */
static void test_other_memory(void)
{
	int stream[2], other[2], go[2], ready[2];
	char one;
	if (pipe(stream) < 0 || pipe(other) < 0 || pipe(go) < 0 || pipe(ready) < 0)
		return;
	pid_t pid = fork();
	if (pid == 0) {
		struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
		close(go[1]);
		bool good = sp_share_offer(other[0]) && write(ready[1], "y", 1) == 1;
		/* The place of the one pipe's offer, on the other; then a descriptor that is none. */
		for (int i = 0; good && i < 2; i++)
			good = read(go[0], &l.l_start, sizeof l.l_start) == sizeof l.l_start &&
			       fcntl(stream[0], F_SETLK, &l) == 0 && write(ready[1], "y", 1) == 1;
		_exit(read(go[0], &one, 1) != 0 || !good); /* the locks hold until then */
	}
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	tap_ok(read(ready[0], &one, 1) == 1 && fcntl(other[1], F_GETLK, &l) == 0 &&
		       l.l_type == F_RDLCK,
	       "a reader offers memory to another pipe");
	tap_ok(sp_share_find(stream[1]) == NULL, "which is no offer to this one");
	tap_ok(write(go[1], &l.l_start, sizeof l.l_start) == sizeof l.l_start &&
		       read(ready[0], &one, 1) == 1 && sp_share_find(stream[1]) == NULL,
	       "even if it says so");
	l.l_start -= 1;
	tap_ok(write(go[1], &l.l_start, sizeof l.l_start) == sizeof l.l_start &&
		       read(ready[0], &one, 1) == 1 && sp_share_find(stream[1]) == NULL,
	       "and what is no such memory is not used");
	struct sp_share *s = sp_share_find(other[1]);
	tap_ok(s != NULL, "while the offer itself stands");
	sp_share_leave(s);
	close(go[1]);
	int status;
	tap_ok(waitpid(pid, &status, 0) == pid && status == 0, "and its reader ends well");
	for (int i = 0; i < 2; i++) {
		close(stream[i]);
		close(other[i]);
		close(ready[i]);
	}
	close(go[0]);
}

int main(void)
{
	struct enc head = {0};
	head_one(&head);
	test_order(&head);
	test_wrong(&head, FAULTLESS, "1 2 3 9; ", "a stream without fault");
	test_wrong(&head, BEYOND, "1 2; ", "a record beyond the bytes that were named ends the reading");
	test_wrong(&head, NOWHERE, "1 9; the records at offset ",
		   "a place that there is not is damage, and reading goes on");
	test_no_offer(&head);
	test_other_memory();
	sp_buf_deinit(&head.b);
	return tap_done();
}
