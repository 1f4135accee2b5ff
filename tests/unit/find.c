/* Finding the recorded file: path maps, identity, replaced, deleted and odd files. */
#define _GNU_SOURCE
#include "tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "elf/content_hash.h"
#include "elf/find.h"
#include "elf/zip.h"

static char dir[] = "/tmp/sp-find-XXXXXX";
static struct sp_buf self; /* a good ELF file: this program */
static char why[200];

static const char *in_dir(const char *name)
{
	static char paths[4][300];
	static unsigned turn;
	char *p = paths[turn++ % 4];
	snprintf(p, sizeof paths[0], "%s/%s", dir, name);
	return p;
}

/* Write a file: n_before zero bytes, then data. */
static struct stat put(const char *path, size_t n_before, const void *data, size_t size)
{
	struct stat st = {0};
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, (off_t)n_before) < 0 ||
	    pwrite(fd, data, size, (off_t)n_before) != (ssize_t)size || fstat(fd, &st) < 0)
		perror(path);
	close(fd);
	return st;
}

static int find_with(const struct sp_find_options *o, const struct sp_file_query *q, char path[300],
		     uint64_t *image)
{
	struct sp_elf e;
	int rc = sp_find_elf(&e, o, q, why, NULL);
	path[0] = '\0';
	if (rc == SP_FOUND || rc == SP_FOUND_BY_PATH) {
		snprintf(path, 300, "%s", e.path);
		*image = sp_elf_image_foff(&e);
		sp_elf_close(&e);
	}
	return rc;
}

static int find(const struct sp_file_query *q)
{
	static const struct sp_find_options none;
	char path[300];
	uint64_t image;
	return find_with(&none, q, path, &image);
}

static const char *map_of(const char *const *maps, size_t n, const char *path)
{
	static char out[100];
	const struct sp_find_options o = {.path_maps = maps, .n_path_maps = n};
	return sp_path_map(&o, path, out, sizeof out) ? out : "-";
}

static void test_path_map(void)
{
	static const char *const maps[] = {"/a=/x", "/a/b=/y/", "/c/=/z", "odd", "=/e", "/=/root"};
	tap_str(map_of(maps, 5, "/a/f"), "/x/f", "a path below OLD moves to NEW");
	tap_str(map_of(maps, 5, "/a"), "/x", "OLD itself moves");
	tap_str(map_of(maps, 5, "/ab/f"), "-", "half a component does not fit");
	tap_str(map_of(maps, 5, "/a/b/f"), "/y/f", "the longest OLD wins");
	tap_str(map_of(maps, 5, "/c/f"), "/z/f", "a final slash of OLD does not matter");
	tap_str(map_of(maps, 5, "/q"), "-", "nothing fits");
	tap_str(map_of(maps, 6, "/q"), "/root/q", "the root fits all");
	static const char *const twice[] = {"/a=/b", "/b=/c"};
	tap_str(map_of(twice, 2, "/a/f"), "/b/f", "a path is mapped once");
	char small[4];
	const struct sp_find_options o = {.path_maps = maps, .n_path_maps = 1};
	tap_ok(!sp_path_map(&o, "/a/f", small, sizeof small), "what does not fit in is refused");
}

/* The file is a copy: what path maps, debug folders and symfs lead to. hash: another content's, by
 * its last byte. */
static void test_elsewhere(const char *file, struct sp_build_id id,
			   uint8_t hash[SP_CONTENT_HASH_BYTES])
{
	char map[700];
	snprintf(map, sizeof map, "/recorded=%s", dir);
	const char *maps[] = {map};
	struct sp_find_options o = {.path_maps = maps, .n_path_maps = 1};
	char path[300];
	uint64_t image;
	struct sp_file_query q = {.path = "/recorded/prog", .live_pid = -1};
	tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND, "a path map's file is chosen");
	tap_str(path, file, "the mapped path was opened");
	q.ino = 5;
	tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND_BY_PATH,
	       "a copy has another inode, which is no reason to refuse it");
	q.content_hash = hash;
	tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND_OTHER,
	       "a path map's file with another content is refused");
	hash[19] ^= 1;
	tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND, "one with the same is taken");
	const char *dirs[] = {dir};
	struct sp_find_options debug = {.debug_dirs = dirs, .n_debug_dirs = 1};
	q.path = "/prog";
	tap_eq((uint64_t)find_with(&debug, &q, path, &image), SP_FOUND,
	       "a copy below a debug folder is found by its path");
	tap_str(path, file, "there");
	hash[0] ^= 1;
	tap_eq((uint64_t)find_with(&debug, &q, path, &image), SP_FOUND_OTHER,
	       "by its content only");
	q.content_hash = NULL;
	tap_eq((uint64_t)find_with(&debug, &q, path, &image), SP_FOUND_NOTHING,
	       "without a hash it is not looked for");
	q.path = "/recorded/prog";
	q.build_id = id;
	q.build_id.bytes[0] ^= 1;
	tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND_OTHER,
	       "a path map's file with another build-id is refused");
	o = (struct sp_find_options){.symfs = dir};
	q = (struct sp_file_query){.path = "/prog", .live_pid = -1};
	tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND, "symfs is put before paths");
}

