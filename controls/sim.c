/* SPDX-License-Identifier: Apache-2.0 */
/* The power limits of a simulated node. */
#include "guard/control.h"
#include "sim/registers.h"

#include <stdio.h>

static int add_knob(struct jm_knobs *set, const struct jm_sim_name *node, int i, struct jm_err *err)
{
	const struct jm_sim_gpu *gpu = node->gpu;
	struct jm_knob knob = {
		.name = "gpu.power",
		.unit = "W",
		.min = gpu->cap_min_watts,
		.max = gpu->cap_max_watts,
		.step = gpu->cap_step_watts,
		.fallback = jm_knob_value_of(gpu->cap_default_watts),
	};

	snprintf(knob.device, sizeof(knob.device), "sim:%s/gpu%d", node->text, i);
	snprintf(knob.label, sizeof(knob.label), "GPU %d simulated %s", i, gpu->label);
	return jm_knobs_add(set, &knob, err);
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
	for (int i = 0; rc >= 0 && i < node->n; i++)
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
	double cap = jm_sim_registers_cap(registers, i);

	(void)err;
	*ret_accepted = jm_knob_value_of(cap);
	*ret_enforced =
		jm_knob_value_of(jm_sim_held_watts(jm_sim_registers_name(registers)->gpu, cap));
	return 0;
}

static int sim_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
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
	struct jm_finding finding = {
		.ok = true, .what = "power limits of simulated nodes", .why = why, .mend = ""};

	(void)ctx;
	jm_sim_names_text(why, sizeof(why));
	say(arg, &finding);
}

const struct jm_control jm_control_sim = {
	.name = "sim",
	.summary = "power limits of a simulated node",
	.knobs = "gpu.power",
	.argument = "NODE",
	.origin = JM_SIMULATED,
	.open = sim_open,
	.get = sim_get,
	.set = sim_set,
	.close = sim_close,
	.doctor = sim_doctor,
};
