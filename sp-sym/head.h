/* The first line of what people read: how many samples of what, and what is missing. */
#ifndef SYM_HEAD_H
#define SYM_HEAD_H

#include "term.h"

void head_write(struct view *v, struct out *o, const struct term *t);

#endif