static void test_identity(void)
{
	const char *file = in_dir("prog");
	struct stat st = put(file, 0, self.data, self.len);
	struct sp_elf e;
	if (sp_elf_open(&e, file, NULL) < 0)
		tap_ok(false, "the copy opens");
	struct sp_build_id id = e.build_id;
	sp_elf_close(&e);
	tap_ok(id.len == 20, "the program has a build-id");

	struct sp_file_query q = {.path = file, .live_pid = -1};
	tap_eq((uint64_t)find(&q), SP_FOUND_BY_PATH, "without identity it is taken on its path");
	q.build_id = id;
	q.ino = 1; /* a build-id outranks an inode */
	tap_eq((uint64_t)find(&q), SP_FOUND, "the same build-id is accepted");
	q.build_id.bytes[3] ^= 1;
	tap_eq((uint64_t)find(&q), SP_FOUND_OTHER, "another build-id is refused");
	tap_ok(strstr(why, "another build-id") != NULL, "and said");
	q.build_id = (struct sp_build_id){0};
	q.maj = major(st.st_dev);
	q.min = minor(st.st_dev);
	q.ino = st.st_ino;
	tap_eq((uint64_t)find(&q), SP_FOUND, "the same device and inode are accepted");
	q.min++;
	tap_eq((uint64_t)find(&q), SP_FOUND_OTHER, "another device is refused");
	q.min--;
	q.ino++;
	tap_eq((uint64_t)find(&q), SP_FOUND_OTHER, "another inode is refused");
	char want[60];
	snprintf(want, sizeof want, "and %llu", (unsigned long long)q.ino);
	tap_ok(strstr(why, want) != NULL, "and the recorded one said");

	uint8_t hash[SP_CONTENT_HASH_BYTES];
	sp_content_hash(self.data, self.len, hash);
	q.content_hash = hash;
	tap_eq((uint64_t)find(&q), SP_FOUND, "the same content is accepted in another inode");
	hash[19] ^= 1;
	q.ino--;
	tap_eq((uint64_t)find(&q), SP_FOUND_OTHER, "another content is refused in the same inode");
	tap_ok(strstr(why, "another content than the recorded file") != NULL, "and said");
	q.build_id = id;
	tap_eq((uint64_t)find(&q), SP_FOUND, "a build-id outranks the content");
	test_elsewhere(file, id, hash);
	unlink(file);
}

static void test_odd_files(void)
{
	struct sp_file_query q = {.live_pid = -1};
	q.path = in_dir("none");
	tap_eq((uint64_t)find(&q), SP_FOUND_NOTHING, "no file, no ELF");
	q.path = in_dir("fifo");
	if (mkfifo(q.path, 0600) == 0)
		tap_eq((uint64_t)find(&q), SP_FOUND_NOTHING, "a fifo is not waited for");
	unlink(q.path);
	q.path = in_dir("text");
	put(q.path, 0, "root:x:0:0\n", 11);
	tap_eq((uint64_t)find(&q), SP_FOUND_NOTHING, "a text is no ELF file");
	tap_ok(strstr(why, "not an ELF file") != NULL, "and that is said");
	unlink(q.path);
	q.path = "[vdso]";
	tap_eq((uint64_t)find(&q), SP_FOUND_NOTHING, "a name in brackets is no path");

	q.path = in_dir("a b (deleted)");
	struct stat st = put(q.path, 0, self.data, self.len);
	tap_eq((uint64_t)find(&q), SP_FOUND_BY_PATH, "a name may end in (deleted)");
	unlink(q.path);
	st = put(in_dir("a b"), 0, self.data, self.len);
	tap_eq((uint64_t)find(&q), SP_FOUND_OTHER,
	       "a deleted file's name is not enough for what stands there now");
	q.ino = st.st_ino;
	tap_eq((uint64_t)find(&q), SP_FOUND, "with the same inode it is the file");
	unlink(in_dir("a b"));
	q.path = in_dir("new\\012line");
	put(in_dir("new\nline"), 0, self.data, self.len);
	q.ino = 0;
	tap_eq((uint64_t)find(&q), SP_FOUND_BY_PATH, "the kernel's escape of a newline is undone");
	unlink(in_dir("new\nline"));

	char path[300];
	uint64_t image = 0;
	static const struct sp_find_options none;
	q.path = in_dir("lib.apk");
	put(q.path, 0x5000, self.data, self.len);
	q.foff = 0x6000;
	tap_eq((uint64_t)find_with(&none, &q, path, &image), SP_FOUND_BY_PATH,
	       "an ELF image inside an archive is found from its mapping's offset");
	tap_eq(image, 0x5000, "and its place in the file is known");
	unlink(q.path);
}

