/* SPDX-License-Identifier: Apache-2.0 */
/* Energy of a phase that the work itself names. */
#ifndef JM_PHASE_ENERGY_H
#define JM_PHASE_ENERGY_H

#include <jansson.h>

#include "meter/meter.h"

/* J of the topmost meters of one origin (jm_metric_origin), which is left as it is if none is
 * known; NAN = unknown. */
double jm_phase_joules(const json_t *record, const char *name, enum jm_origin *ret_origin);
/* Adds until.joules, those of the phase "until", where the record has such a key. */
void jm_record_until_energy(json_t *record);
/* Adds watts and joules to the parts of `overlap`, by the phases with their names, where the record
 * has such a key. */
void jm_record_overlap_energy(json_t *record);

#endif
