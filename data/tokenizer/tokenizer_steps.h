/* SPDX-License-Identifier: Apache-2.0 */
/* The normalizer and the pre_tokenizer of tokenizer.json. Each call sets a sentence that names file
 * and part. */
#ifndef JM_TOKENIZER_STEPS_H
#define JM_TOKENIZER_STEPS_H

#include "data/tokenizer/tokenizer_reader.h"

int jm__read_normalizer(struct jm__reader *r);
int jm__read_pre_tokenizer(struct jm__reader *r);

#endif
