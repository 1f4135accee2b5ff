#define _GNU_SOURCE
#include "base/sandbox.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/opener.h"

/* include/uapi/linux/landlock.h of Linux 6.12: what Debian 12's header does not name yet. */
#define FS_REFER (UINT64_C(1) << 13)     /* ABI 2 */
#define FS_TRUNCATE (UINT64_C(1) << 14)  /* ABI 3 */
#define FS_IOCTL_DEV (UINT64_C(1) << 15) /* ABI 5 */
#define NET_BIND_TCP UINT64_C(1)         /* ABI 4 */
#define NET_CONNECT_TCP UINT64_C(2)
#define SCOPE_ABSTRACT_UNIX_SOCKET UINT64_C(1) /* ABI 6 */
#define SCOPE_SIGNAL UINT64_C(2)

#define FS_ABI_1 ((UINT64_C(1) << 13) - 1) /* EXECUTE … MAKE_SYM */
#define FS_READ ((uint64_t)LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FS_WRITE                                                                                   \
	((uint64_t)LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |                   \
	 LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | FS_REFER | FS_TRUNCATE)

struct ruleset_attr { /* as of ABI 6; older kernels take a shorter one */
	uint64_t fs, net, scoped;
};

static void allow(int ruleset, const char *dir, uint64_t access)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = access};
	rule.parent_fd = open(dir, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0)
		return; /* what does not exist stays out of reach */
	(void)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
	close(rule.parent_fd);
}

int sp_sandbox_enter(const struct sp_sandbox *s)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return 0;
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	if (abi < 1)
		return 0;
	struct ruleset_attr attr = {.fs = FS_ABI_1};
	size_t size = sizeof attr.fs;
	if (abi >= 2)
		attr.fs |= FS_REFER;
	if (abi >= 3)
		attr.fs |= FS_TRUNCATE;
	if (abi >= 4) {
		attr.net = s->network ? 0 : NET_BIND_TCP | NET_CONNECT_TCP;
		size += sizeof attr.net;
	}
	if (abi >= 5)
		attr.fs |= FS_IOCTL_DEV;
	if (abi >= 6) {
		attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
		size += sizeof attr.scoped;
	}
	int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (ruleset < 0)
		return 0;
	/* The helper comes first: it must stay outside. */
	bool helped = sp_opener_start();
	uint64_t exec = s->exec ? LANDLOCK_ACCESS_FS_EXECUTE : 0;
	allow(ruleset, "/", FS_READ | exec);
	for (size_t i = 0; i < s->n_write_dirs; i++)
		if (s->write_dirs[i])
			allow(ruleset, s->write_dirs[i], (FS_READ | FS_WRITE | exec) & attr.fs);
#ifdef SP_COVERAGE_DIR /* make coverage: the counts are written at the end of each process */
	allow(ruleset, SP_COVERAGE_DIR, (FS_READ | FS_WRITE) & attr.fs);
#endif
	/* Without the helper the live process could not be asked: then rather no Landlock. */
	long rc = helped ? syscall(SYS_landlock_restrict_self, ruleset, 0) : -1;
	close(ruleset);
	return rc == 0;
}
