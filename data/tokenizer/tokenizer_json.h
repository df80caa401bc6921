/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of tokenizer.json, in the order in which they are read. Each sets a sentence that names file and part. */
#ifndef JM_TOKENIZER_JSON_H
#define JM_TOKENIZER_JSON_H

#include "data/tokenizer/tokenizer_reader.h"

int jm__read_normalizer(struct jm__reader *r);
int jm__read_pre_tokenizer(struct jm__reader *r);
int jm__read_model(struct jm__reader *r); /* the pre_tokenizer says whether it has bytes */
int jm__read_added(
	struct jm__reader *r); /* in their normal form, and not with other ids than in the model */
int jm__read_post_processor(struct jm__reader *r); /* ids that tokens have */
int jm__read_decoder(struct jm__reader *r);

#endif
