/* What the tests of the reader share: input that is opened, and what is read from it as text. */
#ifndef SP_TESTS_PERF_READ_H
#define SP_TESTS_PERF_READ_H

#include "tap.h"

#include "perf_enc.h"
#include "perf/ext.h"
#include "perf/reader.h"

static const uint64_t id_a = 11, id_b = 22;

/* A stream's head with one event. */
static inline void head_one(struct enc *e)
{
	struct sp_attr a = e_plain_attr();
	e_pipe(e);
	e_head_attr(e, &a, 128, &id_a, 1);
}

/* With two. */
static inline void head(struct enc *e)
{
	struct sp_attr a = e_plain_attr();
	head_one(e);
	a.config = 9;
	e_head_attr(e, &a, 128, &id_b, 1);
}

static inline struct sp_reader *open_bytes(const void *data, size_t size, unsigned flags)
{
	struct sp_reader *r = NULL;
	struct sp_err err = {0};
	if (sp_reader_open_bytes(&r, data, size, flags, &err) < 0) {
		tap_ok(false, "the input opens");
		printf("# %s\n", err.msg);
	}
	return r;
}

/* Times of the kernel's records as they are given, as text: "1 2 5". */
static inline const char *times(struct sp_reader *r)
{
	static char text[400];
	size_t at = 0;
	struct sp_record rec;
	text[0] = 0;
	while (r && sp_reader_next(r, &rec, NULL) == 1) {
		char one[32] = "";
		if (rec.type == SP_PERF_FINISHED_ROUND)
			snprintf(one, sizeof one, "%sR", at ? " " : "");
		else if (rec.type < SP_PERF_HEADER_ATTR)
			snprintf(one, sizeof one, "%s%llu", at ? " " : "",
				 (unsigned long long)rec.time_ns);
		size_t n = strlen(one);
		if (at + n < sizeof text)
			memcpy(text + at, one, n + 1), at += n;
	}
	return text;
}

#endif
