/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of a meter do not account for: a GPU less its memory, a board less its components,
 * a node less its boards, an outlet less the node that it supplies.
 */
#ifndef JM_RESIDUE_H
#define JM_RESIDUE_H

#include "energy/energy.h"

struct jm_residue {
	int parts; /* meters of the same origin that it includes directly */
	/* of the meter less those of its parts; NAN = one of them is unknown, or two parts
	 * overlap */
	double joules;
	/*
	 * 95 %. Sampling errors are independent of each other; calibration errors are added, for
	 * nothing is known of how those of different sensors go together.
	 */
	double error;
};

/* energy[set->n], all of the same stretch of time. parts = 0: joules and error are NAN. */
void jm_residue_of(const struct jm_meters *set, const struct jm_energy *energy, int meter,
	struct jm_residue *ret);

#endif
