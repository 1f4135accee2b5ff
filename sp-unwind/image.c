#include "image.h"

#include <stdlib.h>
#include <string.h>

#include "elf/content_hash.h"
#include "elf/minidebug.h"

struct un_object {
	int32_t pid;
	uint64_t start, end, ino;
	uint32_t maj, min;
	struct sp_build_id build_id;
	char *path;    /* owned */
	uint8_t *data; /* owned */
	size_t size;
};

/* Whether .eh_frame covers next to nothing of the code: then the rules, if any, are in a
 * .debug_frame, which stripped programs have in a separate file. Ordinary code has a byte of
 * .eh_frame for 7 to 20 bytes of text, and every program the start files' and the PLT's, which are
 * 136 bytes with gcc 12. */
static bool lacks_cfi(const struct sp_elf *e)
{
	uint64_t code = 0;
	for (size_t i = 0; i < e->n_segments; i++)
		if (e->segments[i].type == PT_LOAD && e->segments[i].flags & PF_X)
			code += e->segments[i].filesz;
	const struct sp_section *eh = sp_elf_section(e, ".eh_frame");
	if (sp_elf_section(e, ".debug_frame") || sp_elf_section(e, ".zdebug_frame"))
		return false;
	return eh ? eh->size < code / 128 + 192 : !sp_elf_segment(e, PT_GNU_EH_FRAME);
}

static struct sp_elf *find_debug(const struct sp_elf *e, const void *dirs)
{
	struct sp_elf *debug = lacks_cfi(e) ? calloc(1, sizeof *debug) : NULL;
	if (!debug)
		return NULL;
	struct sp_err err;
	if (e->path && sp_debug_file_find(debug, e, e->path, dirs, NULL, &err) > 0)
		return debug;
	if (sp_minidebug_open(debug, e, &err) > 0)
		return debug;
	free(debug);
	return NULL;
}

struct un_image *un_image_new(struct sp_elf *elf, const struct sp_debug_dirs *dirs,
			      struct sp_err *err)
{
	struct un_image *i = calloc(1, sizeof *i);
	if (!i) {
		sp_elf_close(elf);
		free(elf);
		return NULL;
	}
	i->image_foff = sp_elf_image_foff(elf);
	if (uw_module_new_later(&i->module, elf, find_debug, dirs, err) < 0) {
		free(i);
		return NULL;
	}
	return i;
}

void un_image_free(struct un_image *i)
{
	if (i)
		uw_module_free(i->module);
	free(i);
}

bool un_image_bias(const struct un_image *i, const struct sp_mapping *map, uint64_t *bias)
{
	return map->foff >= i->image_foff &&
	       sp_elf_bias(uw_module_elf(i->module), map->start, map->end - map->start,
			   map->foff - i->image_foff, bias);
}

void un_embedded_deinit(struct un_embedded *e)
{
	for (size_t i = 0; i < e->n; i++) {
		free(e->objects[i].path);
		free(e->objects[i].data);
	}
	free(e->objects);
	*e = (struct un_embedded){0};
}

int un_embedded_add(struct un_embedded *e, const struct sp_ext_object *o, struct sp_err *err)
{
	if (o->kind != SP_OBJECT_FILE || o->size > e->max_bytes - e->bytes ||
	    o->build_id_len > sizeof o->build_id)
		return 0;
	struct un_object kept = {.pid = o->pid,
				 .start = o->start,
				 .end = o->end,
				 .ino = o->ino,
				 .maj = o->maj,
				 .min = o->min,
				 .size = o->size};
	kept.build_id.len = o->build_id_len;
	memcpy(kept.build_id.bytes, o->build_id, o->build_id_len);
	kept.path = strndup(o->path, o->path_len);
	kept.data = malloc(o->size + 1);
	struct un_object *at = kept.path && kept.data ? SP_PUSH(&e->objects, &e->n, &e->cap) : NULL;
	if (!at) {
		free(kept.path);
		free(kept.data);
		return sp_err_nomem(err);
	}
	if (o->size)
		memcpy(kept.data, o->data, o->size);
	e->bytes += o->size;
	*at = kept;
	return 1;
}

static bool is_object(const struct un_object *o, const struct sp_file_query *q, int32_t pid)
{
	if (o->build_id.len && q->build_id.len)
		return sp_build_id_equal(&o->build_id, &q->build_id);
	if (strcmp(o->path, q->path) != 0 || (o->pid != -1 && o->pid != pid))
		return false;
	if (o->ino && q->ino)
		return o->ino == q->ino && o->maj == q->maj && o->min == q->min &&
		       (!q->content_hash || sp_content_is(o->data, o->size, q->content_hash));
	return !o->end || (o->start <= q->start && q->end <= o->end);
}

bool un_embedded_open(const struct un_embedded *e, struct sp_elf *elf,
		      const struct sp_file_query *q, int32_t pid)
{
	for (size_t i = e->n; i-- > 0;) {
		const struct un_object *o = &e->objects[i];
		if (is_object(o, q, pid) && sp_elf_init(elf, o->data, o->size, NULL) >= 0)
			return true;
	}
	return false;
}
