/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room tune: the search for the best setting of a knob while the work runs: what is minimized
 * (objective.h), the search itself, which knows neither sensors nor knobs (search.h), and the
 * tuner, which measures and sets for it (tuner.h).
 * May include: base, meter, trace, energy, measure, guard, result.
 *
 * What a tuner minimizes, from e = joules per item and d = seconds per item (result/metric.h has
 * the formulas).
 */
#ifndef JM_OBJECTIVE_H
#define JM_OBJECTIVE_H

#include "joulemark.h"

enum jm_objective_kind {
	JM_MIN_ENERGY,	 /* e */
	JM_MIN_EDP,	 /* e d */
	JM_MIN_ED2P,	 /* e d^2 */
	JM_MIN_EDS,	 /* EDS_k */
	JM_MIN_ZEUS,	 /* eta e + (1 - eta) P_max d */
	JM_MIN_SLOWDOWN, /* e, where d is at most `number` above that of the setting found */
};

struct jm_objective {
	enum jm_objective_kind kind;
	double number; /* k, eta, or the share of time (0.05); NAN = none */
};

/* "energy", "edp", "ed2p", "eds:2", "zeus:0.5", "slowdown:5%". JM_EUSAGE */
int jm_objective_parse(const char *text, struct jm_objective *ret, struct jm_err *err);
/* As jm_objective_parse reads it. */
void jm_objective_text(const struct jm_objective *o, char *out, size_t size);

/*
 * The logarithm of the objective relative to the setting found, which has 0. energy, time: e and d
 * relative to it; limit: its power limit by its mean power (of ZEUS). Above the limit of SLOWDOWN
 * it rises steeply, so that a search turns back there. NAN where a ratio is not a positive number.
 */
double jm_objective_cost(const struct jm_objective *o, double energy, double time, double limit);

#endif
