#define _GNU_SOURCE
#include "embed_jit.h"
#include "python.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENVIRON_MAX (1u << 20)
#define CLOCK_SLACK_NS UINT64_C(20000000) /* file times are of the last tick */

enum { PYTHON = 1, PERF_MAP = 2, JITDUMP = 3 };

static void marker(struct cap_embed_state *s, int32_t pid, uint32_t kind, bool on, uint64_t time_ns)
{
	uint8_t b[24] = {0};
	sp_put64(b, time_ns);
	sp_put32(b + 8, (uint32_t)pid);
	sp_put32(b + 12, kind);
	sp_put32(b + 16, on);
	cap_emit_ext(s->emit, SP_EXT_RUNTIME, b, sizeof b);
}

/* --- recognising Python --- */

static bool environ_says(const char *text, size_t len)
{
	static const char *const on[] = {"PYTHONPERFSUPPORT=1", "PYTHON_PERF_JIT_SUPPORT=1"};
	const char *end = text + len;
	for (const char *p = text; p < end; p += strnlen(p, (size_t)(end - p)) + 1)
		for (size_t i = 0; i < 2; i++)
			if (strnlen(p, (size_t)(end - p)) == strlen(on[i]) &&
			    !memcmp(p, on[i], strlen(on[i])))
				return true;
	return false;
}

static bool probe_python(int32_t pid)
{
	struct sp_buf b = {0};
	char path[40];
	snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
	bool yes = sp_file_read(path, ENVIRON_MAX, &b, NULL) >= 0 &&
		   cap_is_python_perf((const char *)b.data, b.len);
	b.len = 0;
	snprintf(path, sizeof path, "/proc/%d/environ", pid);
	yes = yes || (sp_file_read(path, ENVIRON_MAX, &b, NULL) >= 0 &&
		      environ_says((const char *)b.data, b.len));
	sp_buf_deinit(&b);
	return yes;
}

/* --- processes with generated code --- */

static struct cap_jit *jit_find(struct cap_embed_state *s, int32_t pid)
{
	for (size_t i = 0; i < s->n_jits; i++)
		if (s->jits[i].pid == pid)
			return &s->jits[i];
	return NULL;
}

static void jit_drop(struct cap_embed_state *s, struct cap_jit *j)
{
	if (j->root_fd >= 0)
		close(j->root_fd);
	sp_buf_deinit(&j->dump);
	*j = s->jits[--s->n_jits];
}

void cap_jits_free(struct cap_embed_state *s)
{
	while (s->n_jits)
		jit_drop(s, &s->jits[0]);
	free(s->jits);
}

/* The innermost number of NSpid: what the process itself takes for its pid. */
static int32_t ns_pid(int32_t pid)
{
	char path[40];
	struct sp_buf b = {0};
	int32_t inner = pid;
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	if (sp_file_read(path, 65536, &b, NULL) >= 0) {
		sp_buf_u8(&b, 0);
		char *at = b.failed ? NULL : strstr((char *)b.data, "\nNSpid:");
		for (at = at ? at + 7 : NULL; at && *at && *at != '\n';) {
			char *end;
			long v = strtol(at, &end, 10);
			if (end == at)
				break;
			inner = (int32_t)v;
			at = end;
		}
	}
	sp_buf_deinit(&b);
	return inner;
}

/* Its root folder, when it is another one than ours. */
static int other_root(int32_t pid)
{
	char path[40];
	struct stat ours, theirs;
	snprintf(path, sizeof path, "/proc/%d/root", pid);
	if (stat("/", &ours) < 0 || stat(path, &theirs) < 0)
		return -1;
	struct stat our_tmp = {0}, their_tmp = {0};
	char tmp[48];
	snprintf(tmp, sizeof tmp, "/proc/%d/root/tmp", pid);
	bool same_tmp = stat("/tmp", &our_tmp) == 0 && stat(tmp, &their_tmp) == 0 &&
			our_tmp.st_ino == their_tmp.st_ino && our_tmp.st_dev == their_tmp.st_dev;
	if (same_tmp)
		return -1;
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static struct cap_jit *jit_get(struct cap_embed_state *s, struct cap_proc *q)
{
	struct cap_jit *j = jit_find(s, q->pid);
	struct stat st;
	char path[40];
	if (j)
		return j;
	snprintf(path, sizeof path, "/proc/%d", q->pid);
	j = SP_PUSH(&s->jits, &s->n_jits, &s->cap_jits);
	if (!j)
		return NULL;
	j->pid = q->pid;
	j->ns_pid = ns_pid(q->pid);
	j->root_fd = other_root(q->pid);
	j->uid = stat(path, &st) == 0 ? st.st_uid : UINT32_MAX;
	return j;
}

void cap_embed_jit(struct cap_embed_state *s, struct cap_proc *q)
{
	if (s->what != CAP_EMBED_NONE)
		jit_get(s, q);
}

/* "jit-123.dump", as perf's jitdump specification has it. */
static bool is_jitdump(const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);
	const char *name = slash ? slash + 1 : path;
	size_t n = (size_t)(path + len - name);
	return n > 9 && !memcmp(name, "jit-", 4) && !memcmp(name + n - 5, ".dump", 5) &&
	       strspn(name + 4, "0123456789") == n - 9; /* it stops at the dot at the latest */
}

