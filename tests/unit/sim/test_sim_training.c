/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated training step: compute, exposed and overlapped times are those of the closed formulas
 * for equal layers, in which either the links or the backward pass is the slower one; and what a
 * slow GPU changes.
 */
#include "kit/test.h"
#include "sim/sim_training.h"

#include <math.h>

#define MOST 8

static const struct jm_sim_training network = {
	.layers = 32, .hidden = 4096, .batch = 2, .seq = 4096};

/* A layer's backward pass, and its sum over n GPUs, in seconds. */
static void layer_times(
	double flop_rate, double bus_rate, int n, double *ret_backward, double *ret_sum)
{
	double h = 4096, parameters = 4 * h * h + 2 * 4 * h * h;
	double forward = 2 * parameters +
			 4 * 4096 * h / 2; /* of a token: attention sees half of the others */

	*ret_backward = 2 * forward * 2 * 4096 / flop_rate;
	*ret_sum = 2 * 2 * parameters * (n - 1) / (n * bus_rate);
}

static void check_equal(double flop_rate, double bus_rate, int n)
{
	struct jm_sim_training_time time[MOST];
	double rate[MOST], backward, sum, compute, layers = 32, step, found;

	for (int i = 0; i < n; i++)
		rate[i] = flop_rate;
	layer_times(flop_rate, bus_rate, n, &backward, &sum);
	compute = 1.5 * layers * backward;
	/* the sums follow each other after a layer, or the last one follows the last layer */
	step = 0.5 * layers * backward +
	       (sum > backward ? backward + layers * sum : layers * backward + sum);
	found = jm_sim_training_step(&network, n, rate, bus_rate, time);
	assert_near(found, step, 1e-9 * step);
	for (int i = 0; i < n; i++) {
		assert_near(time[i].compute, compute, 1e-9 * compute);
		assert_near(time[i].exposed, step - compute, 1e-9 * step);
		assert_near(time[i].overlapped, layers * sum - (step - compute), 1e-9 * step);
	}
}

static void equal_layers_have_closed_formulas(void **state)
{
	(void)state;
	for (int n = 2; n <= MOST; n++) {
		check_equal(600e12, 250e9, n); /* the last sum alone is exposed */
		check_equal(600e12, 10e9, n);  /* the links are the slower part */
		check_equal(600e12, 1e9, n);
	}
}

static void one_gpu_exchanges_nothing(void **state)
{
	struct jm_sim_training_time time;
	double rate = 600e12, backward, sum;

	(void)state;
	layer_times(rate, 250e9, 1, &backward, &sum);
	assert_near(jm_sim_training_step(&network, 1, &rate, 250e9, &time), 48 * backward, 1e-9);
	assert_true(time.exposed == 0 && time.overlapped == 0);
}

/* The others wait for it; each one's times still add up to the step. */
static void a_slow_gpu_sets_the_pace(void **state)
{
	struct jm_sim_training_time time[2];
	double rate[2] = {600e12, 300e12}, backward, sum, step;

	(void)state;
	layer_times(rate[1], 250e9, 2, &backward, &sum);
	step = jm_sim_training_step(&network, 2, rate, 250e9, time);
	assert_near(step, 48 * backward + sum, 1e-9);
	for (int i = 0; i < 2; i++)
		assert_near(time[i].compute + time[i].exposed, step, 1e-12);
	assert_near(time[0].compute, 24 * backward, 1e-9);
	/* it has computed when the slow one, whose forward pass takes 16 of these, has the
	 * gradients of the eighth layer */
	assert_near(time[0].overlapped, 7 * sum, 1e-9);
	assert_near(time[1].overlapped, 31 * sum, 1e-9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_layers_have_closed_formulas),
		cmocka_unit_test(one_gpu_exchanges_nothing),
		cmocka_unit_test(a_slow_gpu_sets_the_pace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
