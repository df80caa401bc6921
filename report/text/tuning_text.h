/* SPDX-License-Identifier: Apache-2.0 */
/* What a tuner did, in words: the keys "tune", "policy" and "budget" of a record. */
#ifndef JM_TUNING_TEXT_H
#define JM_TUNING_TEXT_H

#include <jansson.h>
#include <stdio.h>

#include "report/format/grid.h"

/* Lines of at most `width` columns; no lines where the record has none. */
void jm_tuning_print(const json_t *record, FILE *out, int width);
/* The values that were visited, from the lowest on, with the means of their visits: seconds, watts,
 * items per second, and objective, energy and time per item by those of the setting found.
 * JM_ENOENT: there was no visit. */
int jm_tuning_curve(const json_t *tune, struct jm_grid *ret, struct jm_err *err);

#endif
