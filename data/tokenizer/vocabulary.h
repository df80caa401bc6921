/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens by id and by text. */
#ifndef JM_VOCABULARY_H
#define JM_VOCABULARY_H

#include "joulemark.h"
#include "data/tokenizer/bytes.h"

#define JM__ID_MOST                                                                                \
	4194303 /* a larger id is taken for damage: tables have the length of the largest one */

struct jm__token {
	uint32_t at, n; /* in bytes */
	bool present;
};

struct jm__vocabulary {
	struct jm_bytes bytes;
	struct jm__token *tokens; /* by id */
	size_t room;
	int32_t size;	/* the largest id and 1 */
	int32_t *slots; /* a hash table of ids; -1 = empty */
	size_t n_slots, used;
};

/* JM_EFORMAT: the text or the id is there already, or the id is too large; JM_ENOMEM. Sets no
 * sentence. */
int jm__vocabulary_add(struct jm__vocabulary *v, const char *text, size_t n, int64_t id);
int32_t jm__vocabulary_find(const struct jm__vocabulary *v, const char *text, size_t n);
/* NULL = no token has this id. */
const char *jm__vocabulary_text(const struct jm__vocabulary *v, int32_t id, size_t *ret_n);
void jm__vocabulary_done(struct jm__vocabulary *v);

#endif
