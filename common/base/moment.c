#include "base/moment.h"

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t sp_moment_ns(const struct sp_moment *m, const struct sp_clock *clock)
{
	uint64_t wall = clock->wall_ns ? clock->wall_ns : clock->start_ns;
	uint64_t at = clock->wall_ns ? clock->clock_ns : clock->first_ns;
	if (m->kind == SP_MOMENT_OPEN)
		return 0;
	if (m->kind == SP_MOMENT_RELATIVE)
		return add(clock->first_ns, m->ns);
	if (m->ns >= wall)
		return add(at, m->ns - wall);
	return wall - m->ns > at ? 0 : at - (wall - m->ns);
}
