/* SPDX-License-Identifier: Apache-2.0 */
/* The phases of one record as a table: seconds, energy, power, items, energy per item. */
#ifndef JM_REPORT_PHASES_H
#define JM_REPORT_PHASES_H

#include <jansson.h>

#include "report/format/grid.h"

/* Origin of the energy in the table of phases: the best that the record has; NULL = it has no
 * meters. */
const char *jm_phases_origin(const json_t *record);
/* Has it more phases than the one that its totals apply to? */
bool jm_phases_several(const json_t *record);
/* What the record has about a meter besides its phases; NULL = nothing. */
const json_t *jm_phases_meter(const json_t *record, const char *id);
/*
 * One row per phase, in order of time; with `devices` a row per phase and meter. item: what the
 * items are called, "token"; "" = item. The caller owns *ret.
 */
int jm_phases_grid(const json_t *record, bool devices, const char *item, struct jm_grid *ret,
	struct jm_err *err);
/* Says what "command" and "marked" are, where a record has both. */
void jm_phases_note(const json_t *record, FILE *out, int width);

#endif
