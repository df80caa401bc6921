/* SPDX-License-Identifier: Apache-2.0 */
/* The added tokens, the post_processor and the decoder of tokenizer.json; after its model. Each
 * call sets a sentence that names file and part. */
#ifndef JM_TOKENIZER_ENDS_H
#define JM_TOKENIZER_ENDS_H

#include "data/tokenizer/tokenizer_reader.h"

/* In their normal form, and not with other ids than in the model. */
int jm__read_added(struct jm__reader *r);
int jm__read_post_processor(struct jm__reader *r); /* ids that tokens have */
int jm__read_decoder(struct jm__reader *r);

#endif
