/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_training.h"

#include <math.h>

#define GRADIENT_BYTES 2 /* of a parameter: bf16 */
/* of hidden^2: four matrices of attention, two of four times the width */
#define PARAMETER_TIMES 12

static double parameters_of_layer(const struct jm_sim_training *t)
{
	return PARAMETER_TIMES * (double)t->hidden * (double)t->hidden;
}

/* On each GPU. Forward: 2 FLOP for a parameter and a token; attention sees half of the other
 * tokens, by two products. The backward pass has twice as many. */
static double flops_of_step(const struct jm_sim_training *t)
{
	double attention = 2 * (double)t->seq * (double)t->hidden;
	double tokens = (double)t->batch * (double)t->seq;

	return 3 * tokens * (double)t->layers * (2 * parameters_of_layer(t) + attention);
}

double jm_sim_training_bytes(const struct jm_sim_training *t)
{
	return GRADIENT_BYTES * parameters_of_layer(t) * (double)t->layers;
}

double jm_sim_training_step(const struct jm_sim_training *t, int n, const double *flop_rate,
	double bus_rate, struct jm_sim_training_time *ret)
{
	double layers = (double)t->layers, flops = flops_of_step(t), slowest = INFINITY;
	double sum = 2. * (n - 1) / n * jm_sim_training_bytes(t) / layers / bus_rate, end = 0;

	for (int i = 0; i < n; i++) {
		ret[i] = (struct jm_sim_training_time){.compute = flops / flop_rate[i]};
		slowest = fmin(slowest, flop_rate[i]);
	}
	for (double k = 1; n > 1 && k <= layers; k++) {
		double start = fmax(end, flops / slowest * (1 + 2 * k / layers) / 3);

		end = start + sum;
		for (int i = 0; i < n; i++)
			ret[i].overlapped += fmax(0, fmin(end, ret[i].compute) - start);
	}
	end = fmax(end, flops / slowest);
	for (int i = 0; i < n; i++)
		ret[i].exposed = end - ret[i].compute;
	return end;
}
