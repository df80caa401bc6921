/* SPDX-License-Identifier: Apache-2.0 */
/* Where a text may be cut. */
#ifndef JM_TOKENIZER_CUT_H
#define JM_TOKENIZER_CUT_H

#include "data/tokenizer/tokenizer.h"

/*
 * Where a text of n bytes, which continues beyond them, may be cut: the tokens of the text are
 * those of the first part and then those of the rest (with JM_TOKENIZER_CONTINUES). The last such
 * place; 0 = there is none.
 */
size_t jm_tokenizer_cut(const struct jm_tokenizer *t, const char *text, size_t n);

#endif
