#include "base/moment.h"

#include <string.h>

#include "base/cli.h"

static struct sp_moment parse(const char *option, const char *text, size_t len)
{
	char word[64];
	struct sp_moment m = {SP_MOMENT_OPEN, 0};
	if (!len)
		return m;
	if (len >= sizeof word)
		sp_usage_error("%s: '%s' is too long", option, text);
	memcpy(word, text, len);
	word[len] = 0;
	m.kind = word[0] == '@' ? SP_MOMENT_EPOCH : SP_MOMENT_RELATIVE;
	m.ns = sp_arg_time_ns(option, word + (word[0] == '@'));
	return m;
}

void sp_arg_moments(const char *option, const char *text, struct sp_moment *from,
		    struct sp_moment *to)
{
	const char *dots = strstr(text, "..");
	if (!dots)
		sp_usage_error("%s: '%s' is not FROM..TO", option, text);
	*from = parse(option, text, (size_t)(dots - text));
	*to = parse(option, dots + 2, strlen(dots + 2));
	if (from->kind == to->kind && from->kind != SP_MOMENT_OPEN && from->ns >= to->ns)
		sp_usage_error("%s: '%s' is empty", option, text);
}

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
