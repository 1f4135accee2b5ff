/* Tarballs of perf archive, read in place: layouts, names, damage, limits. */
#define _GNU_SOURCE
#include "tap.h"

#include <bzlib.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "elf/archive.h"

#define ID_A "aab48e456cb76a4f2886189f12180ec92ee8b57b"
#define ID_B "0102030405060708"

static char dir[] = "/tmp/sp-archive-XXXXXX";

static struct sp_build_id id_of(const char *hex, size_t pad_to)
{
	struct sp_build_id id = {.len = (uint8_t)(strlen(hex) / 2)};
	for (size_t i = 0; i < id.len; i++)
		sscanf(hex + 2 * i, "%2hhx", &id.bytes[i]);
	if (id.len < pad_to)
		id.len = (uint8_t)pad_to;
	return id;
}

static void put_header(struct sp_buf *b, const char *prefix, const char *name, char type,
		       unsigned size)
{
	uint8_t *h = sp_buf_zero(b, 512);
	snprintf((char *)h, 101, "%s", name);
	snprintf((char *)h + 124, 12, "%011o", size);
	memset(h + 148, ' ', 8);
	h[156] = (uint8_t)type;
	memcpy(h + 257, prefix ? "ustar\00000" : "ustar  ", 8);
	if (prefix)
		snprintf((char *)h + 345, 155, "%s", prefix);
	unsigned sum = 0;
	for (int i = 0; i < 512; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
}

static void put_member(struct sp_buf *b, const char *name, const char *text)
{
	size_t n = strlen(text);
	if (strlen(name) > 100) { /* GNU's way */
		put_header(b, NULL, "././@LongLink", 'L', (unsigned)strlen(name) + 1);
		sp_buf_add(b, name, strlen(name));
		sp_buf_zero(b, 512 - strlen(name) % 512);
	}
	put_header(b, NULL, name, '0', (unsigned)n);
	sp_buf_add(b, text, n);
	sp_buf_zero(b, (512 - n % 512) % 512);
}

static struct sp_buf tarball(void)
{
	struct sp_buf b = {0};
	char deep[300];
	put_header(&b, NULL, ".build-id/aa/b48e", '2', 0);
	put_header(&b, NULL, "usr/bin/prog/" ID_A "/", '5', 0);
	put_member(&b, "usr/bin/prog/" ID_A "/probes", "nobody asks for this one");
	put_member(&b, "usr/bin/prog/" ID_A "/elf", "the program");
	put_member(&b, "[kernel.kallsyms]/" ID_A "/kallsyms", "ffffffff81000000 T _text\n");
	snprintf(deep, sizeof deep, "usr/%0150d/" ID_B "/elf", 7);
	put_member(&b, deep, "a long name");
	put_member(&b, "old/perf/1112131415161718", "a file and no folder");
	put_header(&b, "usr/lib/prefixed", "2122232425262728/vdso", '0', 8);
	sp_buf_add(&b, "a prefix", 8);
	sp_buf_zero(&b, 504 + 1024); /* the end is two empty blocks */
	return b;
}

static const char *write_file(const char *name, const void *data, size_t size)
{
	static char path[300];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || sp_fd_write(fd, data, size, path, NULL) < 0)
		perror(path);
	close(fd);
	return path;
}

static struct sp_buf bzip2(const struct sp_buf *b)
{
	struct sp_buf out = {0};
	unsigned n = (unsigned)(b->len * 2 + 1000);
	BZ2_bzBuffToBuffCompress((char *)sp_buf_zero(&out, n), &n, (char *)b->data,
				 (unsigned)b->len, 1, 0, 0);
	out.len = n;
	return out;
}

/* What is found under an id, as text; "" when nothing is; the reason in why. */
static char why[200];
static const char *ask(struct sp_archives *a, const char *hex, size_t pad_to, const char *name)
{
	static char text[100];
	struct sp_build_id id = id_of(hex, pad_to);
	const uint8_t *data = NULL;
	size_t size = 0;
	text[0] = why[0] = '\0';
	if (sp_archives_find(a, &id, name, &data, &size, why, NULL) == 1)
		snprintf(text, sizeof text, "%.*s", (int)size, (const char *)data);
	return text;
}

static void test_members(const char *path, const char *what)
{
	struct sp_archives *a = NULL;
	sp_archives_add(&a, path);
	printf("# %s\n", what);
	tap_str(ask(a, ID_A, 0, "elf"), "the program", "a program is found by its build-id");
	tap_str(ask(a, ID_A, 0, "kallsyms"), "ffffffff81000000 T _text\n", "the kernel's symbols too");
	tap_str(ask(a, ID_A, 0, "vdso"), "", "what was not packed is not found");
	tap_str(ask(a, ID_B, 20, "elf"), "a long name",
		"a name of more than 100 bytes, asked with a padded id");
	tap_str(ask(a, "1112131415161718", 0, "elf"), "a file and no folder", "perf's old layout");
	tap_str(ask(a, "2122232425262728", 0, "vdso"), "a prefix", "POSIX's prefix of names");
	tap_str(why, "", "and nothing to complain about");
	sp_archives_free(a);
}

