/* Our own records: heads, fragments joined again, embedded objects, texts. The input is a row of
 * records as they stand in a stream. */
#include <string.h>

#include "perf/ext.h"
#include "perf/head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void one_payload(const uint8_t *payload, size_t size)
{
	struct sp_ext_object o;
	size_t len;
	if (sp_ext_object_decode(&o, payload, size, NULL) == 0) {
		/* what was understood is written the same */
		struct sp_buf again = {0};
		struct sp_ext_object second;
		sp_ext_object_encode(&again, &o);
		if (!again.failed &&
		    (sp_ext_object_decode(&second, again.data, again.len, NULL) < 0 ||
		     second.size != o.size || second.path_len != o.path_len))
			__builtin_trap();
		sp_buf_deinit(&again);
	}
	struct sp_ext_content c;
	if (sp_ext_content_decode(&c, payload, size, NULL) == 0) {
		struct sp_buf again = {0};
		sp_ext_content_encode(&again, &c);
		size_t pad = 36; /* its u32 0 */
		if (!again.failed && (again.len > size || memcmp(again.data, payload, pad) != 0 ||
				      memcmp(again.data + pad + 4, payload + pad + 4,
					     again.len - pad - 4) != 0))
			__builtin_trap();
		sp_buf_deinit(&again);
	}
	(void)sp_ext_value(payload, size, "chain", &len);
	(void)sp_ext_value(payload, size, "", &len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_ext_joiner *joiner = sp_ext_joiner_new();
	struct sp_buf out = {0};
	while (joiner && size >= 8) {
		size_t n = sp_get16(data + 6);
		struct sp_record rec;
		struct sp_ext ext;
		const uint8_t *payload;
		size_t payload_size;
		if (n < 8 || n > size)
			break;
		if (sp_record_parse(&rec, data, n, NULL, 0, NULL) == 0) {
			(void)sp_head_rewrite(&out, &rec, SP_HEAD_UNWOUND, NULL);
			if (sp_ext_parse(&rec, &ext, NULL) == 1 &&
			    sp_ext_join(joiner, &ext, &payload, &payload_size, NULL) == 1)
				one_payload(payload, payload_size);
		}
		data += n;
		size -= n;
	}
	sp_buf_deinit(&out);
	sp_ext_joiner_free(joiner);
	return 0;
}
