#define _GNU_SOURCE
#include "grow.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cli.h"
#include "rings.h"
#include "session.h"
#include "tasks.h"

#define START_PART 4u
#define LEAST_SAMPLES 64u /* of a ring that starts small: what comes while its reader waits */
#define MAX_EVENTS 64u    /* each move takes 10 to 50 ms: more would last longer than a burst */
/* An interrupt that found the old ring as the event was moved has long ended by then. */
#define SETTLE_NS UINT64_C(100000000)

size_t cap_grow_start(size_t wanted, uint32_t stack_bytes, size_t n_events)
{
	size_t start = wanted;
	uint64_t least = cap_sample_bytes(stack_bytes) * LEAST_SAMPLES;
	if (n_events > MAX_EVENTS)
		return wanted;
	while (start > wanted / START_PART && start / 2 >= least)
		start /= 2;
	return start;
}

static void *map_fresh(void *arg)
{
	struct cap_grow *g = arg;
	for (size_t i = 0; i < g->n_cpus && !g->failed; i++) {
		struct cap_ring *r = &g->fresh[i];
		int fd = r->fd;
		g->failed = cap_ring_map(r, fd, r->cpu, g->bytes, g->page_bytes, NULL) < 0;
		r->index = (uint32_t)i;
		r->fd = fd;
	}
	atomic_store(&g->finished, true);
	return NULL;
}

static void *move_events(void *arg)
{
	struct cap_grow *g = arg;
	for (size_t i = 0; i < g->n_moves; i++) {
		ioctl(g->moves[2 * i], PERF_EVENT_IOC_SET_OUTPUT, g->moves[2 * i + 1]);
		close(g->moves[2 * i]);
	}
	atomic_store(&g->finished, true);
	return NULL;
}

/* Signals are for the thread that records. */
static bool run(struct cap_grow *g, void *(*what)(void *))
{
	sigset_t all, before;
	sigfillset(&all);
	atomic_store(&g->finished, false);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	g->running = pthread_create(&g->thread, NULL, what, g) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return g->running;
}

static bool has_finished(struct cap_grow *g)
{
	if (!atomic_load(&g->finished))
		return false;
	pthread_join(g->thread, NULL);
	g->running = false;
	return true;
}

static void drop_fresh(struct cap_grow *g)
{
	for (size_t i = 0; g->fresh && i < g->n_cpus; i++)
		cap_ring_unmap(&g->fresh[i]);
	free(g->fresh);
	g->fresh = NULL;
}

static bool begin_mapping(struct cap_session *s, size_t bytes)
{
	struct cap_grow *g = &s->grow;
	struct sp_err err;
	g->n_cpus = s->n_cpus;
	g->page_bytes = s->kernel.page_bytes;
	g->bytes = bytes;
	g->failed = false;
	g->fresh = calloc(s->n_cpus, sizeof *g->fresh);
	bool all = g->fresh != NULL;
	for (size_t i = 0; g->fresh && i < s->n_cpus; i++)
		g->fresh[i].fd = -1;
	for (size_t i = 0; all && i < s->n_cpus; i++) {
		struct cap_ring *r = &g->fresh[i];
		r->cpu = s->kernel.cpus[i];
		r->fd = cap_sampler_anchor(&s->sampler, r->cpu, cap_ring_mark(bytes), &err);
		all = r->fd >= 0;
	}
	return all && run(g, map_fresh);
}

/* Events opened from now on use the new rings; those that there are are moved. */
static bool begin_moving(struct cap_session *s)
{
	struct cap_grow *g = &s->grow;
	g->moves = malloc((s->n_tasks * s->n_cpus + 1) * 2 * sizeof *g->moves);
	if (!g->moves)
		return false;
	g->n_moves = 0;
	for (size_t i = 0; i < s->n_cpus; i++) {
		s->rings[s->n_cpus + i] = s->rings[i];
		s->rings[i] = g->fresh[i];
		for (size_t t = 0; t < s->n_tasks; t++) {
			/* A copy: the original may be closed meanwhile, and its number used again. */
			int fd = s->tasks[t].fds ? s->tasks[t].fds[i] : -1;
			int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
			if (copy < 0)
				continue;
			g->moves[2 * g->n_moves] = copy;
			g->moves[2 * g->n_moves + 1] = s->rings[i].fd;
			g->n_moves++;
		}
	}
	free(g->fresh);
	g->fresh = NULL;
	s->n_rings = 2 * s->n_cpus;
	s->ring_bytes = g->bytes;
	cap_session_pace(s);
	if (!run(g, move_events))
		move_events(g);
	return true;
}

static void drop_old(struct cap_session *s)
{
	for (size_t i = 0; i < s->n_cpus; i++) {
		struct cap_ring *old = &s->rings[s->n_cpus + i];
		s->rings[i].lost += old->lost;
		if (s->rings[i].last_ns < old->last_ns)
			s->rings[i].last_ns = old->last_ns;
		cap_ring_unmap(old);
	}
	s->n_rings = s->n_cpus;
}

static bool is_drained(const struct cap_session *s)
{
	for (size_t i = s->n_cpus; i < s->n_rings; i++)
		if (s->rings[i].at < s->rings[i].n || cap_ring_used(&s->rings[i]))
			return false;
	return true;
}

bool cap_grow_step(struct cap_session *s, uint64_t now_ns)
{
	struct cap_grow *g = &s->grow;
	switch (g->state) {
	case CAP_GROW_READY:
		if (s->fill < CAP_FILL_GROW || g->wanted <= s->ring_bytes)
			break;
		if (begin_mapping(s, g->wanted)) {
			g->state = CAP_GROW_MAPPING;
			break;
		}
		drop_fresh(g);
		g->state = CAP_GROW_DONE;
		break;
	case CAP_GROW_MAPPING:
		if (!has_finished(g))
			break;
		if (!g->failed && begin_moving(s)) {
			g->state = CAP_GROW_MOVING;
			sp_detail("the rings filled: now %zu KiB per CPU", g->bytes / 1024);
			return true;
		}
		drop_fresh(g);
		cap_rings_say_smaller(&s->kernel, s->ring_bytes, g->wanted);
		g->state = CAP_GROW_DONE;
		break;
	case CAP_GROW_MOVING:
		if (!atomic_load(&g->finished) || (g->running && !has_finished(g)))
			break;
		free(g->moves);
		g->moves = NULL;
		g->moved_ns = now_ns;
		g->state = CAP_GROW_ENDING;
		break;
	case CAP_GROW_ENDING:
		if (now_ns - g->moved_ns < SETTLE_NS || !is_drained(s))
			break;
		drop_old(s);
		g->state = CAP_GROW_DONE;
		return true;
	case CAP_GROW_DONE:
	default:
		break;
	}
	return false;
}

void cap_grow_end(struct cap_session *s)
{
	struct cap_grow *g = &s->grow;
	if (g->running)
		pthread_join(g->thread, NULL);
	g->running = false;
	drop_fresh(g);
	free(g->moves);
	g->moves = NULL;
	g->state = CAP_GROW_DONE;
}
