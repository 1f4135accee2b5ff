#define _GNU_SOURCE
#include "head.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/cli.h"
#include "base/file.h"
#include "embed.h"
#include "kallsyms.h"

static size_t argc_of(char *const *argv)
{
	size_t n = 0;
	while (argv[n])
		n++;
	return n;
}

int cap_head_write(struct sp_writer **out, const struct cap_session *s, char *const *argv,
		   struct sp_err *err)
{
	struct sp_writer *w;
	struct sp_attr attr;
	struct utsname u;
	uname(&u);
	cap_sampler_attr(&s->sampler, &attr);
	struct sp_writer_features f = {
		.hostname = u.nodename,
		.osrelease = u.release,
		.version = "sp-capture " SP_VERSION,
		.arch = u.machine,
		.n_cpus_online = (uint32_t)s->kernel.n_cpus,
		.n_cpus_avail = s->kernel.n_cpus_avail,
		.cmdline = argv,
		.n_cmdline = argc_of(argv),
		.clockid = CLOCK_MONOTONIC,
		.wall_ns = s->start_wall_ns,
		.clock_ns = s->start_ns,
	};
	bool as_file = s->o->output_kind == CAP_TO_DATA;
	int rc = sp_writer_new(&w, s->out_fd, s->out_name, as_file, err);
	if (rc < 0)
		return rc;
	rc = sp_writer_begin(w, err);
	if (rc >= 0)
		rc = sp_writer_attr(w, &attr, s->sampler.event->name, CAP_EVENT_ID, err);
	if (rc >= 0 && s->o->off_cpu) {
		cap_sampler_off_attr(&attr);
		rc = sp_writer_attr(w, &attr, "offcpu-time", CAP_OFF_ID, err);
	}
	if (rc >= 0)
		rc = sp_writer_features(w, &f, err);
	if (rc >= 0)
		rc = sp_writer_flush(w, err);
	if (rc < 0) {
		sp_writer_abandon(w);
		return rc;
	}
	*out = w;
	return 0;
}

static void emit_start(struct cap_session *s)
{
	struct sp_buf b = {0};
	const struct cap_options *o = s->o;
	uint64_t start_us = o->has_start_time ? o->start_time_us : s->start_wall_ns / 1000;
	sp_buf_str(&b, "tool=sp-capture\nversion=" SP_VERSION "\nchain=return\n");
	sp_buf_str(&b, "boot_id=");
	if (sp_file_read("/proc/sys/kernel/random/boot_id", 256, &b, NULL) < 0)
		sp_buf_str(&b, "\n");
	sp_buf_printf(&b, "start_ns=%llu\nwall_ns=%llu\nstart_time_us=%llu\ninterval_us=%llu\n",
		      (unsigned long long)s->start_ns, (unsigned long long)s->start_wall_ns,
		      (unsigned long long)start_us, (unsigned long long)o->interval_us);
	sp_buf_printf(&b, "clock=%s\nrate_hz=%llu\nstack_bytes=%u\nkernel=%d\nring_bytes=%zu\n",
		      s->sampler.event->name, (unsigned long long)s->sampler.rate_hz,
		      o->stack_bytes, s->sampler.kernel_frames, s->ring_bytes);
	sp_buf_printf(&b, "exact_loss=%d\nfollow=%d\nengine=%s\n", s->sampler.has_lost, o->follow,
		      s->bpf ? "bpf" : "perf");
	if (!b.failed)
		cap_emit_ext(&s->emit, SP_EXT_START, b.data, b.len);
	sp_buf_deinit(&b);
}

void cap_head_emit(struct cap_session *s)
{
	emit_start(s);
	if (s->sampler.kernel_frames)
		cap_kernel_map_emit(&s->emit, s->emit.now_ns);
	cap_embed_vdso(&s->embed);
}
