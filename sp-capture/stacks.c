#define _GNU_SOURCE
#include "stacks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/le.h"
#include "base/proc.h"
#include "base/table.h"
#include "tasks.h"

#define MAPS_MAX (64u << 20)
#define READ_AGAIN_NS UINT64_C(20000000) /* maps of one process at most 50 times a second */
#define ASK_AGAIN_NS UINT64_C(500000000) /* an answer that was "not known" */
#define MAIN_TAIL 16u                    /* start_stack holds argc; the root frame may look at it */

void cap_stacks_deinit(struct cap_stacks *s)
{
	free(s->slots);
	sp_buf_deinit(&s->text);
	*s = (struct cap_stacks){0};
}

static uint32_t slot_at(const struct cap_stacks *s, int32_t tid)
{
	uint32_t i = (uint32_t)sp_mix64((uint64_t)tid) & s->mask;
	while (s->slots[i].tid && s->slots[i].tid != tid)
		i = (i + 1) & s->mask;
	return i;
}

static bool grow(struct cap_stacks *s)
{
	struct cap_stacks bigger = {.mask = s->slots ? s->mask * 2 + 1 : 63};
	bigger.slots = calloc((size_t)bigger.mask + 1, sizeof *bigger.slots);
	if (!bigger.slots)
		return false;
	for (uint32_t i = 0; s->slots && i <= s->mask; i++)
		if (s->slots[i].tid)
			bigger.slots[slot_at(&bigger, s->slots[i].tid)] = s->slots[i];
	free(s->slots);
	s->slots = bigger.slots;
	s->mask = bigger.mask;
	return true;
}

/* Backward-shift deletion: no tombstones, whatever the churn of threads. */
static void remove_at(struct cap_stacks *s, uint32_t hole)
{
	for (uint32_t i = (hole + 1) & s->mask; s->slots[i].tid; i = (i + 1) & s->mask) {
		uint32_t home = (uint32_t)sp_mix64((uint64_t)s->slots[i].tid) & s->mask;
		if (((i - home) & s->mask) < ((i - hole) & s->mask))
			continue;
		s->slots[hole] = s->slots[i];
		hole = i;
	}
	s->slots[hole].tid = 0;
	s->n--;
}

void cap_stacks_forget(struct cap_stacks *s, int32_t tid)
{
	if (!s->slots || tid <= 0)
		return;
	uint32_t i = slot_at(s, tid);
	if (s->slots[i].tid)
		remove_at(s, i);
}

void cap_stacks_forget_process(struct cap_stacks *s, int32_t pid)
{
	for (uint32_t i = 0; s->slots && i <= s->mask; i++)
		if (s->slots[i].tid && s->slots[i].pid == pid)
			s->slots[i].hi = s->slots[i].lo = s->slots[i].asked_ns = 0;
	if (s->text_pid == pid)
		s->text_pid = 0;
}

static const char *hex(const char *p, const char *end, uint64_t *out)
{
	uint64_t v = 0;
	const char *start = p;
	for (; p < end && p - start < 16; p++) {
		unsigned c = (unsigned char)*p;
		unsigned digit = c - '0' < 10u         ? c - '0'
				 : (c | 32) - 'a' < 6u ? (c | 32) - 'a' + 10
						       : 16;
		if (digit == 16)
			break;
		v = v << 4 | digit;
	}
	*out = v;
	return p > start ? p : NULL;
}

bool cap_stack_in_maps(const char *text, size_t len, uint64_t sp, uint64_t *lo, uint64_t *hi,
		       bool *is_main)
{
	const char *end = text + len;
	uint64_t before = 0;
	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));
		const char *stop = nl ? nl : end;
		uint64_t start, last;
		const char *p = hex(text, stop, &start);
		p = p && p < stop && *p == '-' ? hex(p + 1, stop, &last) : NULL;
		if (p && sp >= start && sp < last) {
			*is_main = stop - p > 7 && !memcmp(stop - 7, "[stack]", 7);
			*lo = *is_main ? before : start;
			*hi = last;
			return true;
		}
		if (p)
			before = last;
		text = stop + 1;
	}
	return false;
}

static uint64_t start_stack(int32_t pid)
{
	char path[40];
	struct sp_buf b = {0};
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	uint64_t v = sp_file_read(path, 8192, &b, NULL) < 0
			     ? 0
			     : sp_stat_field((const char *)b.data, b.len, 28);
	sp_buf_deinit(&b);
	return v;
}

static bool maps_refresh(struct cap_stacks *s, int32_t pid, uint64_t now_ns)
{
	if (s->text_pid == pid && now_ns - s->text_ns < READ_AGAIN_NS)
		return true;
	s->text.len = 0;
	s->text.failed = false;
	s->n_reads++;
	s->text_pid = cap_task_maps(pid, MAPS_MAX, &s->text, NULL) < 0 ? 0 : pid;
	s->text_ns = now_ns;
	return s->text_pid == pid;
}

static void ask(struct cap_stacks *s, struct cap_stack_slot *slot, uint64_t sp, uint64_t now_ns)
{
	bool is_main;
	slot->asked_ns = now_ns;
	slot->lo = slot->hi = 0;
	slot->look_at_top = false;
	if (!maps_refresh(s, slot->pid, now_ns) ||
	    !cap_stack_in_maps((const char *)s->text.data, s->text.len, sp, &slot->lo, &slot->hi,
			       &is_main))
		return;
	uint64_t start = is_main ? start_stack(slot->pid) : 0;
	if (start >= sp && start + MAIN_TAIL < slot->hi)
		slot->hi = start + MAIN_TAIL;
	slot->look_at_top = !is_main;
}

uint64_t cap_stacks_end(struct cap_stacks *s, int32_t pid, int32_t tid, uint64_t sp,
			uint64_t now_ns)
{
	if (tid <= 0 || ((!s->slots || s->n * 2 >= s->mask) && !grow(s)))
		return 0;
	struct cap_stack_slot *slot = &s->slots[slot_at(s, tid)];
	if (slot->tid && sp >= slot->lo && sp < slot->hi)
		return slot->hi;
	if (!slot->tid) {
		*slot = (struct cap_stack_slot){.tid = tid, .pid = pid};
		s->n++;
	} else if (!slot->hi && now_ns - slot->asked_ns < ASK_AGAIN_NS) {
		return 0;
	}
	slot->pid = pid;
	ask(s, slot, sp, now_ns);
	return slot->hi;
}

struct cap_stack_slot *cap_stacks_top(struct cap_stacks *s, int32_t tid)
{
	struct cap_stack_slot *slot = s->slots && tid > 0 ? &s->slots[slot_at(s, tid)] : NULL;
	return slot && slot->tid && slot->look_at_top ? slot : NULL;
}

uint64_t cap_stack_tcb(const uint8_t *bytes, size_t n, uint64_t hi)
{
#if defined(__x86_64__)
	uint64_t at = (hi - n + 63) & ~UINT64_C(63);
	for (; hi - at >= 24 && hi - at <= n; at += 64) {
		const uint8_t *p = bytes + (n - (size_t)(hi - at));
		if (sp_get64(p) == at && sp_get64(p + 8) && sp_get64(p + 16) == at)
			return at;
	}
#else
	(void)bytes; /* variant I of the TLS ABI: nothing marks it */
	(void)n;
	(void)hi;
#endif
	return 0;
}

void cap_stack_top_set(struct cap_stack_slot *slot, const uint8_t *bytes, size_t n)
{
	uint64_t tcb = cap_stack_tcb(bytes, n, slot->hi);
	slot->look_at_top = false;
	if (tcb > slot->lo)
		slot->hi = tcb;
}
