#include "elf/elf_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* e_phnum and e_shnum are 16 bits wide; the escape values of the gABI allow more sections, and no
 * real file has more than this. */
#define MAX_SEGMENTS 65535u
#define MAX_SECTIONS (1u << 20)

static struct sp_cursor at(const struct sp_elf *e, uint64_t foff, uint64_t len)
{
	struct sp_cursor c = {.bad = true};
	if (e->head && foff <= e->head_bytes && len <= e->head_bytes - foff)
		c = sp_elf_cursor(e, e->head + foff, len);
	else if (foff <= e->size && len <= e->size - foff)
		c = sp_elf_cursor(e, e->data + foff, len);
	return c;
}

/* An address-sized word. */
static uint64_t word(const struct sp_elf *e, struct sp_cursor *c)
{
	return e->is64 ? sp_cur_u64(c) : sp_cur_u32(c);
}

/* Of program headers. */
struct header {
	uint64_t phoff;
	uint32_t phnum;
	uint16_t phentsize;
};

static int read_header(struct sp_elf *e, struct header *h, struct sp_err *err)
{
	struct sp_cursor id = at(e, 0, EI_NIDENT);
	if (id.bad || memcmp(id.p, ELFMAG, SELFMAG) != 0)
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "not an ELF file");
	uint8_t class = id.p[EI_CLASS], order = id.p[EI_DATA];
	if ((class != ELFCLASS32 && class != ELFCLASS64) ||
	    (order != ELFDATA2LSB && order != ELFDATA2MSB))
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "ELF header: unknown class or byte order");
	e->is64 = class == ELFCLASS64;
	e->swap = order == ELFDATA2MSB;
	struct sp_cursor c = at(e, EI_NIDENT, e->is64 ? 48 : 36);
	e->type = sp_cur_u16(&c);
	e->machine = sp_cur_u16(&c);
	sp_cur_u32(&c); /* e_version */
	e->entry_svma = word(e, &c);
	h->phoff = word(e, &c);
	e->shoff = word(e, &c);
	sp_cur_u32(&c); /* e_flags */
	sp_cur_u16(&c); /* e_ehsize */
	h->phentsize = sp_cur_u16(&c);
	h->phnum = sp_cur_u16(&c);
	e->shentsize = sp_cur_u16(&c);
	e->shnum = sp_cur_u16(&c);
	e->shstrndx = sp_cur_u16(&c);
	if (c.bad)
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "ELF header is cut");
	return 0;
}

static void read_section(const struct sp_elf *e, struct sp_cursor *c, struct sp_section *s,
			 uint32_t *name)
{
	*name = sp_cur_u32(c);
	s->type = sp_cur_u32(c);
	s->flags = word(e, c);
	s->svma = word(e, c);
	s->foff = word(e, c);
	s->size = word(e, c);
	s->link = sp_cur_u32(c);
	s->info = sp_cur_u32(c);
	s->align = word(e, c);
	s->entsize = word(e, c);
}

static int read_segments(struct sp_elf *e, const struct header *h, struct sp_err *err)
{
	size_t entry = e->is64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
	if (!h->phnum || h->phentsize < entry || h->phoff >= e->size)
		return 0;
	size_t fit = (e->size - h->phoff) / h->phentsize;
	size_t n = h->phnum < fit ? h->phnum : fit;
	if (!n)
		return 0;
	e->segments = calloc(n, sizeof *e->segments);
	if (!e->segments)
		return sp_err_nomem(err);
	for (size_t i = 0; i < n; i++) {
		struct sp_segment *s = &e->segments[i];
		struct sp_cursor c = at(e, h->phoff + i * h->phentsize, entry);
		s->type = sp_cur_u32(&c);
		if (e->is64)
			s->flags = sp_cur_u32(&c);
		s->foff = word(e, &c);
		s->svma = word(e, &c);
		word(e, &c); /* p_paddr */
		s->filesz = word(e, &c);
		s->memsz = word(e, &c);
		if (!e->is64)
			s->flags = sp_cur_u32(&c);
		s->align = word(e, &c);
	}
	e->n_segments = n;
	return 0;
}

