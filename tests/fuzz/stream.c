/* Perf streams and perf.data files: every record of them, in order. */
#define _GNU_SOURCE
#include "input.h"
#include "maps/procs.h"
#include "perf/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	int fd = fuzz_file(path, data, size);
	struct sp_reader *r = NULL;
	struct sp_procs *procs;
	struct sp_record rec;
	struct sp_err err;

	if (fd < 0)
		return 0;
	procs = sp_procs_new();
	if (procs && sp_reader_open(&r, path, 0, &err) >= 0) {
		while (sp_reader_next(r, &rec, &err) > 0)
			sp_procs_apply(procs, &rec, &err);
		(void)sp_reader_complaint(r);
		sp_reader_close(r);
	}
	sp_procs_free(procs);
	close(fd);
	return 0;
}
