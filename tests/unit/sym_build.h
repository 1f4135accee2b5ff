/* Programs that the symbol tests compile for themselves, and what they know of them. */
#ifndef SP_TESTS_SYM_BUILD_H
#define SP_TESTS_SYM_BUILD_H

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "elf/elf_file.h"
#include "tap.h"

static char build_dir[] = "/tmp/sp-sym-XXXXXX";

static inline const char *in_build(const char *name)
{
	static char paths[8][300];
	static unsigned turn;
	char *p = paths[turn++ % 8];
	snprintf(p, sizeof paths[0], "%s/%s", build_dir, name);
	return p;
}

static inline void build_write(const char *name, const void *data, size_t size)
{
	FILE *f = fopen(in_build(name), "w");
	if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) {
		perror(name);
		exit(99);
	}
}

/* A shell command in the build folder; true when it succeeds. */
static inline bool build_run(const char *command)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		if (chdir(build_dir) < 0)
			_exit(98);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	int status = -1;
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status == 0;
}

static inline void build_end(void)
{
	build_run("rm -rf \"$PWD\"");
}

/* The value of a symbol of .symtab, by a plain search. */
static inline uint64_t symbol_value(const struct sp_elf *e, const char *name)
{
	for (size_t i = 0; i < e->n_sections; i++) {
		const struct sp_section *s = &e->sections[i];
		if (s->type != SHT_SYMTAB || s->link >= e->n_sections)
			continue;
		const char *strings = (const char *)e->data + e->sections[s->link].foff;
		for (size_t at = 0; at + sizeof(Elf64_Sym) <= s->size; at += sizeof(Elf64_Sym)) {
			Elf64_Sym sym;
			memcpy(&sym, e->data + s->foff + at, sizeof sym);
			if (!strcmp(strings + sym.st_name, name))
				return sym.st_value;
		}
	}
	return 0;
}

#endif
