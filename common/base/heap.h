/* The heap of a tool that lives from tables. Only for programs: a library has no say in it. */
#ifndef SP_BASE_HEAP_H
#define SP_BASE_HEAP_H

/* Tables that grow to a few MiB and go again are most of what a tool allocates, and a first touch
 * of each 4 KiB page was a quarter of its time: freed memory is kept for the next table, and what
 * a long profile needs of the heap may have large pages. Before the first allocation. */
void sp_heap_prepare(void);

#endif
