#define _GNU_SOURCE
#include "sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cli.h"

static bool id_of(const char *name, uint32_t *out)
{
	const char *text = getenv(name);
	char *end;
	if (!text || !*text)
		return false;
	unsigned long v = strtoul(text, &end, 10);
	*out = (uint32_t)v;
	return !*end && v < CAP_NO_GID;
}

bool cap_sudo_user(uint32_t *uid, uint32_t *gid)
{
	if (!id_of("SUDO_GID", gid))
		*gid = CAP_NO_GID;
	return geteuid() == 0 && id_of("SUDO_UID", uid) && *uid != 0;
}

void cap_sudo_give(int fd, const char *name)
{
	uint32_t uid, gid;
	struct stat st;
	if (cap_sudo_user(&uid, &gid) && fstat(fd, &st) == 0 && st.st_uid == 0 &&
	    st.st_nlink == 1 && fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0)
		sp_detail("%s stays root's: %s", name, strerror(errno));
}
