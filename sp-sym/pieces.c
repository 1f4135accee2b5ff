#include "pieces.h"

#include <stdlib.h>

#define ROOM (512u << 20)

bool pieces_dense(struct pieces *p, size_t n)
{
	p->n_dense = n;
	p->dense = calloc(n + 1, sizeof *p->dense);
	return p->dense != NULL;
}

static uint32_t find(const struct pieces *p, uint64_t key)
{
	if (!p->dense)
		return sp_map64_get(&p->ids, key);
	return p->dense[key] ? p->dense[key] - 1 : SP_NOT_FOUND;
}

static bool enter(struct pieces *p, uint64_t key, uint32_t id)
{
	if (!p->dense)
		return sp_map64_put(&p->ids, key, id);
	p->dense[key] = id + 1;
	return true;
}

bool pieces_write(struct pieces *p, uint64_t key, struct out *o)
{
	uint32_t id = find(p, key);
	if (id == SP_NOT_FOUND)
		return false;
	out_add_kept(o, p->kept.data + p->at[id], p->at[id + 1] - p->at[id]);
	return true;
}

bool pieces_end(struct pieces *p, uint64_t key, struct out *o)
{
	size_t n = p->text.buf.len;
	if (p->kept.cap - p->kept.len < n)
		out_flush(o); /* what is kept may move */
	if (p->kept.len > ROOM) {
		out_flush(o);
		sp_map64_clear(&p->ids);
		if (p->dense)
			memset(p->dense, 0, p->n_dense * sizeof *p->dense);
		p->kept.len = p->n = 0;
	}
	if (p->text.buf.failed || !sp_grow(&p->at, &p->cap, p->n + 2, sizeof *p->at))
		return false;
	p->at[p->n] = p->kept.len;
	sp_buf_add(&p->kept, p->text.buf.data, n);
	p->at[++p->n] = p->kept.len;
	p->text.buf.len = 0;
	return !p->kept.failed && enter(p, key, (uint32_t)p->n - 1) &&
	       pieces_write(p, key, o);
}

void pieces_deinit(struct pieces *p, struct out *o)
{
	out_flush(o);
	sp_buf_deinit(&p->text.buf);
	sp_buf_deinit(&p->kept);
	sp_map64_deinit(&p->ids);
	free(p->at);
	free(p->dense);
	*p = (struct pieces)PIECES;
}
