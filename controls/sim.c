/* SPDX-License-Identifier: Apache-2.0 */
/* The power limits and clocks of a simulated node. */
#include "guard/control.h"
#include "sim/registers.h"

#include <stdio.h>

/* First the caps of all GPUs, then their clocks. */
static int add_knob(struct jm_knobs *set, const struct jm_sim_name *node, int i, struct jm_err *err)
{
	const struct jm_sim_gpu *gpu = node->gpu;
	struct jm_knob power = {
		.name = "gpu.power",
		.unit = "W",
		.min = gpu->cap_min_watts,
		.max = gpu->cap_max_watts,
		.step = gpu->cap_step_watts,
		.fallback = jm_knob_value_of(gpu->cap_default_watts),
	};
	struct jm_knob clock = {
		.name = "gpu.clock",
		.unit = "Hz",
		.kind = JM_KNOB_RANGE,
		.min = gpu->clock_idle_hz,
		.max = gpu->clock_max_hz,
		.fallback = jm_knob_value_between(gpu->clock_idle_hz, gpu->clock_max_hz),
	};
	struct jm_knob *knob = i < node->n ? &power : &clock;

	snprintf(knob->device, sizeof(knob->device), "sim:%s/gpu%d", node->text, i % node->n);
	snprintf(knob->label, sizeof(knob->label), "GPU %d simulated %s", i % node->n, gpu->label);
	return jm_knobs_add(set, knob, err);
}

static int sim_open(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
	struct jm_err *err)
{
	struct jm_sim_registers *registers;
	const struct jm_sim_name *node;
	int rc = jm_sim_registers_open(ctx, arg, &registers, err);

	if (rc)
		return rc;
	node = jm_sim_registers_name(registers);
	for (int i = 0; rc >= 0 && i < 2 * node->n; i++)
		rc = add_knob(set, node, i, err);
	if (rc < 0) {
		jm_sim_registers_close(registers);
		return rc;
	}
	*ret_state = registers;
	return 0;
}

/* An MI300X accepts caps that it does not keep: `enforced` is the power that it then keeps to. */
static int sim_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	struct jm_sim_registers *registers = state;
	const struct jm_sim_name *node = jm_sim_registers_name(registers);
	double cap, low, high;

	(void)err;
	if (i >= node->n) {
		jm_sim_registers_clock(registers, i - node->n, &low, &high);
		*ret_accepted = *ret_enforced = jm_knob_value_between(low, high);
		return 0;
	}
	cap = jm_sim_registers_cap(registers, i);
	*ret_accepted = jm_knob_value_of(cap);
	*ret_enforced = jm_knob_value_of(jm_sim_held_watts(node->gpu, cap));
	return 0;
}

static int sim_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	int n = jm_sim_registers_name(state)->n;

	if (i >= n)
		return jm_sim_registers_set_clock(state, i - n, value->low, value->high, err);
	return jm_sim_registers_set_cap(state, i, jm_knob_value_number(value), err);
}

static void sim_close(void *state)
{
	jm_sim_registers_close(state);
}

/* Opening creates a file, here for a node that was not requested. */
static void sim_doctor(struct jm_ctx *ctx, jm_finding_fn *say, void *arg)
{
	char why[128];
	struct jm_finding finding = {.ok = true,
		.what = "power limits and clocks of simulated nodes",
		.why = why,
		.mend = ""};

	(void)ctx;
	jm_sim_names_text(why, sizeof(why));
	say(arg, &finding);
}

const struct jm_control jm_control_sim = {
	.name = "sim",
	.summary = "power limits and clocks of a simulated node",
	.knobs = "gpu.power gpu.clock",
	.argument = "NODE",
	.origin = JM_SIMULATED,
	.open = sim_open,
	.get = sim_get,
	.set = sim_set,
	.close = sim_close,
	.doctor = sim_doctor,
};
