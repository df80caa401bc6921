/* SPDX-License-Identifier: Apache-2.0 */
/* The steps from tokens back to text. */
#ifndef JM_DECODER_H
#define JM_DECODER_H

#include "data/tokenizer/tokenizer_parts.h"

/* The texts of tokens, one behind the other. */
struct jm__pieces {
	struct jm_bytes bytes;
	size_t *ends; /* of each piece in bytes */
	size_t n, room;
};

bool jm__pieces_add(struct jm__pieces *p, const char *at, size_t n);
void jm__pieces_done(struct jm__pieces *p);
/* All steps, in place. False: memory ran out. */
bool jm__decoder_run(const struct jm__decoder *d, struct jm__pieces *p);
void jm__decoder_done(struct jm__decoder *d);

#endif
