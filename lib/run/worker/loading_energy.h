/* SPDX-License-Identifier: Apache-2.0 */
/* The host's energy for reading pictures, which no meter measures by itself. */
#ifndef JM_LOADING_ENERGY_H
#define JM_LOADING_ENERGY_H

#include "measure/session/session.h"

/*
 * Adds data.machine_cpu_s and data.host_joules to a record with `data`: the energy of the topmost
 * meters of processor packages in setup, settle, warmup, steady and verify, by the share of the
 * loader's threads (data.decode_cpu_s) in the machine's processor time. machine_cpu_s: in these
 * phases, in seconds. Unknown is null, as are the joules with several ranks: `data` is of one.
 */
void jm__loading_energy(json_t *record, const struct jm_meters *set, double machine_cpu_s);

#endif
