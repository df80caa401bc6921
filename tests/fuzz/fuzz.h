/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that fuzz targets share: the entry point of libFuzzer, and bytes as a string. */
#ifndef JM_FUZZ_H
#define JM_FUZZ_H

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "joulemark.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy that ends in NUL, so that the sanitizer sees a read beyond it. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	assert(text);
	memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

/* Whatever came in: success without an error, or an error with its sentence. */
static inline void fuzz_check(int rc, const struct jm_err *err)
{
	assert(rc < 0 ? err->code < 0 && strlen(err->text) > 5 : err->code == 0);
}

#endif
