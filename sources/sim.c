/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sensors of a simulated node: per GPU what NVML reports for a Hopper GPU (energy counter,
 * short and long mean of power, clocks...), and its parts as components of their own, without a
 * counter: the memory, of an MI300X its XCDs and IODs, too.
 */
#include "meter/source.h"
#include "sim/sim_node.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int add_signal(struct jm_meters *set, enum jm_quantity quantity, double step,
	double refresh_s, double window_s, double accuracy, struct jm_err *err)
{
	struct jm_signal signal = {
		.quantity = quantity,
		.step = step,
		.refresh_ns = llround(refresh_s * 1e9),
		.window_ns = llround(window_s * 1e9),
		.accuracy = accuracy,
		.stamped = true,
	};

	return jm_meters_add_signal(set, &signal, err);
}

/* In the order in which sim_read fills them. */
static int add_gpu(struct jm_meters *set, const struct jm_sim_name *node, int i, struct jm_err *err)
{
	const struct jm_sim_gpu *g = node->gpu;
	double refresh = g->sensor_refresh_s, accuracy = g->sensor_accuracy;
	char covers[192];
	struct jm_meter meter = {
		.source = "sim", .scope = JM_SCOPE_GPU, .origin = JM_SIMULATED, .covers = covers};
	const struct {
		enum jm_quantity quantity;
		double step, window, accuracy;
	} rows[] = {
		{JM_Q_ENERGY, g->sensor_energy_step_joules, 0, accuracy},
		{JM_Q_POWER, 1e-3, g->sensor_window_s, accuracy},
		{JM_Q_POWER_AVERAGE, 1e-3, g->sensor_average_s, accuracy},
		{JM_Q_CLOCK, 1e6, 0, NAN},
		{JM_Q_MEMORY_CLOCK, 1e6, 0, NAN},
		{JM_Q_TEMPERATURE, 1, 0, NAN},
		{JM_Q_UTILISATION, 0.01, refresh, NAN},
		{JM_Q_THROTTLE, 1, 0, NAN},
		{JM_Q_LIMIT, 1e-3, 0, NAN},
		{JM_Q_LIMIT_REQUESTED, 1e-3, 0, NAN},
	};
	int rc;

	snprintf(meter.id, sizeof(meter.id), "sim:%s/gpu%d", node->text, i);
	snprintf(meter.device, sizeof(meter.device), "%s", meter.id);
	meter.hardware.value[JM_HW_POWER_DEFAULT] = g->cap_default_watts;
	meter.hardware.value[JM_HW_POWER_MIN] = g->cap_min_watts;
	meter.hardware.value[JM_HW_POWER_MAX] = g->cap_max_watts;
	meter.hardware.value[JM_HW_SM_CLOCK_MAX] = g->clock_max_hz;
	meter.hardware.value[JM_HW_MEMORY_CLOCK_MAX] = g->memory_clock_hz;
	snprintf(meter.label, sizeof(meter.label), "GPU %d simulated %s", i, g->label);
	snprintf(covers, sizeof(covers), "gpu/%s", meter.id);
	rc = jm_meters_add(set, &meter, err);
	for (size_t k = 0; rc >= 0 && k < sizeof(rows) / sizeof(rows[0]); k++)
		rc = add_signal(set, rows[k].quantity, rows[k].step, refresh, rows[k].window,
			rows[k].accuracy, err);
	return rc;
}

#define GPU_SIGNALS 10 /* of a GPU without its parts */

static int add_part(struct jm_meters *set, const struct jm_sim_name *node, int i,
	enum jm_sim_part part, struct jm_err *err)
{
	static const struct {
		const char *name;
		enum jm_scope scope;
	} parts[JM_SIM_PARTS] = {[JM_SIM_CORE] = {"core", JM_SCOPE_GPU_CORE},
		[JM_SIM_IO] = {"io", JM_SCOPE_GPU_IO},
		[JM_SIM_MEMORY] = {"memory", JM_SCOPE_GPU_MEMORY}};
	const struct jm_sim_gpu *g = node->gpu;
	char covers[192];
	struct jm_meter meter = {.source = "sim",
		.scope = parts[part].scope,
		.origin = JM_SIMULATED,
		.covers = covers};
	int rc;

