/* SPDX-License-Identifier: Apache-2.0 */
/* The model of tokenizer.json: vocabulary and merges. Each call sets a sentence that names file and
 * part. */
#ifndef JM_TOKENIZER_MODEL_H
#define JM_TOKENIZER_MODEL_H

#include "data/tokenizer/tokenizer_reader.h"

/* After the pre_tokenizer, which says whether the model has bytes. */
int jm__read_model(struct jm__reader *r);

#endif
