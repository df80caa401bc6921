/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file: of one that is accepted the tensors fill the rest of the
 * file. */
#include "fuzz.h"
#include "data/safetensors.h"

#define MORE 64 /* bytes behind the header */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *tight = malloc(size ? size : 1);
	struct jm_err err = JM_ERR_INIT;
	struct jm_safetensors s = {0};
	json_t *header = NULL;
	uint64_t bytes = 0;
	char shape[40];
	int rc;

	memcpy(tight, data, size);
	rc = jm_safetensors_header("fuzz", tight, size, 8 + size + MORE, &s, &header, &err);
	free(tight);
	fuzz_check(rc, &err);
	for (int i = 0; i < s.n; i++) {
		const struct jm_safetensor *t = &s.tensor[i];

		assert(t->at >= 8 + size && t->at + t->bytes <= 8 + size + MORE);
		assert((uint64_t)jm_safetensor_count(t) * jm_safetensor_type_bytes(t->type) ==
			t->bytes);
		assert(strlen(jm_safetensor_shape(t, shape, sizeof(shape))) < sizeof(shape));
		bytes += t->bytes;
	}
	assert(rc ? !s.n : bytes == MORE);
	json_decref(header);
	jm_safetensors_close(&s);
	return 0;
}
