/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The estimate of power against simulated GPUs whose truth has another form than the model: each
 * work is a chain of kernels bound by the cores or by the memory, a power limit slows it down by
 * the cube root, and measurements scatter.
 */
#include "kit/test.h"

#include "result/power_works.h"

#include <stdio.h>

#define SEEDS	  200
#define MOST	  40
#define IDLE	  95.0
#define J_PER_OP  0.9e-12
#define J_PER_B	  60e-12
#define OPS_PER_S 700e12
#define B_PER_S	  2.8e12

struct gpu {
	double limit, scatter; /* W; relative standard deviation of seconds, of watts half of it */
	uint64_t random;
};

static double uniform(struct gpu *g)
{
	g->random = g->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return ((double)(g->random >> 33) + 0.5) / (double)(UINT64_C(1) << 31);
}

static double normal(struct gpu *g)
{
	double radius = sqrt(-2 * log(uniform(g)));

	return radius * cos(2 * M_PI * uniform(g));
}

static struct jm_power_work truth(struct gpu *g)
{
	int kernels = 4 + (int)(26 * uniform(g));
	double batch = pow(64, uniform(g)), slower = 0.9 + 0.1 * uniform(g);
	struct jm_power_work w = {.seconds = 0};

	for (int k = 0; k < kernels; k++) {
		double flops = 2e9 * exp(1.2 * normal(g)) * batch;
		double bytes = flops / (20 * pow(50, uniform(g)));

		w.flops += flops;
		w.bytes += bytes;
		w.seconds += fmax(flops / (OPS_PER_S * slower), bytes / B_PER_S) + 2e-6;
	}
	w.watts = IDLE + (J_PER_OP * w.flops + J_PER_B * w.bytes) / w.seconds;
	if (w.watts > g->limit) {
		w.seconds /= cbrt((g->limit - IDLE) / (w.watts - IDLE));
		w.watts = g->limit;
	}
	w.seconds *= exp(g->scatter * normal(g));
	w.watts *= 1 + g->scatter / 2 * normal(g);
	return w;
}

struct outcome {
	int inside, outside, refused;
	double half, error; /* sums, relative */
};

/* n works are measured, and one more is left out. */
static void leave_out(struct gpu *g, int n, struct outcome *o)
{
	struct jm_power_work work[MOST + 1];
	struct jm_power_estimate e;
	struct jm_power_fit fit;
	struct jm_err err = {0};
	const struct jm_power_work *left = &work[n];

	for (int i = 0; i <= n; i++)
		work[i] = truth(g);
	assert_ok(jm_power_fit_make(work, n, &fit, &err), err);
	if (jm_power_fit_predict(&fit, left->flops, left->bytes, &e, &err)) {
		assert_sentence(&err, JM_ERANGE);
		o->refused++;
		return;
	}
	assert_true(e.low <= e.watts && e.watts <= e.high);
	*(left->watts >= e.low && left->watts <= e.high ? &o->inside : &o->outside) += 1;
	o->half += (e.high - e.low) / 2 / e.watts;
	o->error += fabs(e.watts / left->watts - 1);
}

static void check_left_out(double limit, int n)
{
	struct gpu g = {.limit = limit, .scatter = 0.015};
	struct outcome o = {0};
	int said;

	for (int seed = 1; seed <= SEEDS; seed++) {
		g.random = (uint64_t)seed * UINT64_C(0x9e3779b97f4a7c15);
		leave_out(&g, n, &o);
	}
	said = o.inside + o.outside;
	printf("limit %4.0f W, %2d works: %3d of %3d inside, half width %4.1f %%, error %3.1f %%, "
	       "%d refused\n",
		limit, n, o.inside, said, 100 * o.half / said, 100 * o.error / said, o.refused);
	assert_true(said > SEEDS / 2);
	assert_true(o.inside >= 0.9 * said);
}

