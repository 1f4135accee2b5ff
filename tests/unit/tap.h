/* Test Anything Protocol, the little of it that the unit tests need. */
#ifndef SP_TESTS_TAP_H
#define SP_TESTS_TAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int tap_n, tap_failed;

/* One test; its name is a sentence about behaviour. */
static inline bool tap_ok(bool good, const char *name)
{
	printf("%sok %d - %s\n", good ? "" : "not ", ++tap_n, name);
	fflush(stdout);
	tap_failed += !good;
	return good;
}

static inline bool tap_eq(uint64_t got, uint64_t want, const char *name)
{
	if (!tap_ok(got == want, name)) {
		printf("# got %llu (0x%llx), want %llu (0x%llx)\n", (unsigned long long)got,
		       (unsigned long long)got, (unsigned long long)want, (unsigned long long)want);
		return false;
	}
	return true;
}

static inline bool tap_str(const char *got, const char *want, const char *name)
{
	bool same = got && want ? !strcmp(got, want) : got == want;
	if (!tap_ok(same, name))
		printf("# got '%s', want '%s'\n", got ? got : "(null)", want ? want : "(null)");
	return same;
}

static inline int tap_done(void)
{
	printf("1..%d\n", tap_n);
	fflush(stdout); /* also for those who _exit() */
	return tap_failed != 0;
}

#endif
