#include "sym/wanted.h"

#include <stdlib.h>

#include "base/buf.h"

#define PLACES_MAX ((size_t)1 << 16)

void sp_wanted_deinit(struct sp_wanted *w)
{
	free(w->v);
	free(w->first_in);
	*w = (struct sp_wanted){0};
}

bool sp_wanted_add(struct sp_wanted *w, uint64_t first, uint64_t last)
{
	if (w->n > INT32_MAX || !sp_grow(&w->v, &w->cap, w->n + 1, sizeof *w->v))
		return false;
	w->v[w->n++] = (struct sp_wanted_interval){first, last};
	return true;
}

static int by_first(const void *a, const void *b)
{
	const struct sp_wanted_interval *x = a, *y = b;
	return x->first < y->first ? -1 : x->first > y->first;
}

static void sort(struct sp_wanted *w)
{
	size_t i = 1; /* whoever asks for many asks in order */
	while (i < w->n && w->v[i - 1].first <= w->v[i].first)
		i++;
	if (i < w->n)
		qsort(w->v, w->n, sizeof *w->v, by_first);
}

static void join(struct sp_wanted *w)
{
	size_t n = 1;
	for (size_t i = 1; i < w->n; i++) {
		struct sp_wanted_interval *before = &w->v[n - 1];
		if (before->last == UINT64_MAX || w->v[i].first <= before->last + 1)
			before->last = w->v[i].last > before->last ? w->v[i].last : before->last;
		else
			w->v[n++] = w->v[i];
	}
	w->n = n;
}

bool sp_wanted_finish(struct sp_wanted *w)
{
	if (!w->n)
		return true;
	sort(w);
	join(w);
	uint64_t base = w->v[0].last, span = w->v[w->n - 1].last - base;
	size_t most = 2 * w->n < PLACES_MAX ? 2 * w->n : PLACES_MAX;
	w->shift = 0;
	while (span >> w->shift >= most)
		w->shift++;
	size_t n_places = (size_t)(span >> w->shift) + 2; /* one more, for the last one's end */
	w->first_in = malloc(n_places * sizeof *w->first_in);
	if (!w->first_in)
		return false;
	size_t place = 0;
	for (size_t i = 0; i < w->n; i++)
		for (; place <= (w->v[i].last - base) >> w->shift; place++)
			w->first_in[place] = (uint32_t)i;
	w->first_in[place] = (uint32_t)w->n;
	return true;
}
