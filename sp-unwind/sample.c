#include "sample.h"

#define CONTEXT_USER_DEFERRED ((uint64_t)-640) /* Linux 6.19: a cookie follows, not an address */

void un_chain_parse(struct un_chain *c, const uint8_t *entries, uint64_t n, unsigned mode)
{
	bool user = mode == SP_CPUMODE_USER, ignored = false;
	c->n_kernel = c->n_user = 0;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t v = sp_get64(entries + i * 8);
		if (v >= SP_CONTEXT_MAX) {
			user = v == SP_CONTEXT_USER;
			ignored = !user && v != SP_CONTEXT_KERNEL && v != SP_CONTEXT_HV;
			if (v == CONTEXT_USER_DEFERRED)
				i++;
			if (!user && !ignored && c->n_kernel < UW_MAX_FRAMES)
				c->kernel[c->n_kernel++] = v;
		} else if (!ignored && user && v && c->n_user < UW_MAX_FRAMES) {
			c->user[c->n_user++] = v;
		} else if (!ignored && !user && c->n_kernel < UW_MAX_FRAMES) {
			c->kernel[c->n_kernel++] = v;
		}
	}
	/* A marker without entries says nothing. */
	while (c->n_kernel && c->kernel[c->n_kernel - 1] >= SP_CONTEXT_MAX)
		c->n_kernel--;
}

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint8_t *put_words(uint8_t *out, const uint64_t *words, uint32_t n)
{
	if (n)
		memcpy(out, words, (size_t)n * 8);
	return out + (size_t)n * 8;
}

static uint8_t *put_bytes(uint8_t *out, const uint8_t *raw, uint32_t from, uint32_t to)
{
	memcpy(out, raw + from, to - from);
	return out + (to - from);
}

uint32_t un_sample_encode(uint8_t *out, const struct sp_record *rec, const struct un_chain *in,
			  const struct un_user_chain *user)
{
	const struct sp_perf_sample *l = &rec->sample;
	uint32_t rest = l->chain_off + 8 + (l->user_off - l->chain_end) + (rec->size - l->user_end);
	if (rest > UN_SAMPLE_MAX)
		return 0;
	uint32_t room = (UN_SAMPLE_MAX - rest) / 8;
	uint32_t n_kernel = min32(in->n_kernel, room);
	room -= n_kernel;
	bool has_user = user->n + user->n_tail || user->cut, cut = user->cut;
	uint32_t n_user = 0, n_tail = 0;
	if (has_user && room >= 2) {
		room -= 2; /* the marker and a last 0 */
		n_user = min32(user->n, room);
		n_tail = min32(user->n_tail, room - n_user);
		cut = cut || n_user < user->n || n_tail < user->n_tail;
	} else {
		has_user = cut = false;
	}

	uint8_t *p = put_bytes(out, rec->raw, 0, l->chain_off);
	sp_put64(p, n_kernel + (has_user ? 1u : 0u) + n_user + n_tail + (cut ? 1u : 0u));
	p = put_words(p + 8, in->kernel, n_kernel);
	if (has_user) {
		sp_put64(p, SP_CONTEXT_USER);
		p = put_words(p + 8, user->addrs, n_user);
		for (uint32_t i = 0; i < n_tail; i++, p += 8)
			sp_put64(p, user->tail[i] - (n_user + i ? 1 : 0));
		if (cut) {
			sp_put64(p, 0);
			p += 8;
		}
	}
	p = put_bytes(p, rec->raw, l->chain_end, l->user_off);
	p = put_bytes(p, rec->raw, l->user_end, rec->size);
	uint32_t size = (uint32_t)(p - out);
	sp_put16(out + 6, (uint16_t)size);
	return size;
}
