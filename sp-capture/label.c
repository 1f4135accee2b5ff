/* The control group of a process, as a marker in the stream. */
#include <stdio.h>

#include "base/file.h"
#include "container.h"
#include "emit.h"

#define MARKER_CGROUP 4u
#define TEXT_MAX (1u << 20)

static void emit_marker(struct cap_emit *e, int32_t pid, const char *path, size_t len,
			uint64_t time_ns)
{
	struct cap_container c = {0};
	char name[256];
	struct sp_buf b = {0};
	cap_container_path(path, len, &c);
	sp_buf_u64(&b, time_ns);
	sp_buf_u32(&b, (uint32_t)pid);
	sp_buf_u32(&b, MARKER_CGROUP);
	sp_buf_u32(&b, 1);
	sp_buf_u32(&b, 0);
	sp_buf_add(&b, path, len);
	sp_buf_u8(&b, 0);
	if (c.runtime)
		sp_buf_str(&b, c.runtime);
	sp_buf_u8(&b, 0);
	sp_buf_add(&b, c.id, c.id_len);
	sp_buf_u8(&b, 0);
	sp_buf_add(&b, name, cap_container_name(&c, name, sizeof name));
	sp_buf_u8(&b, 0);
	if (!b.failed)
		cap_emit_ext(e, SP_EXT_RUNTIME, b.data, b.len);
	sp_buf_deinit(&b);
}

void cap_emit_cgroup(struct cap_emit *e, struct cap_proc *q, bool read, uint64_t time_ns)
{
	char file[40];
	struct sp_buf b = {0};
	const char *path = NULL;
	size_t len = 0;
	if (!read) {
		if (!q->cgroup)
			return;
		path = sp_intern_get(&e->procs.paths, q->cgroup - 1, &len);
		emit_marker(e, q->pid, path, len, time_ns);
		return;
	}
	snprintf(file, sizeof file, "/proc/%d/cgroup", q->pid);
	if (sp_file_read(file, TEXT_MAX, &b, NULL) >= 0 &&
	    cap_container_of_proc((const char *)b.data, b.len, &path, &len)) {
		uint32_t id = sp_intern_add(&e->procs.paths, path, len, NULL);
		if (id != SP_NOT_FOUND && q->cgroup != id + 1) {
			q->cgroup = id + 1;
			emit_marker(e, q->pid, path, len, time_ns);
		}
	}
	sp_buf_deinit(&b);
}