/* DIR/.build-id/xx/yyyy/elf: perf's cache, and what perf archive packs of it. */
static void test_caches(void)
{
	struct sp_elf me;
	if (sp_elf_open(&me, "/proc/self/exe", NULL) < 0)
		return;
	char hex[2 * SP_BUILD_ID_MAX + 1], path[300];
	char home[300], ids[350], two[400], rest[600], other[600], file[700];
	sp_build_id_hex(&me.build_id, hex);
	snprintf(home, sizeof home, "%s/.debug", dir);
	snprintf(ids, sizeof ids, "%s/.build-id", home);
	snprintf(two, sizeof two, "%s/%.2s", ids, hex);
	snprintf(rest, sizeof rest, "%s/%s", two, hex + 2);
	snprintf(other, sizeof other, "%s/%.30s", two, hex + 2);
	snprintf(file, sizeof file, "%s/elf", rest);
	const char *const folders[] = {home, ids, two, rest};
	for (int i = 0; i < 4; i++)
		mkdir(folders[i], 0755);
	put(file, 0, self.data, self.len);
	uint64_t image;
	struct sp_find_options o = {0};
	struct sp_file_query q = {.path = "/nowhere/prog", .live_pid = -1, .build_id = me.build_id};
	setenv("HOME", "/nowhere", 1);
	tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND_NOTHING, "no cache, no file");
	const char *const dirs[] = {"/nowhere", home};
	o.debug_dirs = dirs;
	o.n_debug_dirs = 2;
	tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND,
	       "a debug folder's .build-id/xx/yyyy/elf is the file");
	tap_str(path, file, "that one");
	o.n_debug_dirs = 0;
	setenv("HOME", dir, 1);
	tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND, "~/.debug is such a folder");
	if (q.build_id.len == 20) {
		memset(q.build_id.bytes + 16, 0, 4);
		rename(rest, other); /* what the shortened build-id names */
		tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND_OTHER,
		       "what lies there under another build-id's name is not used");
		rename(other, rest);
		q.build_id = me.build_id;
	}
	q.build_id.len = 0;
	tap_eq((uint64_t)find_with(&o, &q, path, &image), SP_FOUND_NOTHING,
	       "without a build-id no cache can tell");
	unlink(file);
	for (int i = 4; i--;)
		rmdir(folders[i]);
	sp_elf_close(&me);
}

