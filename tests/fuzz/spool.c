/* Spools: everything that a reader gives. */
#define _GNU_SOURCE
#include "base/err.h"
#include "input.h"
#include "stackpulse/spool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	int fd = fuzz_file(path, data, size);
	struct sp_spool *s = NULL;
	struct sp_spool_sample sample;
	const struct sp_spool_frame *frames;
	const uint64_t *kernel;
	volatile uint64_t sum = 0;
	struct sp_err err;

	if (fd < 0)
		return 0;
	if (sp_spool_open(&s, path, &err) >= 0) {
		while (sp_spool_next(s, &sample, &err) > 0) {
			size_t n = sp_spool_frames(s, &frames);

			for (size_t i = 0; i < n; i++) {
				if (frames[i].module != SP_NONE)
					sum += sp_spool_module(s, frames[i].module)->start;
				sum += frames[i].rel_ip + frames[i].frame_id;
			}
			sum += (uint64_t)sp_spool_thread(s, sample.thread)->tid;
			sum += (uint8_t)sp_spool_event(s, sample.event)->name[0];
		}
		for (size_t i = 0; i < sp_spool_n_objects(s); i++)
			sum += sp_spool_object(s, i)->size;
		sum += sp_spool_kernel_frame_addresses(s, &kernel);
		sp_spool_close(s);
	}
	close(fd);
	(void)sum;
	return 0;
}
