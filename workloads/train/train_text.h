/* SPDX-License-Identifier: Apache-2.0 */
/* The texts that a language model learns from and is evaluated on. */
#ifndef JM_TRAIN_TEXT_H
#define JM_TRAIN_TEXT_H

#include "train_state.h"

/* JM_EUSAGE: a text is given and the model, which is chosen, reads none. */
int jm_train_text_check(const struct train *s, struct jm_err *err);

/*
 * Opens the text of --text, or one of this machine, for the feed of the training, and holds samples
 * out for evaluations; the record's line says which text it is. JM_ENOENT: there is none.
 * JM_ERANGE: it is too short, or the vocabulary too small.
 */
int jm_train_text_open(struct train *s, struct jm_err *err);

#endif
