/* Large samples of a file without the stack bytes that nobody asks for. perf copies up to 64 KiB of
 * stack with each sample, of which a walk needs a few KB at its begin. Through a map the kernel
 * maps and unmaps all of them (16 pages around each fault: 2 to 5 us a sample on Linux 6.18);
 * reading the begin alone, and with the same call the end of the record before, where the used size
 * stands, costs half or less. What a walk needs beyond can be read where it is.
 *
 * A trimmed record is a whole record in a chunk: its stack's size is what was kept and 24 bytes more,
 * which hold the used size that the record had, and where the stack stands (sp_sample_far). */
#ifndef SP_PERF_TRIM_H
#define SP_PERF_TRIM_H

#include "perf/chunk.h"
#include "perf/record.h"

/* Of stacks that are smaller the map is cheaper. */
#define SP_TRIM_STACK_MIN 24576u
/* In the offset of a record in the input: it was trimmed. */
#define SP_TRIM_MARK (UINT64_C(1) << 63)

struct sp_trim {
	int fd;                 /* borrowed: of the mapped file; -1: nothing is trimmed */
	size_t head;            /* bytes of a record that are read at once */
	struct sp_chunk *chunk; /* held: where the records lie */
	uint8_t *at;            /* the first n bytes of the record at offset pos: the next one's */
	size_t n;
	uint64_t pos;
	unsigned n_misses; /* records in a row for which reading ahead was in vain */
};

struct sp_reader;
struct frame;

/* Once the attributes are known, and when there are more: trim from here on where that pays. */
void sp_trim_begin(struct sp_reader *r);
/* The next record: 1, when it is one to be read so, else 0: it is to be taken from the map. Or an
 * error. */
int sp_trim_frame(struct sp_reader *r, struct frame *f, struct sp_err *err);
/* After decoding a trimmed sample: how long its stack is, and how much of it is here. */
void sp_trim_decoded(struct sp_perf_sample *s);

#endif
