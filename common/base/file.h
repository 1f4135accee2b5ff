/* Files: bounded reads, guarded maps, complete writes. */
#ifndef SP_BASE_FILE_H
#define SP_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Open a regular file for reading: never blocks on a fifo, never becomes a controlling terminal,
 * refuses everything that is not a regular file (SP_ERR_INVALID). SP_OPEN_NOFOLLOW refuses a
 * symbolic link as the last component. Returns the descriptor. */
#define SP_OPEN_NOFOLLOW 1
int sp_file_open(const char *path, int flags, struct sp_err *err);

/* A whole file, read-only. Tools map it: bytes that it loses while it is mapped read as zero
 * instead of raising SIGBUS (the first map installs the handler that does this). A library, whose
 * program owns the signals, has a copy in memory. */
struct sp_map_file {
	const uint8_t *data; /* NULL when size is 0 */
	size_t size;
	dev_t dev;
	ino_t ino;
	int64_t mtime_ns, ctime_ns;
};

/* Once, before the first file and before threads: files may be mapped. sp_cli_init does. */
void sp_map_guard(void);
int sp_map_file_open(struct sp_map_file *m, const char *path, struct sp_err *err);
int sp_map_file_fd(struct sp_map_file *m, int fd, const char *name, struct sp_err *err);
void sp_map_file_close(struct sp_map_file *m);
/* Bytes of it that will hardly be read again: whole pages of a map leave this process's memory, and
 * come back from the file when they are read. Bytes elsewhere, and a copy, stay as they are. */
void sp_map_file_release(const struct sp_map_file *m, const void *from, size_t n);

/* Append a file's content to b; SP_ERR_LIMIT when it is longer than max. For /proc files too. */
int sp_file_read(const char *path, size_t max, struct sp_buf *b, struct sp_err *err);
int sp_fd_read_all(int fd, size_t max, struct sp_buf *b, const char *name, struct sp_err *err);

/* read() until n bytes or the end of input; EINTR is retried unless sp_stop_level() is over 1.
 * name is for the message. Returns the number of bytes. */
ssize_t sp_fd_read(int fd, void *data, size_t n, const char *name, struct sp_err *err);

/* write() everything. name is for the message. */
int sp_fd_write(int fd, const void *data, size_t n, const char *name, struct sp_err *err);

/* Make a folder and those above it that are not there yet, for this user alone; path has a first
 * byte, and is as it was afterwards. What failed shows when the folder is used. */
void sp_folders_make(char *path);

/* Make a pipe as large as the kernel allows, up to 1 MiB; no effect on other files. */
void sp_pipe_enlarge(int fd);

/* What users who are not root may still fill of the file system of a folder, of that of fd when dir
 * is NULL, and its whole size; false when it does not tell. */
bool sp_disk_room(const char *dir, int fd, uint64_t *free_bytes, uint64_t *size_bytes);

#endif
