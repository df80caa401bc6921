/* SPDX-License-Identifier: Apache-2.0 */
/* The host's energy for reading pictures, which no meter measures by itself. */
#ifndef JM_LOADING_ENERGY_H
#define JM_LOADING_ENERGY_H

#include "measure/session/session.h"

/*
 * Adds data.machine_cpu_s and data.host_joules to a record with `data`: the energy of the topmost
 * meters of processor packages in setup, warmup, steady and verify, by the share of the loader's
 * threads (data.decode_s) in the machine's processor time. machine_cpu_s: since the work began, in
 * seconds. Unknown is null.
 */
void jm__loading_energy(json_t *record, const struct jm_meters *set, double machine_cpu_s);

#endif
