/* Protocol buffers, written by hand (protobuf.dev, "Encoding"): the few wire forms that
 * profile.proto needs. Zero values are left out, as proto3 does. */
#ifndef SYM_PROTO_H
#define SYM_PROTO_H

#include "base/buf.h"

static inline void proto_varint(struct sp_buf *b, unsigned field, uint64_t value)
{
	if (value) {
		sp_buf_uleb(b, (uint64_t)field << 3);
		sp_buf_uleb(b, value);
	}
}

static inline void proto_bytes(struct sp_buf *b, unsigned field, const void *data, size_t size)
{
	sp_buf_uleb(b, (uint64_t)field << 3 | 2);
	sp_buf_uleb(b, size);
	sp_buf_add(b, data, size);
}

#endif
