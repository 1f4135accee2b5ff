#include "sym/strpool.h"

#include <stdlib.h>
#include <string.h>

#include "base/table.h"

void sp_strpool_deinit(struct sp_strpool *p)
{
	sp_arena_deinit(&p->bytes);
	free(p->slots);
	free(p->hashes);
	*p = (struct sp_strpool){0};
}

static size_t slot_of(const struct sp_strpool *p, const char *s, size_t len, uint64_t hash)
{
	size_t i = (size_t)hash & p->mask;
	while (p->slots[i] &&
	       !(p->hashes[i] == hash && !strncmp(p->slots[i], s, len) && !p->slots[i][len]))
		i = (i + 1) & p->mask;
	return i;
}

static int enlarge(struct sp_strpool *p)
{
	size_t size = p->slots ? (p->mask + 1) * 2 : 256;
	const char **slots = calloc(size, sizeof *slots);
	uint64_t *hashes = calloc(size, sizeof *hashes);
	if (!slots || !hashes) {
		free(slots);
		free(hashes);
		return -1;
	}
	for (size_t k = 0; p->slots && k <= p->mask; k++) {
		if (!p->slots[k])
			continue;
		size_t i = (size_t)p->hashes[k] & (size - 1);
		while (slots[i])
			i = (i + 1) & (size - 1);
		slots[i] = p->slots[k];
		hashes[i] = p->hashes[k];
	}
	free(p->slots);
	free(p->hashes);
	p->slots = slots;
	p->hashes = hashes;
	p->mask = size - 1;
	return 0;
}

const char *sp_strpool_add(struct sp_strpool *p, const char *s, size_t len)
{
	if ((!p->slots || p->n * 4 >= (p->mask + 1) * 3) && enlarge(p) < 0)
		return NULL;
	len = strnlen(s, len);
	uint64_t hash = sp_hash(s, len, 0);
	size_t i = slot_of(p, s, len, hash);
	if (p->slots[i])
		return p->slots[i];
	char *copy = sp_arena_take(&p->bytes, len + 1, 1);
	if (!copy)
		return NULL;
	memcpy(copy, s, len);
	copy[len] = 0;
	p->slots[i] = copy;
	p->hashes[i] = hash;
	p->n++;
	return copy;
}
