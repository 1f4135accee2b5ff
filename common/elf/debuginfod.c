#define _GNU_SOURCE
#include "elf/debuginfod.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/build_id.h"
#include "base/child.h"
#include "base/file.h"

#ifdef SP_NO_DEBUGINFOD /* make DEBUGINFOD=no: the cache alone */
#define IS_BUILT false
#else
#define IS_BUILT true
#endif
#define N_HELPERS 4
#define STALL_S 10  /* without a byte, once some have come */
#define TELL_MS 200 /* between two words about what has come */
#define HEX_SIZE (2 * SP_BUILD_ID_MAX + 1)

static struct helper {
	pthread_mutex_t lock;
	int fd; /* our end of its socket; -1 = none */
} helpers[N_HELPERS];
static enum sp_debuginfod_mode mode = SP_DEBUGINFOD_NEVER;
static char cache_dir[4096];
static char complaint[300];
static atomic_bool is_dead;
static sp_debuginfod_teller *tell;

/* --- the helper --- */

/* libdebuginfod.so.1 (elfutils 0.178 and later; debuginfod_find_debuginfo(3)). */
struct debuginfod_client;
struct library {
	struct debuginfod_client *(*begin)(void);
	int (*find)(struct debuginfod_client *, const unsigned char *id, int len, char **path);
	void (*set_progress)(struct debuginfod_client *,
			     int (*)(struct debuginfod_client *, long, long));
};

/* The default action of SIGALRM is the end of the helper, whatever it waits for: names that do not
 * resolve, connections that hang. Our end sees that as silence. */
static void alarm_in(long s)
{
	struct itimerval t = {.it_value = {.tv_sec = s}};
	setitimer(ITIMER_REAL, &t, NULL);
}

/* What a helper says while it fetches; its answer is shorter. */
struct progress {
	int64_t done, total;
};
static int helper_fd = -1; /* in a helper: its end of the socket */

