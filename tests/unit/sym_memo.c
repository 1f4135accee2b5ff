/* The block of answers that the cache keeps: by value, cut, flipped, and with lies in it. And its
 * folder: whose it must be. */
#include <fcntl.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/le.h"
#include "sym/cachedir.h"
#include "sym/memo.h"
#include "tap.h"

static const char key[] = "which files";
static struct sp_name levels[SP_MEMO_LEVELS_MAX];

static const struct sp_name inner[] = {{"in(int)", "/a/b.c", 7, true}, {"out", "/a/b.c", 9, false}};
static const struct sp_name outer[] = {{"out", NULL, 0, false}};
static const struct sp_name nameless[] = {{NULL, "/a/c.c", 3, false}};

static bool write_some(struct sp_buf *out, const struct sp_memo *old)
{
	struct sp_memo_answer fresh[] = {{0x2000, 0x1f00, inner, 2},
					 {0x1000, 0x1000, outer, 1},
					 {0x3000, 0, NULL, 0},
					 {0x1000, 0x1000, outer, 1}};
	struct sp_memo_answer more[] = {{0x2800, 0x2800, nameless, 1}, {0x1000, 0x1000, outer, 1}};
	const struct sp_memo_file file = {1, 2, 3, 4, 5, "/a/b.dwo"};
	return old ? sp_memo_write(out, key, sizeof key, &file, 1, old, more, 2)
		   : sp_memo_write(out, key, sizeof key, &file, 1, NULL, fresh, 4);
}

/* "start: function file line inlined, …" of an address. */
static const char *answer(const struct sp_memo *m, uint64_t svma)
{
	static char text[400];
	struct sp_memo_answer a;
	if (!sp_memo_find(m, svma, levels, &a))
		return "never asked";
	int n = snprintf(text, sizeof text, "%x:", (unsigned)a.func_start);
	for (uint32_t i = 0; i < a.n_levels; i++)
		n += snprintf(text + n, sizeof text - (size_t)n, " %s %s %u %d,",
			      a.levels[i].function ? a.levels[i].function : "-",
			      a.levels[i].file ? a.levels[i].file : "-", a.levels[i].line,
			      a.levels[i].inlined);
	return text;
}

static void test_values(const struct sp_buf *b)
{
	struct sp_memo m, merged;
	struct sp_memo_file f;
	tap_ok(sp_memo_open(&m, b->data, b->len, key, sizeof key) == 1, "a block is opened by its key");
	tap_ok(sp_memo_open(&m, b->data, b->len, "which filez", sizeof key) == 0, "and by no other one");
	sp_memo_open(&m, b->data, b->len, key, sizeof key);
	tap_str(answer(&m, 0x2000), "1f00: in(int) /a/b.c 7 1, out /a/b.c 9 0,",
		"all levels of an answer come back");
	tap_str(answer(&m, 0x1000), "1000: out - 0 0,", "without a file where there was none");
	tap_str(answer(&m, 0x3000), "0:", "that nothing is known is an answer");
	tap_str(answer(&m, 0x1001), "never asked", "another address has none");
	tap_str(answer(&m, UINT64_MAX), "never asked", "nor has one behind them all");
	tap_eq(m.n_answers, 3, "of two equal answers one is kept");
	tap_ok(sp_memo_file(&m, 0, &f) && f.dev == 1 && f.ino == 2 && f.size == 3 && f.mtime_ns == 4 &&
		       f.ctime_ns == 5 && !strcmp(f.path, "/a/b.dwo") && !sp_memo_file(&m, 1, &f),
	       "the other files come back");
	struct sp_buf two = {0};
	tap_ok(write_some(&two, &m) && sp_memo_open(&merged, two.data, two.len, key, sizeof key),
	       "new answers are added to old ones");
	tap_str(answer(&merged, 0x2000), "1f00: in(int) /a/b.c 7 1, out /a/b.c 9 0,", "these stay");
	tap_str(answer(&merged, 0x2800), "2800: - /a/c.c 3 0,", "and the new ones are there");
	tap_eq(merged.n_answers, 4, "each once");
	sp_buf_deinit(&two);
}

/* Whatever the bytes say: only the memory of the block is read. */
static void ask_all(const uint8_t *data, size_t size)
{
	struct sp_memo m;
	struct sp_memo_answer a;
	struct sp_memo_file f;
	volatile size_t sum __attribute__((unused)) = 0;
	if (!sp_memo_open(&m, data, size, key, sizeof key))
		return;
	for (uint64_t svma = 0x1000; svma <= 0x3000; svma += 0x800)
		if (sp_memo_find(&m, svma, levels, &a))
			for (uint32_t i = 0; i < a.n_levels; i++)
				sum += (a.levels[i].function ? strlen(a.levels[i].function) : 0) +
				       (a.levels[i].file ? strlen(a.levels[i].file) : 0);
	for (uint32_t i = 0; i < m.n_files && i < 10; i++)
		if (sp_memo_file(&m, i, &f))
			sum += strlen(f.path);
}