void cap_jit_map(struct cap_embed_state *s, struct cap_proc *q, const char *path, size_t len,
		 uint64_t time_ns)
{
	if (!q->python_probed && cap_is_python_module(path, len)) {
		q->python_probed = true;
		q->is_python = q->args_say_perf || probe_python(q->pid);
		if (q->is_python) {
			marker(s, q->pid, PYTHON, true, time_ns);
			cap_embed_jit(s, q);
		}
	}
	if (!is_jitdump(path, len) || s->what == CAP_EMBED_NONE)
		return;
	struct cap_jit *j = jit_get(s, q);
	if (!j || j->dump.len)
		return;
	sp_buf_add(&j->dump, path, len);
	sp_buf_u8(&j->dump, 0);
	marker(s, q->pid, JITDUMP, true, time_ns);
}

/* --- taking the files --- */

/* Opened below a root that is not ours without leaving it, and over no link at all. */
static int open_below(int root_fd, const char *path)
{
	struct open_how how = {
		.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	if (root_fd < 0)
		return open(path, (int)how.flags);
	return (int)syscall(SYS_openat2, root_fd, path, &how, sizeof how);
}

static bool is_acceptable(const struct cap_embed_state *s, const struct cap_jit *j,
			  const struct cap_proc *q, uint64_t end_ns, const struct stat *st)
{
	uint64_t mtime = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
	if (!S_ISREG(st->st_mode) || st->st_size == 0)
		return false;
	if (st->st_uid != 0 && st->st_uid != (j ? j->uid : geteuid()))
		return false;
	/* We look later than it happened: what was written after exec is the next image's. */
	if (end_ns > s->start_ns && mtime > s->start_wall_ns + (end_ns - s->start_ns))
		return false;
	/* A process that began in the recording has no older map: that one is a namesake's. */
	return q->begin_ns <= s->start_ns ||
	       mtime + CLOCK_SLACK_NS >= s->start_wall_ns + (q->begin_ns - s->start_ns);
}

/* Not the very file that was taken at this process's last exec. */
static bool is_news(struct cap_proc *q, enum sp_object_kind kind, const struct stat *st)
{
	uint64_t mtime = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
	if (kind != SP_OBJECT_PERF_MAP)
		return true;
	if (q->taken_ino == st->st_ino && q->taken_mtime_ns == mtime)
		return false;
	q->taken_ino = st->st_ino;
	q->taken_mtime_ns = mtime;
	return true;
}

/* When the image began: a runtime that shows only at its end was one from its beginning. */
static uint64_t began(const struct cap_embed_state *s, const struct cap_proc *q)
{
	return q->begin_ns > s->start_ns ? q->begin_ns : s->start_ns;
}

static void take(struct cap_embed_state *s, struct cap_proc *q, const struct cap_jit *j,
		 const char *path, enum sp_object_kind kind, uint64_t end_ns, bool *is_python)
{
	struct stat st;
	struct sp_buf b = {0};
	int fd = open_below(j ? j->root_fd : -1, path);
	if (fd < 0)
		return;
	bool ok = fstat(fd, &st) == 0 && is_news(q, kind, &st) &&
		  is_acceptable(s, j, q, end_ns, &st) &&
		  cap_embed_may(s, (uint64_t)st.st_size, path) &&
		  sp_fd_read_all(fd, CAP_EMBED_ONE, &b, path, NULL) >= 0;
	close(fd);
	if (!ok || !b.len) {
		sp_buf_deinit(&b);
		return;
	}
	*is_python = kind == SP_OBJECT_PERF_MAP && memmem(b.data, b.len, " py::", 5);
	struct sp_ext_object o = {.kind = kind,
				  .pid = q->pid,
				  .time_ns = s->emit->now_ns,
				  .path = path,
				  .path_len = (uint32_t)strlen(path)};
	marker(s, q->pid, kind == SP_OBJECT_PERF_MAP ? PERF_MAP : JITDUMP, true, began(s, q));
	cap_embed_add(s, &o, NULL, &b);
}

void cap_embed_end(struct cap_embed_state *s, struct cap_proc *q, uint64_t end_ns)
{
	struct cap_jit *j = jit_find(s, q->pid);
	char path[48];
	bool is_python = false, ignored = false;
	if (s->what != CAP_EMBED_NONE) {
		snprintf(path, sizeof path, "/tmp/perf-%d.map", j ? j->ns_pid : q->pid);
		take(s, q, j, path, SP_OBJECT_PERF_MAP, end_ns, &is_python);
		if (j && j->dump.len && !j->dump.failed)
			take(s, q, j, (const char *)j->dump.data, SP_OBJECT_JITDUMP, end_ns,
			     &ignored);
	}
	if (is_python && !q->is_python) {
		q->is_python = true;
		marker(s, q->pid, PYTHON, true, began(s, q));
	}
	if (j)
		jit_drop(s, j);
}

void cap_embed_off(struct cap_embed_state *s, const struct cap_proc *q, uint64_t time_ns)
{
	if (q->is_python)
		marker(s, q->pid, PYTHON, false, time_ns);
}
