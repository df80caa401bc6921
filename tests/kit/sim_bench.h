/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the tests of the simulated node share: a node with its sensors and an adjustable
 * clock. */
#ifndef JM_TEST_SIM_BENCH_H
#define JM_TEST_SIM_BENCH_H

#include "test.h"
#include "source_row.h"
#include "base/ctx.h"
#include "base/clock.h"
#include "sim/sim_node.h"
#include "meter/source.h"

extern const struct jm_source jm_source_sim;

#define SIGNALS	    11 /* of a GPU and its memory */
#define SIGNALS_MAX 13 /* of a GPU with sensors of all parts */

/* A node with its registers, its source and the thread that moves simulated time. */
struct bench {
	struct jm_ctx ctx;
	struct jm_sleeper sleeper;
	struct jm_sim_registers *registers;
	struct jm_meters meters;
	void *source;
};

static inline void bench_open(struct bench *b, const char *node, bool simulated)
{
	struct jm_err err = JM_ERR_INIT;

	*b = (struct bench){0};
	assert_ok(jm_ctx_init(&b->ctx, &err), err);
	if (simulated)
		b->ctx.clock = jm_clock_new_simulated(0);
	jm_sleeper_init(&b->sleeper, b->ctx.clock);
	assert_ok(jm_sim_registers_open(&b->ctx, node, &b->registers, &err), err);
	assert_ok(jm_source_open(&jm_source_sim, &b->ctx, node, &b->meters, &b->source, &err), err);
}

static inline void bench_close(struct bench *b)
{
	jm_source_sim.close(b->source);
	jm_meters_done(&b->meters);
	jm_sim_registers_close(b->registers);
	jm_sleeper_done(&b->sleeper);
	jm_clock_free(b->ctx.clock);
}

static inline void until(struct bench *b, double seconds)
{
	jm_sleep_until(&b->sleeper, llround(seconds * 1e9));
}

static inline void set_caps(struct bench *b, double watts)
{
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < jm_sim_registers_name(b->registers)->n; i++)
		assert_ok(jm_sim_registers_set_cap(b->registers, i, watts, &err), err);
}

static inline void load(struct bench *b, const char *response, uint64_t seed)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_sim_load l = {.seed = seed,
		.response = jm_sim_response_find(
			jm_sim_registers_name(b->registers)->gpu, response, &err)};

	assert_ok(l.response, err);
	assert_ok(jm_sim_registers_load(b->registers, &l, &err), err);
}

static inline struct jm_reading read_signal(struct bench *b, int gpu, enum jm_quantity quantity)
{
	struct jm_reading all[SIGNALS_MAX * JM_SIM_GPUS_MAX];
	struct jm_err err = JM_ERR_INIT;
	int each = b->meters.n / jm_sim_registers_name(b->registers)->n;

	assert_true(b->meters.n_signals <= SIGNALS_MAX * JM_SIM_GPUS_MAX);
	assert_ok(read_row(&jm_source_sim, b->source, all, &err), err);
	return all[jm_meter_signal(&b->meters, each * gpu, quantity)];
}

static inline double value(struct bench *b, int gpu, enum jm_quantity quantity)
{
	return read_signal(b, gpu, quantity).value;
}

#endif
