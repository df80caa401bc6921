/* SPDX-License-Identifier: Apache-2.0 */
/* A Megatron index that is accepted can be read to its last token. */
#include "fuzz.h"
#include "data/corpus.h"

#include <sys/mman.h>
#include <unistd.h>

#define BIN 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
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
	if (fd < 0) { /* one file for all inputs */
		fd = memfd_create("bin", MFD_CLOEXEC);
		assert(fd >= 0 && !ftruncate(fd, BIN));
	}
	assert(!jm_corpus_take("fuzz.bin", dup(fd), BIN, &c, &err));
	for (int64_t at = 0; at < c.tokens && at < 1 << 16; at += 64)
		assert(!jm_corpus_read(
			&c, at, c.tokens - at < 64 ? c.tokens - at : 64, token, &err));
	assert(!jm_corpus_read(&c, c.tokens - 1, 1, token, &err));
	assert(token[0] >= -1);
	jm_corpus_close(&c);
	return 0;
}
