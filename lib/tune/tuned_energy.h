/* SPDX-License-Identifier: Apache-2.0 */
/* The energy that a tuner goes by: the sum over the topmost meters of one origin, the measured ones
 * where there are any. Part of tuner.h and phase_tuner.h. */
#ifndef JM_TUNED_ENERGY_H
#define JM_TUNED_ENERGY_H

#include "measure/session/session.h"

struct jm_tuned_energy {
	struct jm_session *session; /* borrowed */
	enum jm_origin origin;
	int64_t refresh_ns, window_ns; /* the longest of its meters */
};

/* JM_ENOENT: no meter measures energy, and an estimate is none: it follows from the load and knows
 * nothing of a knob. */
int jm_tuned_energy_open(struct jm_tuned_energy *e, struct jm_session *session, struct jm_err *err);
/* ret_error: 95 %, of sampling alone. NAN: one of the meters is unknown. */
void jm_tuned_energy_of(const struct jm_tuned_energy *e, int64_t t0_ns, int64_t t1_ns,
	double *ret_joules, double *ret_error);

#endif
