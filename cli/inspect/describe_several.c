/* SPDX-License-Identifier: Apache-2.0 */
/* What trainings of several models take, side by side. */
#include "describe_several.h"
#include "engine/graph/optimizer.h"
#include "report/format/grid.h"

#include <math.h>
#include <stdio.h>

int64_t describe_least_batch(char *const *name, int n)
{
	const struct jm_preset *preset;
	const struct jm_model *model;
	int64_t least = 1;

	for (int i = 0; i < n; i++) {
		struct jm_err why = JM_ERR_INIT;

		if (!jm_model_find(name[i], &model, &preset, &why) && model->least_batch > least)
			least = model->least_batch;
	}
	return least;
}

double describe_items(const struct describe_plan *plan)
{
	return (double)(plan->training.batch * plan->training.seq) *
	       jm_program_micro_steps(plan->program) / jm_graph_tp(plan->graph);
}

double describe_scale(double value, const char *unit, char suffix[DESCRIBE_SUFFIX])
{
	const char *prefix = *unit ? " kMGTPE" : " kMBT";
	size_t i = 0;

	for (; value >= 1000 && prefix[i + 1]; i++)
		value /= 1000;
	snprintf(suffix, DESCRIBE_SUFFIX, "%c%s", prefix[i], unit);
	return value;
}

void describe_print(FILE *out, const char *what, double value, const char *unit)
{
	char suffix[DESCRIBE_SUFFIX];

	value = describe_scale(value, unit, suffix);
	fprintf(out, "  %-28s %8.4g %s\n", what, value, suffix);
}

/* ---- figures --------------------------------------------------------------------------------- */

typedef double figure_fn(const struct describe_plan *plan);

static double parameters(const struct describe_plan *plan)
{
	return (double)jm_graph_parameters(plan->graph);
}

static double model_flops(const struct describe_plan *plan)
{
	return plan->flops_model / describe_items(plan);
}

static double executed_flops(const struct describe_plan *plan)
{
	return plan->flops_executed / describe_items(plan);
}

static double traffic(const struct describe_plan *plan)
{
	return plan->bytes / describe_items(plan);
}

static double peak(const struct describe_plan *plan)
{
	return (double)plan->program->peak_bytes;
}

static double kept(const struct describe_plan *plan)
{
	return (double)plan->program->persistent_bytes;
}

static double parameter_bytes(const struct describe_plan *plan)
{
	return (double)plan->program->class_bytes[JM_CLASS_PARAM];
}

static double kept_gradients(const struct describe_plan *plan)
{
	const struct jm_program *p = plan->program;

	return p->gradients_move ? NAN : (double)p->class_bytes[JM_CLASS_GRAD];
}

static double planned_gradients(const struct describe_plan *plan)
{
	const struct jm_program *p = plan->program;

	return p->gradients_move ? (double)p->class_bytes[JM_CLASS_GRAD] : NAN;
}

static double optimizer_bytes(const struct describe_plan *plan)
{
	return (double)plan->program->class_bytes[JM_CLASS_OPT];
}

static double arena(const struct describe_plan *plan)
{
	return (double)plan->program->arena_bytes;
}

static const struct {
	const char *title, *unit;
	figure_fn *figure; /* NAN = it has none */
} rows[] = {
	{"parameters", "", parameters},
	{"model FLOPs per item", "FLOP", model_flops},
	{"executed per item", "FLOP", executed_flops},
	{"traffic per item", "B", traffic},
	{"peak memory", "B", peak},
	{"kept between steps", "B", kept},
	{"  parameters", "B", parameter_bytes},
	{"  gradients", "B", kept_gradients},
	{"  optimizer", "B", optimizer_bytes},
	{"planned over a step", "B", arena},
	{"  gradients", "B", planned_gradients},
};
#define N_ROWS ((int)(sizeof(rows) / sizeof(rows[0])))

/* ---- the table ------------------------------------------------------------------------------- */

/* The first rows say what the item is, and of text how long a sequence. */
#define ITEM_ROWS 2

static int set_item(
	const struct describe_plan *plan, int column, struct jm_grid *grid, struct jm_err *err)
{
	const struct jm_model *model = plan->training.model;
	int code = jm_grid_set(grid, 0, column, err, "%s", model->item);

	if (code || !jm_model_has_text(model))
		return code ? code : jm_grid_set(grid, 1, column, err, "-");
	return jm_grid_set(grid, 1, column, err, "%lld", (long long)plan->training.seq);
}

static int set_column(
	const struct describe_plan *plan, int column, struct jm_grid *grid, struct jm_err *err)
{
	int code = jm_grid_set(grid, -1, column, err, "%s", plan->name);
	char suffix[DESCRIBE_SUFFIX];

	if (!code)
		code = set_item(plan, column, grid, err);
	for (int i = 0; i < N_ROWS && !code; i++) {
		double value = describe_scale(rows[i].figure(plan), rows[i].unit, suffix);

		if (isnan(value))
			code = jm_grid_set(grid, ITEM_ROWS + i, column, err, "-");
		else if (*suffix == ' ') /* a count below 1000 */
			code = jm_grid_set(
				grid, ITEM_ROWS + i, column, err, "%.4g %s", value, suffix + 1);
		else /* 24.30 beside 24.54 */
			code = jm_grid_set(
				grid, ITEM_ROWS + i, column, err, "%#.4g %s", value, suffix);
	}
	return code;
}

static int set_titles(struct jm_grid *grid, struct jm_err *err)
{
	int code = jm_grid_set(grid, -1, 0, err, " ");

	grid->left[0] = true;
	code = code ? code : jm_grid_set(grid, 0, 0, err, "item");
	code = code ? code : jm_grid_set(grid, 1, 0, err, "sequence");
	for (int i = 0; i < N_ROWS && !code; i++)
		code = jm_grid_set(grid, ITEM_ROWS + i, 0, err, "%s", rows[i].title);
	return code;
}

int describe_several(
	const struct describe_plan *plan, int n, int width, FILE *out, struct jm_err *err)
{
	struct jm_grid grid;
	int code = jm_grid_new(&grid, ITEM_ROWS + N_ROWS, n + 1, err);

	if (code)
		return code;
	code = set_titles(&grid, err);
	for (int i = 0; i < n && !code; i++)
		code = set_column(&plan[i], i + 1, &grid, err);
	if (!code) {
		fprintf(out, "training in %s, batch %lld, %s, on %s\n\n", plan->precision,
			(long long)plan->training.batch, jm_update_names[plan->training.adamw.kind],
			plan->device.backend->name);
		jm_grid_print(&grid, 0, width, out);
		if (describe_ranks_n(plan) > 1)
			fprintf(out, "\nMemory is that of one of %d ranks%s.\n",
				describe_ranks_n(plan),
				plan->training.pp > 1 ? ", with the stage that needs most" : "");
	}
	jm_grid_done(&grid);
	return code;
}