/* Section headers that do not hold together are ignored as a whole. */
int sp_elf_read_sections(struct sp_elf *e, struct sp_err *err)
{
	e->sections_unread = false;
	size_t entry = e->is64 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr);
	if (!e->shoff || e->shentsize < entry || e->shoff >= e->size)
		return 0;
	struct sp_section first = {0};
	uint32_t name;
	struct sp_cursor c = at(e, e->shoff, entry);
	read_section(e, &c, &first, &name);
	if (c.bad)
		return 0;
	if (!e->shnum)
		e->shnum = first.size < MAX_SECTIONS ? (uint32_t)first.size : 0;
	if (e->shstrndx == SHN_XINDEX)
		e->shstrndx = first.link;
	if (!e->shnum || e->shnum > (e->size - e->shoff) / e->shentsize)
		return 0;
	e->sections = calloc(e->shnum, sizeof *e->sections);
	uint32_t *names = calloc(e->shnum, sizeof *names);
	if (!e->sections || !names) {
		free(names);
		return sp_err_nomem(err);
	}
	e->n_sections = e->shnum;
	for (uint32_t i = 0; i < e->shnum; i++) {
		c = at(e, e->shoff + (uint64_t)i * e->shentsize, entry);
		read_section(e, &c, &e->sections[i], &names[i]);
	}
	struct sp_cursor strings = {.bad = true};
	if (e->shstrndx < e->shnum && e->sections[e->shstrndx].type != SHT_NOBITS)
		strings = at(e, e->sections[e->shstrndx].foff, e->sections[e->shstrndx].size);
	for (uint32_t i = 0; i < e->shnum; i++) {
		struct sp_cursor s = strings;
		sp_cur_skip(&s, names[i]);
		const char *text = sp_cur_str(&s);
		e->sections[i].name = text ? text : "";
	}
	free(names);
	return 0;
}

/* The content of the first note of an owner (of four bytes) and type, of 1 to max bytes. */
static const uint8_t *find_note(struct sp_cursor c, uint64_t align, const char owner[4],
				uint32_t wanted, size_t max, size_t *len)
{
	uint64_t pad = align == 8 ? 7 : 3;
	while (!c.bad && sp_cur_left(&c) >= 12) {
		uint32_t namesz = sp_cur_u32(&c), descsz = sp_cur_u32(&c), type = sp_cur_u32(&c);
		const uint8_t *name = sp_cur_bytes(&c, namesz);
		sp_cur_skip(&c, (0 - (uint64_t)namesz - (pad == 7 ? 4 : 0)) & pad);
		const uint8_t *desc = sp_cur_bytes(&c, descsz);
		if (name && desc && type == wanted && namesz == 4 && !memcmp(name, owner, 4) &&
		    descsz && descsz <= max) {
			*len = descsz;
			return desc;
		}
		uint64_t skip = (0 - (uint64_t)descsz) & pad;
		sp_cur_skip(&c, skip < sp_cur_left(&c) ? skip : sp_cur_left(&c));
	}
	return NULL;
}

const uint8_t *sp_elf_note(const struct sp_elf *e, const char owner[4], uint32_t type, size_t max,
			   size_t *len)
{
	const uint8_t *desc = NULL;
	for (size_t i = 0; !desc && i < e->n_segments; i++) {
		const struct sp_segment *s = &e->segments[i];
		if (s->type == PT_NOTE)
			desc = find_note(at(e, s->foff, s->filesz), s->align, owner, type, max, len);
	}
	return desc;
}

static void set_build_id(struct sp_elf *e, const uint8_t *bytes, size_t len)
{
	e->build_id.len = (uint8_t)len;
	memcpy(e->build_id.bytes, bytes, len);
}

static void segments_build_id(struct sp_elf *e)
{
	size_t len;
	const uint8_t *id = sp_elf_note(e, "GNU", NT_GNU_BUILD_ID, SP_BUILD_ID_MAX, &len);
	if (id)
		set_build_id(e, id, len);
}

static void sections_build_id(struct sp_elf *e)
{
	const uint8_t *id = NULL;
	size_t len;
	for (size_t i = 0; !id && i < e->n_sections; i++) {
		const struct sp_section *s = &e->sections[i];
		if (s->type == SHT_NOTE)
			id = find_note(at(e, s->foff, s->size), s->align, "GNU", NT_GNU_BUILD_ID,
				       SP_BUILD_ID_MAX, &len);
	}
	if (id)
		set_build_id(e, id, len);
}

static void free_tables(struct sp_elf *e)
{
	free(e->segments);
	free(e->sections);
}

/* Whether nothing is asked of the section headers to tell which file it is, and where it lies. */
static bool can_wait(const struct sp_elf *e)
{
	return e->build_id.len && sp_elf_segment(e, PT_LOAD);
}

int sp_elf_init_head(struct sp_elf *e, const void *data, size_t size, const void *head,
		     size_t head_bytes, struct sp_err *err)
{
	struct sp_elf out = {.data = data,
			     .size = size,
			     .head = head,
			     .head_bytes = head_bytes < size ? head_bytes : size};
	struct header h = {0};
	int rc = read_header(&out, &h, err);
	if (rc < 0)
		return rc;
	/* PN_XNUM: the real number is in the first section header's sh_info. */
	if (h.phnum == PN_XNUM) {
		struct sp_section first = {0};
		uint32_t name;
		struct sp_cursor c = at(&out, out.shoff, out.is64 ? 64 : 40);
		read_section(&out, &c, &first, &name);
		h.phnum = c.bad || first.info > MAX_SEGMENTS ? 0 : first.info;
	}
	rc = read_segments(&out, &h, err);
	segments_build_id(&out);
	out.head = NULL; /* sections have their names in the image */
	out.head_bytes = 0;
	out.sections_unread = head && can_wait(&out);
	if (rc >= 0 && !out.sections_unread)
		rc = sp_elf_read_sections(&out, err);
	if (rc < 0) {
		free_tables(&out);
		return rc;
	}
	if (!out.build_id.len)
		sections_build_id(&out);
	*e = out;
	return 0;
}