	snprintf(meter.id, sizeof(meter.id), "sim:%s/gpu%d/%s", node->text, i, parts[part].name);
	snprintf(meter.device, sizeof(meter.device), "sim:%s/gpu%d", node->text, i);
	snprintf(meter.label, sizeof(meter.label), "GPU %d simulated %s", i, g->part_label[part]);
	snprintf(covers, sizeof(covers), "gpu/%s/%s", meter.device, parts[part].name);
	rc = jm_meters_add(set, &meter, err);
	if (rc < 0)
		return rc;
	return add_signal(set, JM_Q_POWER, 1e-3, g->sensor_refresh_s, g->sensor_window_s,
		g->sensor_accuracy, err);
}

/* The node, and the readings of each GPU's newest sample: it is read more often than the sensor
 * refreshes. */
struct sim {
	const char *name; /* option, while it is opened; NULL = not given */
	struct jm_sim_node *node;
	int signals; /* of each GPU */
	struct jm_reading reading[JM_SIM_GPUS_MAX][GPU_SIGNALS + JM_SIM_PARTS];
};

static void sim_close(void *state)
{
	struct sim *sim = state;

	if (!sim)
		return;
	jm_sim_node_close(sim->node);
	free(sim);
}

static int add_all(struct sim *sim, struct jm_meters *set, struct jm_err *err)
{
	const struct jm_sim_name *name = jm_sim_node_name(sim->node);
	int rc = 0;

	for (int i = 0; rc >= 0 && i < name->n; i++) {
		sim->reading[i][0].t_ns = INT64_MIN;
		rc = add_gpu(set, name, i, err);
		for (int k = 0; rc >= 0 && k < JM_SIM_PARTS; k++)
			if (name->gpu->part_label[k])
				rc = add_part(set, name, i, (enum jm_sim_part)k, err);
	}
	return rc < 0 ? rc : 0;
}

static int sim_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	int rc;

	if (!sim)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the simulated sensors.");
	JM_FILL(options, sim);
	rc = jm_sim_node_open(ctx, sim->name ? sim->name : "", &sim->node, err);
	if (!rc)
		rc = add_all(sim, set, err);
	if (rc) {
		sim_close(sim);
		return rc;
	}
	*ret_state = sim;
	return 0;
}

/* Returns the number of signals. */
static int fill(
	struct jm_reading *reading, const struct jm_sim_gpu *gpu, const struct jm_sim_sample *s)
{
	const double values[GPU_SIGNALS] = {s->joules, s->watts, s->watts_average, s->clock_hz,
		s->memory_clock_hz, s->celsius, s->utilisation, s->throttle, s->held_watts,
		s->cap_watts};
	int n = 0;

	for (; n < GPU_SIGNALS; n++)
		reading[n] = (struct jm_reading){.value = values[n], .t_ns = s->t_ns};
	for (int k = 0; k < JM_SIM_PARTS; k++)
		if (gpu->part_label[k])
			reading[n++] =
				(struct jm_reading){.value = s->watts_part[k], .t_ns = s->t_ns};
	return n;
}

static int sim_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct sim *sim = state;
	const struct jm_sim_name *name = jm_sim_node_name(sim->node);

	(void)err;
	jm_sim_node_advance(sim->node);
	for (int i = 0; i < name->n; i++) {
		const struct jm_sim_sample *sample = jm_sim_node_read(sim->node, i);

		if (sample->t_ns != sim->reading[i][0].t_ns)
			sim->signals = fill(sim->reading[i], name->gpu, sample);
		jm_give_all(sink, i * sim->signals, sim->signals, sim->reading[i]);
	}
	return 0;
}

/* Opening would leave a file behind, for a node that was not requested. */
static void sim_doctor(struct jm_ctx *ctx, jm_finding_fn *say, void *arg)
{
	char why[128];
	struct jm_finding finding = {.ok = true, .what = "simulated nodes", .why = why, .mend = ""};

	(void)ctx;
	jm_sim_names_text(why, sizeof(why));
	say(arg, &finding);
}

static const struct jm_option options[] = {
	{.name = "node",
		JM_BIND(JM_TEXT, struct sim, name),
		.argument = "NODE",
		.help = "model of the GPUs and their number, such as h100x4"},
	{0},
};

const struct jm_source jm_source_sim = {
	.name = "sim",
	.summary = "a simulated node of 1 to 8 GPUs, from published curves",
	.options = options,
	.origin = JM_SIMULATED,
	.open = sim_open,
	.read = sim_read,
	.close = sim_close,
	.doctor = sim_doctor,
};
