/* SPDX-License-Identifier: Apache-2.0 */
/* Eight unlike GPUs that share a budget, and the best static split, known another way. */
#ifndef JM_TEST_BUDGET_NODE_H
#define JM_TEST_BUDGET_NODE_H

#include "tune/budget.h"

#define BUDGET_GPUS 8

struct budget_node {
	/* each step waits for the slowest; else each GPU works alone, and rates add up */
	bool together;
	double speed[BUDGET_GPUS], hunger[BUDGET_GPUS]; /* items/s at full power; W of that */
	double noise;
	uint64_t seed, visits;
};

/* Speed and power of the GPUs differ with a standard deviation of 10 %. */
struct budget_node budget_node_of(bool together, uint64_t seed);
/* The true rate under these limits, items/s. */
double budget_node_rate(const struct budget_node *n, const double *limit);
/* What 2 s of work show of it, with noise. */
struct jm_budget_visit budget_node_visit(struct budget_node *n, const double *limit);
/* That of the best split of so many watts. */
double budget_node_best(const struct budget_node *n, double watts);

#endif