static void works_left_out_lie_inside(void **state)
{
	(void)state;
	for (int n = 8; n <= MOST; n = n < 12 ? n + 2 : 2 * n - 4) {
		check_left_out(1000, n);
		check_left_out(500, n);
		check_left_out(300, n);
	}
}

/* Of the model's own form and without scatter. */
static struct jm_power_work exact(double flops, double bytes)
{
	double seconds = 5e-3 + flops / OPS_PER_S + bytes / B_PER_S;

	return (struct jm_power_work){
		flops, bytes, seconds, IDLE + (J_PER_OP * flops + J_PER_B * bytes) / seconds};
}

static void finds_exact_factors(void **state)
{
	struct jm_power_work work[9], beyond = exact(4e13, 3e10);
	struct jm_power_estimate e;
	struct jm_power_fit fit;
	struct jm_err err = {0};

	(void)state;
	for (int i = 0; i < 9; i++)
		work[i] = exact(1e12 * (1 + i), 1e10 * (1 + i * 7 % 9));
	assert_ok(jm_power_fit_make(work, 9, &fit, &err), err);
	assert_near(fit.watts.factor[0], IDLE, 1e-3 * IDLE);
	assert_near(fit.watts.factor[1], J_PER_OP, 1e-3 * J_PER_OP);
	assert_near(fit.watts.factor[2], J_PER_B, 1e-3 * J_PER_B);
	work[0] = exact(5.5e12, 5e10);
	assert_ok(jm_power_fit_predict(&fit, work[0].flops, work[0].bytes, &e, &err), err);
	assert_near(e.watts, work[0].watts, 1e-3 * work[0].watts);
	assert_near(e.seconds, work[0].seconds, 1e-3 * work[0].seconds);
	assert_int_equal(
		jm_power_fit_predict(&fit, beyond.flops, beyond.bytes, &e, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
}

/* Work of one intensity says nothing of what a byte costs: the other terms explain all of it. */
static void works_of_one_intensity_need_fewer_terms(void **state)
{
	struct jm_power_work work[8];
	struct jm_power_estimate e;
	struct jm_power_fit fit;
	struct jm_err err = {0};

	(void)state;
	for (int i = 0; i < 8; i++)
		work[i] = exact(2e11 * (1 << i), 2e9 * (1 << i));
	assert_ok(jm_power_fit_make(work, 8, &fit, &err), err);
	assert_int_equal(fit.watts.n_used, 2);
	assert_ok(jm_power_fit_predict(&fit, 3e12, 3e10, &e, &err), err);
	assert_near(e.watts, exact(3e12, 3e10).watts, 0.5);
	assert_int_equal(jm_power_fit_predict(&fit, 3e12, 1e10, &e, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
	assert_int_equal(jm_power_fit_make(work, 7, &fit, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
}

static void another_model_of_gpu_is_another_device(void **state)
{
	static const char *const devices[] = {
		"NVIDIA H200 GPU-1", "NVIDIA H200 NVL GPU-1", "NVIDIA H20 GPU-1"};
	json_t *records = json_pack("[{s:s, s:s, s:{s:s, s:s}}]", "status", "ok", "device",
		"cuda:0", "ran_on", "name", "NVIDIA H200 GPU-2", "meter", "nvml:GPU-2");

	(void)state;
	for (int i = 0; i < 3; i++) {
		const struct jm_power_query q = {"cuda", devices[i], "bf16"};
		struct jm_power_works works;
		struct jm_err err = {0};

		assert_ok(jm_power_works_of(records, &q, &works, &err), err);
		assert_int_equal(works.n_records, 1);
		assert_int_equal(works.unfit[JM_POWER_DEVICE], i > 0);
		jm_power_works_done(&works);
	}
	json_decref(records);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(works_left_out_lie_inside),
		cmocka_unit_test(finds_exact_factors),
		cmocka_unit_test(works_of_one_intensity_need_fewer_terms),
		cmocka_unit_test(another_model_of_gpu_is_another_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
