/* The name of a function's entry: its linkage name where there is one, found through abstract
 * origins and specifications, which may lie in other units and files; else its name behind the
 * names of what it is declared in. */
#include <stdlib.h>
#include <string.h>

#include "sym/dwarf_impl.h"

#define MAX_HOPS 16   /* origin of an origin … */
#define MAX_SCOPES 64 /* deeper ones are left out */

struct entry {
	struct dw_unit *u;
	uint64_t off;
	uint16_t tag;
	const char *linkage, *name;
	struct dw_val origin; /* DW_V_REF, or nothing */
};

static bool read_entry(struct dw_unit *u, uint64_t off, struct entry *e)
{
	*e = (struct entry){.u = u, .off = off};
	if (!dw_unit_root(u) || !dw_abbrevs_get(u))
		return false;
	struct sp_cursor c = dw_unit_cursor(u, off);
	const struct dw_abbrev *a = dw_abbrev(u->abbrevs, sp_cur_uleb(&c));
	if (c.bad || !a)
		return false;
	e->tag = a->tag;
	struct sp_cursor list = dw_attrs(u->abbrevs, a);
	struct dw_attr at;
	while (!c.bad && dw_attr_next(&list, &at)) {
		struct dw_val v;
		switch (at.at) {
		case DW_AT_linkage_name:
		case DW_AT_MIPS_linkage_name:
			dw_attr_read(u, &c, &at, &v);
			e->linkage = v.str;
			break;
		case DW_AT_name:
			dw_attr_read(u, &c, &at, &v);
			e->name = v.str;
			break;
		case DW_AT_abstract_origin:
		case DW_AT_specification:
			dw_attr_read(u, &c, &at, &v);
			if (v.class == DW_V_REF)
				e->origin = v;
			break;
		default:
			dw_attr_skip(u, &c, at.form);
			break;
		}
	}
	dw_attrs_done(u, a, &list);
	return true;
}

static bool has_scopes(const struct dw_unit *u)
{
	switch (u->language) {
	case DW_LANG_C89:
	case DW_LANG_C:
	case DW_LANG_C99:
	case DW_LANG_C11:
	case 0x2c:       /* DW_LANG_C17 */
	case DW_LANG_Go: /* names hold their package */
	case DW_LANG_Mips_Assembler:
		return false;
	default:
		return true;
	}
}

/* The offsets of the entries that enclose off, outermost first, without the root. */
static size_t find_scopes(struct dw_unit *u, uint64_t off, uint64_t scopes[MAX_SCOPES])
{
	struct sp_cursor c = dw_unit_cursor(u, u->root_off);
	const uint8_t *base = dw_section(u->obj, DW_INFO).p;
	size_t depth = 0;
	while (!c.bad && c.p < c.end) {
		uint64_t at_off = (uint64_t)(c.p - base);
		if (at_off >= off)
			return at_off == off ? (depth < MAX_SCOPES ? depth : MAX_SCOPES) : 0;
		uint64_t code = sp_cur_uleb(&c);
		if (!code) {
			if (!depth--)
				return 0;
			continue;
		}
		const struct dw_abbrev *a = dw_abbrev(u->abbrevs, code);
		if (!a || !dw_work(u->obj->d, 8))
			return 0;
		uint64_t sibling = dw_skip_to_sibling(u, &c, a);
		if (!(a->flags & DW_CHILDREN))
			continue;
		if (sibling > at_off && sibling <= off) {
			c.p = base + sibling;
			continue;
		}
		if (depth < MAX_SCOPES)
			scopes[depth] = at_off;
		depth++;
	}
	return 0;
}

static const char *scope_name(const struct entry *e)
{
	switch (e->tag) {
	case DW_TAG_namespace:
	case DW_TAG_module:
		return e->name ? e->name : "(anonymous namespace)";
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_union_type:
	case DW_TAG_interface_type:
	case DW_TAG_enumeration_type:
		return e->name ? e->name : "{unnamed type}";
	case DW_TAG_subprogram:
		return e->name;
	default:
		return NULL;
	}
}

static const char *scoped_name(struct dw_unit *u, uint64_t off, const char *name)
{
	uint64_t scopes[MAX_SCOPES];
	size_t n = has_scopes(u) ? find_scopes(u, off, scopes) : 0;
	struct sp_buf b = {0};
	for (size_t i = 1; i < n; i++) {
		struct entry e;
		const char *part = read_entry(u, scopes[i], &e) ? scope_name(&e) : NULL;
		if (part && strlen(part) < 1024) {
			sp_buf_str(&b, part);
			sp_buf_str(&b, "::");
		}
	}
	const char *out = name;
	if (b.len) {
		sp_buf_str(&b, name);
		if (!b.failed)
			out = sp_strpool_add(&u->obj->d->strings, (const char *)b.data, b.len);
	}
	sp_buf_deinit(&b);
	return out;
}

static struct dw_name find_name(struct dw_unit *u, uint64_t off)
{
	struct dw_name found = {0};
	const char *name = NULL;
	struct dw_unit *last = u;
	uint64_t last_off = off;
	for (int hop = 0; hop < MAX_HOPS; hop++) {
		struct entry e;
		if (!read_entry(u, off, &e))
			break;
		last = u;
		last_off = off;
		name = name ? name : e.name;
		if (e.linkage && *e.linkage) {
			found.linkage = e.linkage;
			found.name = name;
			return found;
		}
		if (e.origin.class != DW_V_REF)
			break;
		off = e.origin.u;
		if (e.origin.obj != u->obj || off < u->off || off >= u->end)
			u = dw_unit_at(e.origin.obj, off);
		if (!u)
			break;
	}
	if (name && *name)
		found.name = scoped_name(last, last_off, name);
	return found;
}

struct dw_name dw_name_of(struct dw_unit *u, uint64_t off)
{
	struct dw_obj *o = u->obj;
	uint32_t at = sp_map64_get(&o->name_of, off);
	if (at != SP_NOT_FOUND)
		return o->names[at];
	struct dw_name found = find_name(u, off);
	struct dw_name *slot = SP_PUSH(&o->names, &o->n_names, &o->names_cap);
	if (slot) {
		*slot = found;
		sp_map64_put(&o->name_of, off, (uint32_t)o->n_names - 1);
	}
	return found;
}
