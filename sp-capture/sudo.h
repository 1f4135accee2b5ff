/* Who called sudo: what we leave behind is for him. */
#ifndef CAP_SUDO_H
#define CAP_SUDO_H

#include <stdbool.h>
#include <stdint.h>

#define CAP_NO_GID UINT32_MAX

/* False when we are not root, or nobody but root called. *gid: CAP_NO_GID when it is not told. */
bool cap_sudo_user(uint32_t *uid, uint32_t *gid);
/* A file of root's that we have open (O_PATH does), made his; no file of several names, which may
 * be somebody else's. Says with -v when it stays root's. */
void cap_sudo_give(int fd, const char *name);

#endif
