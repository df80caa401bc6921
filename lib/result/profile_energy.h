/* SPDX-License-Identifier: Apache-2.0 */
/* The energy of a run among the parts that a profile has timed. */
#ifndef JM_PROFILE_ENERGY_H
#define JM_PROFILE_ENERGY_H

#include <jansson.h>

/* Gives the lines of "profile" (may be missing) their share of the energy, as a model. */
void jm_record_share_energy(json_t *record);

#endif
