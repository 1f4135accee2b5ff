#include "base/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/le.h"

uint64_t sp_hash(const void *data, size_t len, uint64_t seed)
{
	const uint8_t *p = data;
	uint64_t h = seed ^ (UINT64_C(0x9e3779b97f4a7c15) * (len + 1));
	for (; len >= 8; p += 8, len -= 8) {
		h = (h ^ sp_get64(p)) * UINT64_C(0xff51afd7ed558ccd);
		h ^= h >> 29;
	}
	uint64_t tail = 0;
	if (len)
		memcpy(&tail, p, len);
	return sp_mix64(h ^ tail);
}

void sp_map64_deinit(struct sp_map64 *m)
{
	free(m->slots);
	*m = (struct sp_map64){0};
}

void sp_map64_clear(struct sp_map64 *m)
{
	if (m->slots)
		memset(m->slots, 0, ((size_t)m->mask + 1) * sizeof *m->slots);
	m->n = 0;
}

uint32_t sp_map64_get(const struct sp_map64 *m, uint64_t key)
{
	if (!m->slots)
		return SP_NOT_FOUND;
	for (uint32_t i = (uint32_t)sp_mix64(key) & m->mask; m->slots[i].value;
	     i = (i + 1) & m->mask)
		if (m->slots[i].key == key)
			return m->slots[i].value - 1;
	return SP_NOT_FOUND;
}

static void map64_insert(struct sp_map64 *m, uint64_t key, uint32_t stored)
{
	uint32_t i = (uint32_t)sp_mix64(key) & m->mask;
	while (m->slots[i].value && m->slots[i].key != key)
		i = (i + 1) & m->mask;
	if (!m->slots[i].value)
		m->n++;
	m->slots[i] = (struct sp_map64_slot){.key = key, .value = stored};
}

bool sp_map64_put(struct sp_map64 *m, uint64_t key, uint32_t value)
{
	if (!m->slots || (uint64_t)m->n * 4 >= ((uint64_t)m->mask + 1) * 3) {
		size_t size = m->slots ? ((size_t)m->mask + 1) * 2 : 64;
		if (size > UINT32_C(1) << 31)
			return false;
		struct sp_map64 bigger = {.slots = calloc(size, sizeof *m->slots),
					  .mask = (uint32_t)size - 1};
		if (!bigger.slots)
			return false;
		for (size_t i = 0; m->slots && i <= m->mask; i++)
			if (m->slots[i].value)
				map64_insert(&bigger, m->slots[i].key, m->slots[i].value);
		free(m->slots);
		*m = bigger;
	}
	map64_insert(m, key, value + 1);
	return true;
}

/* What stands behind the hole moves up, unless it would stand before its own place then: look-ups
 * end at the first free slot. */
void sp_map64_remove(struct sp_map64 *m, uint64_t key)
{
	if (sp_map64_get(m, key) == SP_NOT_FOUND)
		return;
	uint32_t hole = (uint32_t)sp_mix64(key) & m->mask;
	while (m->slots[hole].key != key)
		hole = (hole + 1) & m->mask;
	for (uint32_t i = (hole + 1) & m->mask; m->slots[i].value; i = (i + 1) & m->mask) {
		uint32_t own = (uint32_t)sp_mix64(m->slots[i].key) & m->mask;
		if (((i - own) & m->mask) >= ((i - hole) & m->mask)) {
			m->slots[hole] = m->slots[i];
			hole = i;
		}
	}
	m->slots[hole] = (struct sp_map64_slot){0};
	m->n--;
}

void sp_intern_deinit(struct sp_intern *t)
{
	sp_buf_deinit(&t->bytes);
	free(t->items);
	free(t->slots);
	*t = (struct sp_intern){0};
}

static uint32_t intern_slot(const struct sp_intern *t, uint64_t hash, const void *data, size_t len)
{
	uint32_t i = (uint32_t)hash & t->mask;
	for (; t->slots[i]; i = (i + 1) & t->mask) {
		const struct sp_intern_item *it = &t->items[t->slots[i] - 1];
		if (it->hash == hash && it->len == len &&
		    (!len || !memcmp(t->bytes.data + it->at, data, len)))
			break;
	}
	return i;
}

uint32_t sp_intern_find(const struct sp_intern *t, const void *data, size_t len)
{
	if (!t->slots)
		return SP_NOT_FOUND;
	uint32_t id = t->slots[intern_slot(t, sp_hash(data, len, 0), data, len)];
	return id ? id - 1 : SP_NOT_FOUND;
}

static bool intern_rehash(struct sp_intern *t)
{
	size_t size = t->slots ? ((size_t)t->mask + 1) * 2 : 64;
	uint32_t *slots = size > UINT32_C(1) << 31 ? NULL : calloc(size, sizeof *slots);
	if (!slots)
		return false;
	uint32_t mask = (uint32_t)size - 1;
	for (size_t id = 0; id < t->n; id++) {
		uint32_t i = (uint32_t)t->items[id].hash & mask;
		while (slots[i])
			i = (i + 1) & mask;
		slots[i] = (uint32_t)id + 1;
	}
	free(t->slots);
	t->slots = slots;
	t->mask = mask;
	return true;
}

uint32_t sp_intern_add(struct sp_intern *t, const void *data, size_t len, bool *is_new)
{
	if (is_new)
		*is_new = false;
	/* Half full at most: each place that is tried costs a look at an item elsewhere. */
	if (len > UINT32_MAX || ((!t->slots || t->n * 2 > t->mask) && !intern_rehash(t)))
		return SP_NOT_FOUND;
	uint64_t hash = sp_hash(data, len, 0);
	uint32_t i = intern_slot(t, hash, data, len);
	if (t->slots[i])
		return t->slots[i] - 1;
	if (!sp_buf_reserve(&t->bytes, len + 1))
		return SP_NOT_FOUND;
	struct sp_intern_item *it = SP_PUSH(&t->items, &t->n, &t->cap);
	if (!it)
		return SP_NOT_FOUND;
	*it = (struct sp_intern_item){.hash = hash, .at = t->bytes.len, .len = (uint32_t)len};
	sp_buf_add(&t->bytes, data, len);
	sp_buf_u8(&t->bytes, 0);
	t->slots[i] = (uint32_t)t->n;
	if (is_new)
		*is_new = true;
	return (uint32_t)t->n - 1;
}

const char *sp_intern_get(const struct sp_intern *t, uint32_t id, size_t *len)
{
	if (len)
		*len = t->items[id].len;
	return (const char *)t->bytes.data + t->items[id].at;
}