static int on_progress(struct debuginfod_client *client, long done, long total)
{
	static long last;
	static struct timespec told;
	struct timespec now;
	(void)client;
	/* Before the size is known, done counts the rounds of waiting. */
	if (total <= 0 || done <= 0)
		return 0;
	if (done != last)
		alarm_in(STALL_S);
	last = done;
	clock_gettime(CLOCK_MONOTONIC, &now);
	int64_t ms = (now.tv_sec - told.tv_sec) * 1000 + (now.tv_nsec - told.tv_nsec) / 1000000;
	if (ms >= TELL_MS) {
		struct progress p = {done, total};
		told = now;
		(void)!send(helper_fd, &p, sizeof p, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	return 0;
}

static void *load(struct library *l)
{
	void *so = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!so)
		return NULL;
	*(void **)&l->begin = dlsym(so, "debuginfod_begin");
	*(void **)&l->find = dlsym(so, "debuginfod_find_debuginfo");
	*(void **)&l->set_progress = dlsym(so, "debuginfod_set_progressfn");
	return l->begin && l->find && l->set_progress ? l->begin() : NULL;
}

static int32_t find(const char *hex)
{
	static struct library library;
	static struct debuginfod_client *client;
	if (!client && !(client = load(&library)))
		return ENOSYS;
	library.set_progress(client, on_progress);
	alarm_in(SP_DEBUGINFOD_PATIENCE_S);
	char *path = NULL;
	int fd = library.find(client, (const unsigned char *)hex, 0, &path);
	alarm_in(0);
	free(path);
	if (fd < 0)
		return -fd;
	close(fd);
	return 0;
}

static void serve(int fd)
{
	char hex[HEX_SIZE];
	helper_fd = fd;
	sp_folders_make(cache_dir);
	setenv("DEBUGINFOD_CACHE_PATH", cache_dir, 1);
	unsetenv("DEBUGINFOD_PROGRESS");
	for (;;) {
		ssize_t n = recv(fd, hex, sizeof hex - 1, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			_exit(0); /* the tool has ended */
		hex[n] = 0;
		int32_t answer = find(hex);
		while (send(fd, &answer, sizeof answer, MSG_NOSIGNAL) < 0 && errno == EINTR)
			;
	}
}

static void start_helper(struct helper *h)
{
	pthread_mutex_init(&h->lock, NULL);
	h->fd = sp_child_start(serve);
}

/* --- the tool --- */

static bool set_cache_dir(void)
{
	const char *dir = getenv("STACKPULSE_DEBUGINFOD_CACHE_DIR"), *below = "";
	if (!dir || !*dir) {
		dir = getenv("XDG_CACHE_HOME");
		below = "/stackpulse/debuginfod";
	}
	if (!dir || *dir != '/') {
		dir = getenv("HOME");
		below = "/.cache/stackpulse/debuginfod";
	}
	if (!dir || !*dir)
		return false;
	int n = snprintf(cache_dir, sizeof cache_dir, "%s%s", dir, below);
	return n > 0 && (size_t)n < sizeof cache_dir;
}

static void give_up(const char *why)
{
	if (atomic_exchange(&is_dead, true))
		return;
	const char *urls = getenv("DEBUGINFOD_URLS");
	snprintf(complaint, sizeof complaint,
		 "debuginfod at %.150s: %.100s; its files are left out", urls ? urls : "", why);
}

bool sp_debuginfod_start(enum sp_debuginfod_mode wanted)
{
	const char *urls = getenv("DEBUGINFOD_URLS");
	bool ask = wanted == SP_DEBUGINFOD_AUTO && urls && urls[strspn(urls, " ")];
	for (size_t i = 0; i < N_HELPERS; i++)
		helpers[i].fd = -1;
	if ((!ask && wanted != SP_DEBUGINFOD_CACHE) || !set_cache_dir())
		return false;
	mode = ask && !IS_BUILT ? SP_DEBUGINFOD_CACHE : wanted;
	if (ask && !IS_BUILT)
		give_up("this program was built without it (DEBUGINFOD=no)");
	for (size_t i = 0; IS_BUILT && ask && i < N_HELPERS; i++)
		start_helper(&helpers[i]);
	return true;
}

void sp_debuginfod_tell(sp_debuginfod_teller *fn)
{
	tell = fn;
}

static int from_cache(const char *hex, char *path, size_t path_size)
{
	struct stat st;
	int n = snprintf(path, path_size, "%s/%s/debuginfo", cache_dir, hex);
	return n > 0 && (size_t)n < path_size && stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
	       st.st_size;
}

/* The helper's answer: how many bytes it has, and what it says meanwhile is told. */
static ssize_t wait_for_answer(const struct helper *h, const char *hex, int32_t *answer)
{
	for (;;) {
		union {
			int32_t answer;
			struct progress p;
		} word = {0};
		ssize_t n = recv(h->fd, &word, sizeof word, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == (ssize_t)sizeof word.p) {
			if (tell)
				tell(hex, word.p.done, word.p.total);
			continue;
		}
		*answer = word.answer;
		return n;
	}
}

/* 0 when the file is in the cache now. h is locked. */
static int32_t ask(struct helper *h, const char *hex)
{
	int32_t answer = 0;
	ssize_t n;
	if (h->fd < 0)
		return ENOENT;
	while ((n = send(h->fd, hex, strlen(hex), MSG_NOSIGNAL)) < 0 && errno == EINTR)
		;
	if (n > 0)
		n = wait_for_answer(h, hex, &answer);
	if (n == (ssize_t)sizeof answer)
		return answer;
	close(h->fd);
	h->fd = -1;
	return ETIME;
}

int sp_debuginfod_fetch(void *ctx, const char *hex, char *path, size_t path_size)
{
	static atomic_uint turn;
	(void)ctx;
	if (mode == SP_DEBUGINFOD_NEVER)
		return 0;
	if (from_cache(hex, path, path_size))
		return 1;
	if (mode == SP_DEBUGINFOD_CACHE)
		return 0;
	struct helper *h = NULL;
	for (size_t i = 0; !h && i < N_HELPERS; i++)
		if (pthread_mutex_trylock(&helpers[i].lock) == 0)
			h = &helpers[i];
	if (!h) {
		h = &helpers[atomic_fetch_add(&turn, 1) % N_HELPERS];
		pthread_mutex_lock(&h->lock);
	}
	int32_t error = is_dead ? ETIME : ask(h, hex);
	pthread_mutex_unlock(&h->lock);
	if (error == 0)
		return from_cache(hex, path, path_size);
	if (error == ETIME)
		give_up("no answer in time");
	else if (error == ENOSYS)
		give_up("libdebuginfod.so.1 is not installed (package libdebuginfod1)");
	else if (error != ENOENT)
		give_up(strerror(error));
	return 0;
}

const char *sp_debuginfod_complaint(void)
{
	return is_dead ? complaint : NULL;
}