static void test_live(void)
{
	const char *file = in_dir("live");
	struct stat st = put(file, 0, self.data, self.len);
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	void *map = mmap(NULL, self.len, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	put(in_dir("other"), 0, self.data, self.len);
	rename(in_dir("other"), file); /* replaced while it is mapped */
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct sp_file_query q = {.path = file,
				  .maj = major(st.st_dev),
				  .min = minor(st.st_dev),
				  .ino = st.st_ino,
				  .live_pid = -1,
				  .start = (uintptr_t)map,
				  .end = (uintptr_t)map + (self.len + page - 1) / page * page};
	tap_eq((uint64_t)find(&q), SP_FOUND_OTHER, "a replaced file is refused");
	q.live_pid = getpid();
	if (geteuid() == 0)
		tap_eq((uint64_t)find(&q), SP_FOUND,
		       "the live process still has the replaced file (map_files)");
	else
		tap_ok(true, "map_files # SKIP needs root");
	munmap(map, self.len);
	unlink(file);
	tap_eq((uint64_t)find(&q), SP_FOUND_NOTHING, "when it is unmapped it is gone");

	if (stat("/proc/self/exe", &st) == 0) {
		q = (struct sp_file_query){.path = "/nowhere/prog",
					   .maj = major(st.st_dev),
					   .min = minor(st.st_dev),
					   .ino = st.st_ino,
					   .live_pid = getpid()};
		tap_eq((uint64_t)find(&q), SP_FOUND, "the live process's program is found by exe");
	}
}

/* A zip archive of two members: a text, and this program, stored or (as it says) packed. */
static struct sp_buf make_zip(unsigned method)
{
	struct sp_buf b = {0}, list = {0};
	const char *names[] = {"AndroidManifest.xml", "lib/x86_64/libself.so"};
	for (int i = 0; i < 2; i++) {
		uint32_t at = (uint32_t)b.len, n = i ? (uint32_t)self.len : 5;
		uint16_t name = (uint16_t)strlen(names[i]), how = i ? (uint16_t)method : 0;
		sp_buf_u32(&b, 0x04034b50), sp_buf_u16(&b, 20), sp_buf_u16(&b, 0),
			sp_buf_u16(&b, how), sp_buf_zero(&b, 8), sp_buf_u32(&b, n),
			sp_buf_u32(&b, n), sp_buf_u16(&b, name), sp_buf_u16(&b, 3);
		sp_buf_str(&b, names[i]), sp_buf_zero(&b, 3);
		sp_buf_add(&b, i ? self.data : (const uint8_t *)"<xml>", n);
		sp_buf_u32(&list, 0x02014b50), sp_buf_zero(&list, 6), sp_buf_u16(&list, how),
			sp_buf_zero(&list, 8), sp_buf_u32(&list, n), sp_buf_u32(&list, n),
			sp_buf_u16(&list, name), sp_buf_u16(&list, 4), sp_buf_u16(&list, 2),
			sp_buf_zero(&list, 8), sp_buf_u32(&list, at);
		sp_buf_str(&list, names[i]), sp_buf_zero(&list, 6);
	}
	uint32_t list_at = (uint32_t)b.len;
	sp_buf_add(&b, list.data, list.len);
	sp_buf_u32(&b, 0x06054b50), sp_buf_zero(&b, 4), sp_buf_u16(&b, 2), sp_buf_u16(&b, 2),
		sp_buf_u32(&b, (uint32_t)list.len), sp_buf_u32(&b, list_at), sp_buf_u16(&b, 7),
		sp_buf_str(&b, "comment");
	sp_buf_deinit(&list);
	return b;
}

/* simpleperf's name for a library in a package: its mappings count from the library's start. */
static void test_member(void)
{
	struct sp_buf zip = make_zip(0), packed = make_zip(8);
	char name[300], path[300];
	uint64_t image = 1;
	static const struct sp_find_options none;
	struct sp_file_query q = {.path = name, .live_pid = -1, .foff = 0x1000};
	put(in_dir("base.apk"), 0, zip.data, zip.len);
	snprintf(name, sizeof name, "%s/base.apk!/lib/x86_64/libself.so", dir);
	tap_eq((uint64_t)find_with(&none, &q, path, &image), SP_FOUND_BY_PATH,
	       "a stored library is found by its name in the package");
	tap_eq(image, 0, "offsets count from its own start");
	tap_str(path, name, "its path is the name");
	snprintf(name, sizeof name, "%s/base.apk!/lib/x86_64/libother.so", dir);
	tap_eq((uint64_t)find(&q), SP_FOUND_NOTHING, "one that is not there is not");
	tap_ok(strstr(why, "does not store it") != NULL, "and this is said");
	put(in_dir("base.apk"), 0, packed.data, packed.len);
	snprintf(name, sizeof name, "%s/base.apk!/lib/x86_64/libself.so", dir);
	tap_eq((uint64_t)find(&q), SP_FOUND_NOTHING, "nor is one that is packed");
	unlink(in_dir("base.apk"));
	tap_eq((uint64_t)find(&q), SP_FOUND_NOTHING, "nor one of no package");
	bool outside = false;
	size_t at, len, list = zip.len - 7 - 22 - 2 * (46 + 6) - 19 - 21;
	for (size_t i = list - 40; i < zip.len; i++) { /* lies in the headers, and every cut */
		uint8_t was = zip.data[i];
		zip.data[i] ^= 0xff;
		if (sp_zip_stored(zip.data, zip.len, "lib/x86_64/libself.so", &at, &len))
			outside |= at > zip.len || len > zip.len - at;
		zip.data[i] = was;
		uint8_t *cut = malloc(i);
		memcpy(cut, zip.data, i);
		outside |= sp_zip_stored(cut, i, "lib/x86_64/libself.so", &at, &len);
		free(cut);
	}
	tap_ok(!outside, "damage gives no bytes outside of the package");
	sp_buf_deinit(&zip);
	sp_buf_deinit(&packed);
}

int main(void)
{
	if (!mkdtemp(dir) || sp_file_read("/proc/self/exe", 256u << 20, &self, NULL) < 0)
		return 1;
	test_path_map();
	test_identity();
	test_odd_files();
	test_member();
	test_caches();
	test_live();
	sp_buf_deinit(&self);
	rmdir(dir);
	return tap_done();
}
