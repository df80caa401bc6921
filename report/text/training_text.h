/* SPDX-License-Identifier: Apache-2.0 */
/* What a training has learnt, by its last evaluation, and what evaluations and data cost. */
#ifndef JM_TRAINING_TEXT_H
#define JM_TRAINING_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* "Top-1 86.40 % (8640 of 10000) ..." of a record of a run; "" = it has no evaluation and no
 * data. */
void jm_text_learnt(const json_t *record, char *out, size_t size);

#endif
