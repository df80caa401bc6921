/* SPDX-License-Identifier: Apache-2.0 */
/* What a tuner did, in words: the key "tune" of a record. */
#ifndef JM_TUNING_H
#define JM_TUNING_H

#include <jansson.h>
#include <stdio.h>

/* Lines of at most `width` columns; no lines where tune is NULL. */
void jm_tuning_print(const json_t *tune, FILE *out, int width);

#endif
