/* Where a member of a zip archive lies that is stored as it is, as Android packages (APK) store
 * their libraries. Pure: bytes in memory. Source: PKWARE's APPNOTE, 4.3; no ZIP64. */
#ifndef SP_ELF_ZIP_H
#define SP_ELF_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* true and *offset, *len of the member's bytes within data; false: no such member, a packed one, or
 * no archive. */
bool sp_zip_stored(const uint8_t *data, size_t size, const char *name, size_t *offset, size_t *len);

#endif
