#include "answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

size_t answer_length(const char *text, size_t n)
{
	for (const char *p = text; p < text + n;) {
		const char *eol = memchr(p, '\n', (size_t)(text + n - p));
		if (!eol)
			return 0;
		if (eol == p || (eol == p + 1 && *p == '\r'))
			return (size_t)(eol + 1 - text);
		p = eol + 1;
	}
	return 0;
}

/* The number behind the last colon, which is cut off ("?" is 0); false when there is none. */
static bool cut_number(char *text, uint32_t *out)
{
	char *colon = strrchr(text, ':'), *end;
	if (colon && !strcmp(colon, ":?")) {
		*colon = 0;
		*out = 0;
		return true;
	}
	if (!colon || colon[1] < '0' || colon[1] > '9')
		return false;
	errno = 0;
	unsigned long long v = strtoull(colon + 1, &end, 10);
	if (*end || errno)
		return false;
	*colon = 0;
	*out = v > UINT32_MAX ? 0 : (uint32_t)v;
	return true;
}

/* "FILE:LINE" or "FILE:LINE:COLUMN", and what addr2line may put behind: " (discriminator 3)". */
static void parse_place(char *text, struct sp_symbol_level *l)
{
	uint32_t last, line;
	size_t len = strlen(text);
	char *note = len && text[len - 1] == ')' ? strrchr(text, '(') : NULL;
	if (note && note > text && note[-1] == ' ')
		note[-1] = 0;
	if (!cut_number(text, &last))
		last = 0;
	else if (cut_number(text, &line))
		last = line;
	if (!*text || !strcmp(text, "??"))
		return;
	l->file = text;
	l->line = last;
}

static char *next_line(char **at, char *end)
{
	char *line = *at, *eol = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
	if (!eol)
		return NULL;
	*at = eol + 1;
	if (eol > line && eol[-1] == '\r')
		eol--;
	*eol = 0;
	return line;
}

static const char *value_of(const char *line, const char *key)
{
	size_t n = strlen(key);
	return !strncmp(line, key, n) ? line + n : NULL;
}

/* The lines of --verbose, "  KEY: VALUE", from the first on; *line is then the one behind them.
 * Other keys say nothing that is used. *start: where the function begins, if that is told. */
static void parse_details(char **line, char **at, char *end, struct sp_symbol_level *l,
			  uint64_t *start)
{
	for (; *line && !strncmp(*line, "  ", 2); *line = next_line(at, end)) {
		const char *file = value_of(*line, "  Filename: ");
		const char *number = value_of(*line, "  Line: ");
		const char *address = value_of(*line, "  Function start address: 0x");
		if (file && *file && strcmp(file, "??") != 0)
			l->file = file;
		if (number)
			l->line = (uint32_t)strtoul(number, NULL, 10);
		if (address)
			*start = strtoull(address, NULL, 16);
	}
	l->line = l->file ? l->line : 0;
}

int answer_parse(char *text, size_t n, uint64_t svma, struct sp_symbol_level *levels,
		 struct sp_symbols *out)
{
	if (memchr(text, 0, n))
		return -1;
	char *at = text, *end = text + n, *line = next_line(&at, end), *rest;
	size_t n_levels = 0;
	uint64_t start = UINT64_MAX;
	bool known = false;
	if (line && line[0] == '0' && line[1] == 'x') {
		if (strtoull(line, &rest, 16) != svma || *rest)
			return -1;
		line = next_line(&at, end);
	}
	while (line && *line) {
		char *place = next_line(&at, end);
		if (!place || !*place || n_levels == ANSWER_LEVELS)
			return -1;
		struct sp_symbol_level *l = &levels[n_levels++];
		*l = (struct sp_symbol_level){0};
		if (strcmp(line, "??") != 0)
			l->name = line;
		start = UINT64_MAX; /* of the last level */
		line = place;
		if (value_of(place, "  Filename: ")) {
			parse_details(&line, &at, end, l, &start);
		} else {
			parse_place(place, l);
			line = next_line(&at, end);
		}
		known |= l->name || l->file;
	}
	if (!line || !n_levels)
		return -1;
	*out = (struct sp_symbols){.levels = levels,
				   .n = n_levels,
				   .function_offset = start <= svma ? svma - start : 0};
	return known && levels[n_levels - 1].name ? 1 : 0;
}

bool answer_question(struct sp_buf *b, const char *path, uint64_t svma)
{
	char quote = strchr(path, '"') ? '\'' : '"';
	if (strchr(path, '\n') || strchr(path, '\r') || strchr(path, quote))
		return false;
	b->len = 0;
	sp_buf_printf(b, "CODE %c%s%c 0x%" PRIx64 "\n", quote, path, quote, svma);
	return !b->failed;
}
