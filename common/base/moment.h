/* A moment as the command line gives it: "@1700000000.5" (since 1970), "12.5" or "2m" (from the
 * first sample), or nothing for an open end. sp_arg_moments in
 * base/cli.h reads it. */
#ifndef SP_BASE_MOMENT_H
#define SP_BASE_MOMENT_H

#include <stdint.h>

enum sp_moment_kind { SP_MOMENT_OPEN, SP_MOMENT_RELATIVE, SP_MOMENT_EPOCH };

struct sp_moment {
	enum sp_moment_kind kind;
	uint64_t ns;
};

/* What ties the samples' clock to the wall's. */
struct sp_clock {
	uint64_t first_ns;          /* of the first sample, on the samples' clock */
	uint64_t start_ns;          /* the wall's at that sample: taken when there is no pair */
	uint64_t wall_ns, clock_ns; /* one instant on both clocks; wall_ns 0 = not known */
};

/* On the samples' clock, clamped to it. Of an open end: 0. */
uint64_t sp_moment_ns(const struct sp_moment *m, const struct sp_clock *clock);

#endif
