/* SPDX-License-Identifier: Apache-2.0 */
/* A workload that only waits: the skeleton of a workload, and a way to measure a machine at
 * rest. */
#include "run/workload.h"

#include <math.h>
#include <stdlib.h>

struct state {
	struct jm_sleeper *sleeper;
	int64_t period_ns;
};

static const struct jm_option options[] = {
	{.name = "step-time",
		JM_BIND(JM_DURATION, struct state, period_ns),
		.unit = "s",
		.min = 0,
		.max = 3600,
		.fallback = "100ms",
		.help = "time that a step waits"},
	{0},
};

static int null_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the null workload.");
	s->sleeper = work->sleeper;
	JM_FILL(work->options, s);
	work->n_devices = 1;
	*ret_state = s;
	return 0;
}

static int null_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct state *s = state;

	(void)err;
	jm_sleep_until(s->sleeper, jm_clock_now(s->sleeper->clock) + s->period_ns);
	*ret = (struct jm_step){.items = 1, .loss = NAN};
	return 0;
}

static int null_verify(void *state, struct jm_err *err)
{
	(void)state;
	(void)err;
	return 0;
}

const struct jm_workload jm_workload_null = {
	.name = "null",
	.summary = "waits, to measure the machine at rest",
	.unit = "wait",
	.options = options,
	.no_precision = true,
	.setup = null_setup,
	.step = null_step,
	.verify = null_verify,
	.teardown = free,
};
