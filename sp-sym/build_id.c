#include "build_id.h"

#include "elf/find.h"

void view_build_id(const struct view *v, const struct sp_spool_module *m, struct sp_build_id *out)
{
	*out = (struct sp_build_id){0};
	if (m->build_id && m->build_id_len) {
		out->len = m->build_id_len < SP_BUILD_ID_MAX ? m->build_id_len : SP_BUILD_ID_MAX;
		memcpy(out->bytes, m->build_id, out->len);
		return;
	}
	if (m->is_anon || m->is_kernel || *m->path != '/')
		return;
	const struct sp_resolver_options *o = &v->opt->resolver;
	struct sp_find_options find = {.path_maps = o->path_maps,
				       .n_path_maps = o->n_path_maps,
				       .symfs = o->symfs};
	struct sp_file_query query = {
		.path = m->path,
		.maj = m->dev_major,
		.min = m->dev_minor,
		.ino = m->inode,
		.live_pid = -1,
		.start = m->start,
		.end = m->end,
		.foff = m->file_offset,
	};
	struct sp_elf elf;
	struct sp_err err;
	char why[200];
	int found = sp_find_elf(&elf, &find, &query, why, &err);
	if (found != SP_FOUND && found != SP_FOUND_BY_PATH)
		return;
	if (found == SP_FOUND)
		*out = elf.build_id;
	sp_elf_close(&elf);
}

const char *view_build_id_hex(const struct view *v, const struct sp_spool_module *m,
			      char out[2 * SP_BUILD_ID_MAX + 1])
{
	struct sp_build_id id;
	view_build_id(v, m, &id);
	out[0] = 0;
	if (id.len)
		sp_build_id_hex(&id, out);
	return out;
}
