/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a tokenizer. */
#ifndef JM_TOKENIZER_JSON_H
#define JM_TOKENIZER_JSON_H

#include "data/tokenizer/tokenizer.h"

/* JM_ENOENT, JM_EPERM: no such file, or no access; JM_EFORMAT: not a tokenizer; JM_ENOSUP: a kind
 * that is not supported here. The sentence names the file and the part of it. */
int jm_tokenizer_open(const char *path, struct jm_tokenizer **ret, struct jm_err *err);
/* The same from n bytes of JSON; name: for errors. */
int jm_tokenizer_read(const char *name, const char *json, size_t n, struct jm_tokenizer **ret,
	struct jm_err *err);

#endif
