#include "pieces.h"

#include <stdlib.h>

#define ROOM (512u << 20)

bool pieces_dense(struct pieces *p, size_t n)
{
	p->dense = true;
	p->n = n;
	p->v = calloc(n + 1, sizeof *p->v);
	return p->v != NULL;
}

static const struct piece *find(const struct pieces *p, uint64_t key)
{
	uint32_t id = p->dense ? (uint32_t)key : sp_map64_get(&p->ids, key);
	return id != SP_NOT_FOUND && p->v[id].n ? &p->v[id] : NULL;
}

/* A place for a new piece; NULL when memory ends. */
static struct piece *enter(struct pieces *p, uint64_t key)
{
	if (p->dense)
		return &p->v[key];
	struct piece *piece = SP_PUSH(&p->v, &p->n, &p->cap);
	return piece && sp_map64_put(&p->ids, key, (uint32_t)p->n - 1) ? piece : NULL;
}

static void forget_all(struct pieces *p)
{
	sp_map64_clear(&p->ids);
	if (p->dense)
		memset(p->v, 0, p->n * sizeof *p->v);
	else
		p->n = 0;
	p->kept.len = 0;
}

bool pieces_write(struct pieces *p, uint64_t key, struct out *o)
{
	const struct piece *piece = find(p, key);
	if (!piece)
		return false;
	out_add_kept(o, p->kept.data + piece->at, piece->n);
	return true;
}

bool pieces_end(struct pieces *p, uint64_t key, struct out *o)
{
	size_t n = p->text.buf.len;
	if (p->kept.cap - p->kept.len < n)
		out_flush(o); /* what is kept may move */
	if (p->kept.len > ROOM) {
		out_flush(o);
		forget_all(p);
	}
	struct piece *piece = p->text.buf.failed ? NULL : enter(p, key);
	if (!piece)
		return false;
	*piece = (struct piece){p->kept.len, n};
	sp_buf_add(&p->kept, p->text.buf.data, n);
	p->text.buf.len = 0;
	return !p->kept.failed && pieces_write(p, key, o);
}

void pieces_deinit(struct pieces *p, struct out *o)
{
	out_flush(o);
	sp_buf_deinit(&p->text.buf);
	sp_buf_deinit(&p->kept);
	sp_map64_deinit(&p->ids);
	free(p->v);
	*p = (struct pieces)PIECES;
}