static void test_damage(const struct sp_buf *b)
{
	struct sp_memo m;
	bool refused = true;
	for (size_t len = 0; len < b->len; len++) {
		uint8_t *cut = malloc(len ? len : 1);
		memcpy(cut, b->data, len);
		refused &= !sp_memo_open(&m, cut, len, key, sizeof key);
		free(cut);
	}
	tap_ok(refused, "cut anywhere it is refused");
	uint8_t *copy = malloc(b->len);
	memcpy(copy, b->data, b->len);
	for (size_t bit = 0; bit < 8 * b->len; bit++) {
		copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
		refused &= !sp_memo_open(&m, copy, b->len, key, sizeof key);
		copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	tap_ok(refused, "with any bit flipped it is refused");
	/* One who writes the checksum too. */
	for (size_t at = 12; at < b->len; at++) {
		static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
		uint8_t was = copy[at];
		for (size_t i = 0; i < sizeof values; i++) {
			copy[at] = values[i];
			sp_put32(copy + 8, libdeflate_crc32(0, copy + 12, b->len - 12));
			ask_all(copy, b->len);
		}
		copy[at] = was;
	}
	tap_ok(true, "with a checksum that fits nothing outside of it is read");
	free(copy);
}

static bool in_folder(const char *name)
{
	struct sp_cachedir d;
	struct sp_map_file m;
	bool found = sp_cachedir_open(&d) && sp_cachedir_map(&d, name, &m);
	if (found)
		sp_map_file_close(&m);
	sp_cachedir_close(&d);
	return found;
}

static bool put(const char *name)
{
	struct sp_cachedir d;
	bool ok = sp_cachedir_open(&d) && sp_cachedir_write(&d, name, "bytes", 5);
	sp_cachedir_close(&d);
	return ok;
}

static void test_folder(void)
{
	char base[] = "/tmp/sp-memo-XXXXXX", dir[200], file[300];
	if (!tap_ok(mkdtemp(base) != NULL, "a folder to play in"))
		return;
	snprintf(dir, sizeof dir, "%s/stackpulse/symbols", base);
	snprintf(file, sizeof file, "%s/one", dir);
	setenv("XDG_CACHE_HOME", base, 1);
	tap_ok(!in_folder("one"), "an empty cache has nothing");
	tap_ok(put("one") && in_folder("one"), "what was written is found");
	tap_ok(chmod(file, 0666) == 0 && !in_folder("one"), "but not when others may write to it");
	tap_ok(chmod(file, 0600) == 0 && in_folder("one"), "only when they may not");
	tap_ok(chmod(dir, 0777) == 0 && !in_folder("one") && !put("two"),
	       "nor when they may write to the folder");
	chmod(dir, 0700);
	char link[300], fifo[300];
	snprintf(link, sizeof link, "%s/link", dir);
	snprintf(fifo, sizeof fifo, "%s/fifo", dir);
	tap_ok(symlink(file, link) == 0 && !in_folder("link"), "links are not followed");
	tap_ok(mkfifo(fifo, 0600) == 0 && !in_folder("fifo"), "a fifo is no file, and is not waited for");
	tap_ok(put("link") && in_folder("link"), "what is written takes a link's place");
	if (geteuid() == 0) {
		tap_ok(chown(dir, 12345, 12345) == 0 && !in_folder("one") && !put("two"),
		       "another user's folder is not used");
		tap_ok(chown(dir, 0, 0) == 0 && chown(file, 12345, 12345) == 0 && !in_folder("one"),
		       "nor another user's file");
		char home[200];
		snprintf(home, sizeof home, "%s/home", base);
		setenv("XDG_CACHE_HOME", home, 1);
		tap_ok(mkdir(home, 0755) == 0 && chown(home, 12345, 12345) == 0 && !put("one") &&
			       rmdir(home) == 0,
		       "and nothing is made in another user's home");
	}
	setenv("XDG_CACHE_HOME", "relative", 1);
	tap_ok(!put("one"), "a relative XDG_CACHE_HOME is none");
	unlink(file);
	unlink(link);
	unlink(fifo);
	rmdir(dir);
	dir[strlen(base) + strlen("/stackpulse")] = 0;
	rmdir(dir);
	rmdir(base);
}

int main(void)
{
	struct sp_buf b = {0};
	unsetenv("HOME");
	if (tap_ok(write_some(&b, NULL), "answers are written")) {
		test_values(&b);
		test_damage(&b);
	}
	sp_buf_deinit(&b);
	test_folder();
	return tap_done();
}