/* Every cut of the packed bytes: what was whole comes out, what is cut is told. */
static void test_cuts(const struct sp_buf *packed, size_t step, const char *what)
{
	bool wrong = false, silent = false;
	size_t found = 0;
	for (size_t n = 0; n < packed->len - (packed->data[0] == 'B' ? 0 : 1024); n += step) {
		struct sp_archives *a = NULL;
		sp_archives_add(&a, write_file("cut", packed->data, n));
		const char *got = ask(a, ID_A, 0, "elf");
		found += *got != '\0';
		wrong |= *got && strcmp(got, "the program") != 0;
		silent |= !*got && !*why;
		sp_archives_free(a);
	}
	tap_ok(!wrong, what);
	tap_ok(!silent, "what is missing in a cut tarball has its reason");
	tap_ok(found > 0 || packed->data[0] == 'B', "files before the cut are found");
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	struct sp_buf tar = tarball(), packed = bzip2(&tar), twice = {0};
	test_members(write_file("plain.tar", tar.data, tar.len), "plain");
	test_members(write_file("one.tar.bz2", packed.data, packed.len), "bzip2");

	struct sp_buf half = {.data = tar.data, .len = 2000};
	struct sp_buf rest = {.data = tar.data + 2000, .len = tar.len - 2000};
	struct sp_buf first = bzip2(&half), second = bzip2(&rest);
	sp_buf_add(&twice, first.data, first.len);
	sp_buf_add(&twice, second.data, second.len);
	test_members(write_file("two.tar.bz2", twice.data, twice.len), "two bzip2 streams in a row");

	test_cuts(&tar, 61, "a cut tarball gives whole files only");
	test_cuts(&packed, 1, "a cut bzip2 stream gives whole files only");

	struct sp_archives *a = NULL;
	sp_archives_add(&a, "/nonexistent.tar.bz2");
	sp_archives_add(&a, write_file("good", tar.data, tar.len));
	tap_str(ask(a, ID_A, 0, "elf"), "the program", "the second tarball is asked after a bad first");
	tap_str(ask(a, ID_B "09", 0, "elf"), "", "an id that begins like another one is another one");
	tap_ok(strstr(why, "nonexistent") != NULL, "the reason names the bad one");
	tap_ok(sp_archives_problem(a, 0) && !sp_archives_problem(a, 1), "which is the only one");
	sp_archives_free(a);
	tap_str(ask(NULL, ID_A, 0, "elf"), "", "without tarballs nothing is found");

	struct sp_buf liar = {0};
	put_header(&liar, NULL, "x/" ID_A "/elf", '0', 017777777777U);
	sp_buf_zero(&liar, 1024);
	a = NULL;
	sp_archives_add(&a, write_file("liar", liar.data, liar.len));
	tap_str(ask(a, ID_A, 0, "elf"), "", "a file that claims 2 GiB is not taken");
	tap_ok(strstr(why, "MiB") != NULL, "for its size");
	sp_archives_free(a);

	tar.data[600] ^= 1;
	a = NULL;
	sp_archives_add(&a, write_file("flip", tar.data, tar.len));
	tap_str(ask(a, ID_A, 0, "elf"), "", "a header with a wrong sum ends it");
	tap_ok(strstr(why, "damaged") != NULL, "and this is told");
	sp_archives_free(a);

	const char *good = write_file("good", packed.data, packed.len);
	tap_ok(sp_archives_is_tarball(good, NULL) == 1, "a packed tarball is one");
	tap_ok(sp_archives_is_tarball(dir, NULL) == 0, "a folder is none");
	const char *part = write_file("flip", tar.data, 511);
	tap_ok(sp_archives_is_tarball(part, NULL) == SP_ERR_INVALID, "less than a block is neither");

	for (const char *const *f = (const char *const[]){"plain.tar", "one.tar.bz2", "two.tar.bz2",
							  "cut", "good", "liar", "flip", NULL};
	     *f; f++) {
		char path[300];
		snprintf(path, sizeof path, "%s/%s", dir, *f);
		unlink(path);
	}
	rmdir(dir);
	sp_buf_deinit(&tar);
	sp_buf_deinit(&packed);
	sp_buf_deinit(&first);
	sp_buf_deinit(&second);
	sp_buf_deinit(&twice);
	sp_buf_deinit(&liar);
	return tap_done();
}
