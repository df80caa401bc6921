/* SPDX-License-Identifier: Apache-2.0 */
/* A tuner of phases, for phase_tuner.c and what makes its record. */
#ifndef JM_PHASE_TUNER_PRIVATE_H
#define JM_PHASE_TUNER_PRIVATE_H

#include <pthread.h>

#include "phase_tuner.h"
#include "tuned_energy.h"
#include "tuned_knob.h"

#define JM__PHASES_WAITING 256 /* that have ended and are not yet measured */

/* A phase from its mark to the next one. */
struct jm__phase_run {
	char name[64];
	int64_t t0_ns, t1_ns; /* t1_ns = JM_FOREVER: it goes on */
	double items;	      /* NAN = none was reported */
	bool seen;	      /* by the thread that sets, which has chosen the following */
	int phase, value;     /* of the search; phase -1 = none */
	double activity[4];   /* sums of tensor, sm, dram, link */
	int looks[4];
};

struct jm_phase_tuner {
	struct jm_phase_tuner_options o;
	struct jm_tuned_knob knob;
	struct jm_tuned_energy energy;
	struct jm_phase_search *search;
	double value[JM_PHASE_VALUES_MAX]; /* the first one is that of the setting found */
	int n_values, now;		   /* now: the value in force */
	double latency_sum;
	int switches, moved, lost;
	int session_phase;
	bool holds;
	char stopped[400]; /* "" = it did not */

	pthread_mutex_t lock; /* of the following */
	struct jm__phase_run run[JM__PHASES_WAITING];
	int first, n; /* the last one goes on */
};

/* s: from the mark of a phase until a new value is in force; NAN = none was set yet. */
double jm__phase_latency(const struct jm_phase_tuner *t);

#endif
