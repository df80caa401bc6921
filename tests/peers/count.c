/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model and a workload that only the program of tests/workloads/test_members.py has: `run
 * sums-small` means the workload that the preset names, which is not training. It counts the
 * parameters of the model.
 */
#include "run/workload.h"
#include "engine/graph/layer.h"

#include <math.h>
#include <stdlib.h>

#include "engine/graph/model.h"

/* ---- the model: y = w x, squared differences ------------------------------------------------- */

struct sums {
	int64_t numbers;
};

static const struct jm_option sums_options[] = {
	JM_MODEL_INT(struct sums, numbers, "numbers", 1000, "that a sample consists of"),
	{0},
};

static const struct jm_preset sums_presets[] = {
	{"sums-small", "seven numbers", "numbers=7", 49, "this file", "count"},
	{0},
};

static const struct jm_input sums_inputs[] = {
	{.name = "x", .fill = JM_FILL_NORMAL},
	{.name = "target", .fill = JM_FILL_NORMAL},
	{0},
};

static int sums_build(struct jm_graph *g, const struct jm_values *dims, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	struct jm_tensor *x, *target, *w;
	struct sums sums = {0};

	(void)seq;
	(void)err;
	JM_FILL(dims, &sums);
	x = jm_graph_input(g, "x", g->compute, 2, (const int64_t[]){batch, sums.numbers});
	target = jm_graph_input(g, "target", g->compute, 2, (const int64_t[]){batch, sums.numbers});
	w = jm_graph_matrix(g, "weight", JM_INIT_NORMAL, sums.numbers, sums.numbers);
	*ret_loss = jm_graph_mse(g, jm_graph_linear(g, x, w, NULL), target);
	return 0;
}

extern const struct jm_model jm_model_sums;
const struct jm_model jm_model_sums = {
	.name = "sums",
	.summary = "sums of numbers, for a test",
	.item = "sample",
	.inputs = sums_inputs,
	.options = sums_options,
	.presets = sums_presets,
	.build = sums_build,
};

/* ---- the workload ---------------------------------------------------------------------------- */

static const struct jm_option count_options[] = {
	{.name = "model", .type = JM_TEXT, .fallback = "sums", .help = "whose parameters count"},
	{0},
};

static int count(const struct jm_values *options, double *ret, struct jm_err *err)
{
	struct jm_training t = {.batch = 1};
	const struct jm_preset *preset;
	struct jm_values dims;
	struct jm_graph *g;
	int code = jm_model_find(jm_values_text(options, "model"), &t.model, &preset, err);

	if (!code)
		code = jm_model_dims(t.model, preset, options, &dims, err);
	if (code)
		return code;
	t.dims = &dims;
	code = jm_model_evaluate(&t, &g, err);
	if (!code) {
		*ret = (double)jm_graph_parameters(g);
		jm_graph_free(g);
	}
	jm_values_done(&dims);
	return code;
}

static int count_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	double *parameters = calloc(1, sizeof(*parameters));
	int code;

	if (!parameters)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a count.");
	code = count(work->options, parameters, err);
	if (code)
		free(parameters);
	else
		*ret_state = parameters;
	return code;
}

static int count_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	(void)err;
	*ret = (struct jm_step){.items = *(const double *)state, .loss = (double)NAN};
	return 0;
}

static int count_verify(void *state, struct jm_err *err)
{
	(void)state;
	(void)err;
	return 0;
}

extern const struct jm_workload jm_workload_count;
const struct jm_workload jm_workload_count = {
	.name = "count",
	.summary = "counts the parameters of a model",
	.unit = "parameter",
	.options = count_options,
	.chooser = "model",
	.chosen_options = jm_model_options,
	.no_precision = true,
	.setup = count_setup,
	.step = count_step,
	.verify = count_verify,
	.teardown = free,
};
