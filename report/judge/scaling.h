/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of one work that differ in the number of devices alone, or in the batch of each as well. */
#ifndef JM_SCALING_H
#define JM_SCALING_H

#include "report/model/grouping.h"

/* A setting on so many devices: of a series whose knobs were set the reference, or the first. */
struct jm_scaled {
	const struct jm_group_point *point;
	const json_t *record; /* of its first run */
	double devices;
	double models; /* that work together, each on a batch of its own: one rank, or tp x pp */
	double batch;  /* of each model; NAN = it has none */
	int hosts;
	char *key; /* the same for one work; owned */
};

/* One work, rising in devices, of which there are at least two numbers. strong: all devices
 * together have the same batch; else each has, so that the work grows with them. */
struct jm_scaling {
	const struct jm_scaled **at; /* [n] */
	int n;
	bool strong;
};

struct jm_scalings {
	struct jm_scaled *of; /* [n_of] */
	int n_of;
	struct jm_scaling *all; /* [n] */
	int n;
};

int jm_scalings_init(struct jm_scalings *s, const struct jm_grouping *g, struct jm_err *err);
void jm_scalings_done(struct jm_scalings *s);
/* Throughput, in percent of that of the fewest devices times as many as there are more. */
double jm_scaling_of_ideal(const struct jm_scaling *s, int i);

#endif
