/* SPDX-License-Identifier: Apache-2.0 */
/* A Megatron index that is accepted can be read to its last token. */
#include "fuzz.h"
#include "workloads/corpus.h"

#define BIN 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const unsigned char bin[BIN];
	unsigned char *tight = malloc(size ? size : 1);
	struct jm_err err = JM_ERR_INIT;
	struct jm_corpus c;
	int32_t token[64];
	int rc;

	memcpy(tight, data, size);
	rc = jm_corpus_index("fuzz.idx", tight, size, BIN, &c, &err);
	fuzz_check(rc, &err);
	free(tight);
	if (rc < 0)
		return 0;
	c.data = bin;
	for (int64_t at = 0; at < c.tokens && at < 1 << 16; at += 64)
		jm_corpus_read(&c, at, c.tokens - at < 64 ? c.tokens - at : 64, token);
	jm_corpus_read(&c, c.tokens - 1, 1, token);
	assert(token[0] >= -1);
	c.data = NULL;
	jm_corpus_close(&c);
	return 0;
}
