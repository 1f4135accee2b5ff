#include "tails.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD 24u

void un_tails_deinit(struct un_tails *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->v[i].data);
	free(t->v);
	*t = (struct un_tails){0};
}

static void drop(struct un_tails *t, size_t at)
{
	t->bytes -= t->v[at].size;
	free(t->v[at].data);
	t->n--;
	memmove(t->v + at, t->v + at + 1, (t->n - at) * sizeof *t->v);
}

bool un_tails_add(struct un_tails *t, const uint8_t *payload, size_t size)
{
	if (size <= HEAD || size - HEAD > UN_TAILS_BYTES)
		return true;
	while (t->n && (t->n >= UN_TAILS_MAX || t->bytes + size - HEAD > UN_TAILS_BYTES))
		drop(t, 0);
	uint8_t *data = malloc(size - HEAD);
	struct un_tail *tail = data ? SP_PUSH(&t->v, &t->n, &t->cap) : NULL;
	if (!tail) {
		free(data);
		return false;
	}
	memcpy(data, payload + HEAD, size - HEAD);
	*tail = (struct un_tail){.time_ns = sp_get64(payload),
				 .pid = (int32_t)sp_get32(payload + 8),
				 .tid = (int32_t)sp_get32(payload + 12),
				 .at = sp_get64(payload + 16),
				 .data = data,
				 .size = size - HEAD};
	t->bytes += tail->size;
	return true;
}

/* Of a file that ends meanwhile what is missing is zero. */
static void copy_stack(const struct sp_perf_sample *s, uint8_t *to)
{
	int fd;
	uint64_t foff;
	if (!s->stack_here) {
		memcpy(to, s->stack, s->stack_bytes);
		return;
	}
	sp_sample_far(s, &fd, &foff);
	memset(to, 0, s->stack_bytes);
	ssize_t n = pread(fd, to, s->stack_bytes, (off_t)foff);
	(void)n;
}

uint8_t *un_tails_join(struct un_tails *t, const struct sp_record *rec, size_t *size)
{
	for (size_t i = 0; i < t->n; i++) {
		struct un_tail *tail = &t->v[i];
		if (tail->time_ns != rec->time_ns || tail->tid != rec->tid || tail->pid != rec->pid)
			continue;
		uint8_t *whole = NULL;
		if (tail->at == rec->sample.stack_bytes)
			whole = malloc(tail->at + tail->size);
		if (whole) {
			copy_stack(&rec->sample, whole);
			memcpy(whole + tail->at, tail->data, tail->size);
			*size = tail->at + tail->size;
		}
		drop(t, i);
		return whole;
	}
	return NULL;
}
