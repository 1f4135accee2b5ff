#define _GNU_SOURCE
#include "privileges.h"

#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "events.h"

#define BIT(cap) (UINT64_C(1) << (cap))

static bool caps_get(uint64_t *permitted)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {{0}};
	if (syscall(SYS_capget, &h, d) < 0)
		return false;
	*permitted = d[0].permitted | (uint64_t)d[1].permitted << 32;
	return true;
}

static bool caps_set(uint64_t permitted, uint64_t effective)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {
		{.permitted = (uint32_t)permitted, .effective = (uint32_t)effective},
		{.permitted = (uint32_t)(permitted >> 32),
		 .effective = (uint32_t)(effective >> 32)},
	};
	return syscall(SYS_capset, &h, d) == 0;
}

/* Whether events can still be opened. */
static bool may_sample(void)
{
	int fd = cap_sampler_pin(0);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void cap_privileges_drop(const struct cap_privileges *p)
{
	uint64_t has, keep = BIT(CAP_PERFMON) | BIT(CAP_BPF) | BIT(CAP_IPC_LOCK) |
			     BIT(CAP_SYS_PTRACE) | BIT(CAP_CHECKPOINT_RESTORE) |
			     BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_SYSLOG) | BIT(CAP_KILL);
	if (p->owns_output)
		keep |= BIT(CAP_CHOWN);
	if (p->owns_control)
		keep |= BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (!caps_get(&has) || !has)
		return;
	bool could_sample = may_sample();
	/* The last capability that is relied on, of Linux 5.9. */
	if (prctl(PR_CAPBSET_READ, CAP_CHECKPOINT_RESTORE, 0, 0, 0) < 0 ||
	    (caps_set(has, has & keep) && could_sample && !may_sample()))
		keep |= BIT(CAP_SYS_ADMIN);
	caps_set(has & keep, has & keep);
}

void cap_privileges_drop_all(void)
{
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	caps_set(0, 0);
}
