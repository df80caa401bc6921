/* SPDX-License-Identifier: Apache-2.0 */
/* How far a measurement can be trusted: a grade and the reasons that keep it from the next. */
#ifndef JM_QUALITY_H
#define JM_QUALITY_H

#include <jansson.h>

#include "energy/energy.h"

struct jm_quality_facts {
	const struct jm_meters *set;
	const struct jm_energy *energy; /* one per meter of the set */
	const double *drift;	      /* per meter: change of mean watts from the first third to the
					 * last, relative; NAN = unknown or it does not matter */
	const unsigned int *throttle; /* per meter: enum jm_throttle seen, or-ed */
	double seconds;		      /* the phase's length */
	bool own_unread;	      /* no meter reads the device that computes */
};

/* "A", "B", "C", "D" or "none"; the reasons, sentences, are appended to the array. NULL: no memory
 * for one of them. */
const char *jm_quality_judge(const struct jm_quality_facts *facts, json_t *reasons);

#endif