int sp_elf_init(struct sp_elf *e, const void *data, size_t size, struct sp_err *err)
{
	return sp_elf_init_head(e, data, size, NULL, 0, err);
}

int sp_elf_open_fd(struct sp_elf *e, int fd, const char *name, struct sp_err *err)
{
	struct sp_map_file map;
	int rc = sp_map_file_fd(&map, fd, name, err);
	if (rc < 0)
		return rc;
	struct sp_err why;
	rc = sp_elf_init(e, map.data, map.size, &why);
	if (rc < 0) {
		sp_map_file_close(&map);
		return sp_err_set(err, rc, 0, "cannot read %s: %s", name, why.msg);
	}
	e->map = map;
	e->path = strdup(name);
	if (!e->path) {
		sp_elf_close(e);
		return sp_err_nomem(err);
	}
	return 0;
}

int sp_elf_open(struct sp_elf *e, const char *path, struct sp_err *err)
{
	int fd = sp_file_open(path, 0, err);
	if (fd < 0)
		return fd;
	int rc = sp_elf_open_fd(e, fd, path, err);
	close(fd);
	return rc;
}

void sp_elf_close(struct sp_elf *e)
{
	free_tables(e);
	free(e->path);
	free(e->owned);
	sp_map_file_close(&e->map);
	*e = (struct sp_elf){0};
}

const struct sp_section *sp_elf_section(const struct sp_elf *e, const char *name)
{
	for (size_t i = 0; i < e->n_sections; i++)
		if (!strcmp(e->sections[i].name, name))
			return &e->sections[i];
	return NULL;
}

const struct sp_segment *sp_elf_segment(const struct sp_elf *e, uint32_t type)
{
	for (size_t i = 0; i < e->n_segments; i++)
		if (e->segments[i].type == type)
			return &e->segments[i];
	return NULL;
}

const uint8_t *sp_elf_at_svma(const struct sp_elf *e, uint64_t svma, size_t *left)
{
	for (size_t i = 0; i < e->n_segments; i++) {
		const struct sp_segment *s = &e->segments[i];
		if (s->type != PT_LOAD || svma < s->svma || svma - s->svma >= s->filesz)
			continue;
		uint64_t in = svma - s->svma;
		if (s->foff > e->size || in >= e->size - s->foff)
			continue;
		uint64_t n = s->filesz - in, room = e->size - s->foff - in;
		*left = n < room ? n : room;
		return e->data + s->foff + in;
	}
	return NULL;
}

bool sp_elf_debuglink(const struct sp_elf *e, const char **name, uint32_t *crc)
{
	const struct sp_section *s = sp_elf_section(e, ".gnu_debuglink");
	if (!s)
		return false;
	struct sp_cursor c = at(e, s->foff, s->size);
	*name = sp_cur_str(&c);
	if (c.bad || !**name)
		return false;
	sp_cur_skip(&c, (0 - (strlen(*name) + 1)) & 3);
	*crc = sp_cur_u32(&c);
	return !c.bad;
}

bool sp_elf_altlink(const struct sp_elf *e, const char **name, struct sp_build_id *id)
{
	const struct sp_section *s = sp_elf_section(e, ".gnu_debugaltlink");
	if (!s)
		return false;
	struct sp_cursor c = at(e, s->foff, s->size);
	*name = sp_cur_str(&c);
	size_t left = sp_cur_left(&c);
	if (c.bad || !**name || !left || left > SP_BUILD_ID_MAX)
		return false;
	id->len = (uint8_t)left;
	memcpy(id->bytes, c.p, left);
	return true;
}

void sp_build_id_hex(const struct sp_build_id *id, char out[2 * SP_BUILD_ID_MAX + 1])
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < id->len; i++) {
		out[2 * i] = digits[id->bytes[i] >> 4];
		out[2 * i + 1] = digits[id->bytes[i] & 15];
	}
	out[2 * id->len] = 0;
}

bool sp_build_id_recorded(const struct sp_build_id *recorded, const struct sp_build_id *file)
{
	if (!file->len)
		return false;
	size_t n = recorded->len < file->len ? recorded->len : file->len;
	if (memcmp(recorded->bytes, file->bytes, n) != 0 || (n < file->len && n < 20))
		return false;
	for (size_t i = n; i < recorded->len; i++)
		if (recorded->bytes[i])
			return false;
	return true;
}
