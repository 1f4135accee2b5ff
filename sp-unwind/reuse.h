/* The walk's side of memo.h: kept frames found again, new ones kept. */
#ifndef SP_UNWIND_REUSE_H
#define SP_UNWIND_REUSE_H

#include "walker.h"

/* One walk's use of its thread's kept frames. */
struct uw_reuse {
	struct uw_memo *memo; /* of the walker; NULL: nothing is kept of this walk */
	uint32_t at;          /* the next kept frame that may be met */
	uint32_t n_fresh;     /* of w->fresh */
	/* Kept frames from … to - 1 were taken over behind the fresh ones; to 0: none. */
	uint32_t from, to;
	bool met;
};

/* A frame before its step. */
struct uw_state {
	uint64_t pc, sp, fp;
	bool exact;
};

void uw_reuse_begin(struct uw_reuse *u, const struct uw_walk *k);
/* Append kept frames as far as their words agree; k then has the frame behind them. */
void uw_reuse_take(struct uw_reuse *u, struct uw_walk *k);
/* Copy the frames that were taken over to the fresh ones, because others come behind. */
void uw_reuse_unfold(struct uw_reuse *u, struct uw_walker *w);
/* The walk is done: its frames are the ones to keep. */
void uw_reuse_end(struct uw_reuse *u, struct uw_walker *w);

/* Whether k's frame is a kept one whose step may be repeated. */
static inline bool uw_reuse_meets(struct uw_reuse *u, const struct uw_walk *k)
{
	const struct uw_memo_frame *f = &u->memo->frames[u->at];
	for (; u->at < UW_MEMO_FRAMES && f->sp < k->sp; f++)
		u->at++;
	return u->at < UW_MEMO_FRAMES && f->sp == k->sp && f->pc == k->pc && f->fp == k->fp &&
	       !k->exact && (f->edge == UW_EDGE_RULE || f->edge == UW_EDGE_POINTER);
}

/* Whether all kept frames up to the outermost were taken over. */
static inline bool uw_reuse_all(const struct uw_reuse *u)
{
	return u->to == UW_MEMO_FRAMES - 1;
}

/* Keep a frame whose step led to the one that is now in k. */
static inline void uw_reuse_keep(struct uw_reuse *u, const struct uw_walk *k,
				 const struct uw_state *of, struct uw_memo_frame f)
{
	if (of->exact)
		return;
	if (__builtin_expect(u->to, 0))
		uw_reuse_unfold(u, k->w);
	f.pc = of->pc;
	f.sp = of->sp;
	f.fp = of->fp;
	if (k->exact)
		f.edge = UW_EDGE_NONE;
	k->w->fresh[u->n_fresh++] = f;
}

#endif
