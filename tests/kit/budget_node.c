/* SPDX-License-Identifier: Apache-2.0 */
#include "budget_node.h"
#include "sim/sim_model.h"

#include <math.h>

#define IDLE 75.

struct budget_node budget_node_of(bool together, uint64_t seed)
{
	struct budget_node n = {.together = together, .noise = 0.002, .seed = seed};

	for (int i = 0; i < BUDGET_GPUS; i++) {
		n.speed[i] = 100 * (1 + 0.1 * jm_sim_noise(seed, 10, (uint64_t)i));
		n.hunger[i] = 600 * (1 + 0.1 * jm_sim_noise(seed, 11, (uint64_t)i));
	}
	return n;
}

/* Rate of one GPU: the cube root of its share of the power, the law of the simulated clock. */
static double rate_of(const struct budget_node *n, int i, double watts)
{
	double share = (watts - IDLE) / (n->hunger[i] - IDLE);

	return n->speed[i] * cbrt(fmin(fmax(share, 0.001), 1));
}

static double watts_for(const struct budget_node *n, int i, double rate)
{
	return IDLE + (n->hunger[i] - IDLE) * pow(rate / n->speed[i], 3);
}

double budget_node_rate(const struct budget_node *n, const double *limit)
{
	double slowest = INFINITY, sum = 0;

	for (int i = 0; i < BUDGET_GPUS; i++) {
		sum += rate_of(n, i, limit[i]);
		slowest = fmin(slowest, rate_of(n, i, limit[i]));
	}
	return n->together ? BUDGET_GPUS * slowest : sum;
}

/* A GPU that waits is idle in that time. */
struct jm_budget_visit budget_node_visit(struct budget_node *n, const double *limit)
{
	double rate = budget_node_rate(n, limit);
	struct jm_budget_visit v = {.seconds = 2,
		.items = 2 * rate * (1 + n->noise * jm_sim_noise(n->seed, 12, n->visits))};

	for (int i = 0; i < BUDGET_GPUS; i++) {
		double busy = n->together ? rate / BUDGET_GPUS / rate_of(n, i, limit[i]) : 1;

		v.watts[i] = IDLE + busy * (fmin(limit[i], n->hunger[i]) - IDLE);
	}
	n->visits++;
	return v;
}

/* Together: the pace at which all limits add up to the budget. Alone: watt by watt to where it does
 * most. */
double budget_node_best(const struct budget_node *n, double watts)
{
	double limit[BUDGET_GPUS], low = 0, high = 200;

	for (int k = 0; k < 60 && n->together; k++) {
		double pace = (low + high) / 2, sum = 0;

		for (int i = 0; i < BUDGET_GPUS; i++)
			sum += pace > n->speed[i] ? INFINITY : fmax(200, watts_for(n, i, pace));
		*(sum <= watts ? &low : &high) = pace;
	}
	if (n->together)
		return BUDGET_GPUS * low;
	for (int i = 0; i < BUDGET_GPUS; i++)
		limit[i] = 200;
	for (double left = watts - BUDGET_GPUS * 200; left >= 1; left--) {
		int best = 0;
		double most = -1;

		for (int i = 0; i < BUDGET_GPUS; i++) {
			double more = rate_of(n, i, limit[i] + 1) - rate_of(n, i, limit[i]);

			if (limit[i] < 700 && more > most) {
				best = i;
				most = more;
			}
		}
		limit[best] += 1;
	}
	return budget_node_rate(n, limit);
}
