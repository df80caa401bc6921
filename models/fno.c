/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier neural operator (Li et al., arXiv 2010.08895) for fields on a periodic grid, as CARAML
 * trains it (FZJ-JSC/CARAML operator_benchmark, problems RBC2D and RBC3D): a linear layer lifts the
 * fields to `hidden` channels; each layer adds a convolution over the whole grid and a linear one
 * and applies gelu; two linear layers with gelu between make the fields again. All linear layers
 * have biases, the complex matrices of the frequencies none. The loss is the mean of |y - target| /
 * |target|, with norms over the last two axes of the grid.
 *
 * Start values: complex matrices as in CARAML, uniform in 0 to 1; the others Glorot and Bengio
 * 2010.
 */
#include "engine/graph/model.h"
#include "transformer.h"
#include "engine/graph/layer.h"
#include "engine/graph/layer_spectral.h"

#include <stdio.h>

#define EXPAND	  4 /* the hidden layer of the last two is so many times as wide */
#define NORM_AXES 2
#define CARAML	  "FZJ-JSC/CARAML operator_benchmark/fno_benchmark.yaml, arXiv 2010.08895"

struct grid {
	int axes;
	int64_t points[JM_AXES], modes[JM_AXES];
	int64_t fields, hidden, layers;
};

static const struct jm_option options[] = {
	JM_MODEL_INT(struct grid, fields, "fields", 10000,
		"fields of a sample, such as temperature and pressure"),
	JM_MODEL_INT(struct grid, hidden, "hidden", 1000000, "channels between the layers"),
	JM_MODEL_INT(struct grid, layers, "layers", 4000,
		"layers with a convolution over the whole grid"),
	JM_MODEL_INT(struct grid, points[0], "points-x", 1000000, "points of the grid along x"),
	JM_MODEL_INT(struct grid, points[1], "points-y", 1000000, "points of the grid along y"),
	JM_MODEL_INT(struct grid, points[2], "points-z", 1000000,
		"points of the grid along z; 1 = the grid has two axes"),
	JM_MODEL_INT(struct grid, modes[0], "modes-x", 500000,
		"frequencies along x, and as many negative ones"),
	JM_MODEL_INT(struct grid, modes[1], "modes-y", 500000,
		"frequencies along y, and as many negative ones if the grid has three axes"),
	JM_MODEL_INT(struct grid, modes[2], "modes-z", 500001, "frequencies along z"),
	{0},
};

static const struct jm_preset presets[] = {
	{"fno-rbc2d", "Fourier neural operator, Rayleigh-Benard convection in two dimensions",
		"fields=4 hidden=16 layers=2 points-x=256 points-y=64 modes-x=12 modes-y=12",
		296884, CARAML, "train"},
	{"fno-rbc3d", "Fourier neural operator, Rayleigh-Benard convection in three dimensions",
		"fields=5 hidden=25 layers=2 points-x=64 points-y=64 points-z=32 modes-x=12 "
		"modes-y=12 modes-z=6",
		8644555, CARAML, "train"},
	{0},
};

static int fno_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	int code = jm_dim_default(v, "points-z", 1, err);

	(void)seq;
	return code ? code : jm_dim_default(v, "modes-z", 1, err);
}

/* Each frequency may occur only once. */
static int check_axis(const struct grid *g, int a, struct jm_err *err)
{
	bool last = a == g->axes - 1;
	int64_t most = g->points[a] / 2 + last;

	if (g->modes[a] <= most)
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"%lld points along %c have at most %lld frequencies%s, fewer than --modes-%c %lld; "
		"give fewer or a larger --points-%c.",
		(long long)g->points[a], 'x' + a, (long long)most, last ? "" : " of either sign",
		'x' + a, (long long)g->modes[a], 'x' + a);
}

static int grid_of(const struct jm_values *v, struct grid *ret, struct jm_err *err)
{
	struct grid g = {0};
	int code = 0;

	JM_FILL(v, &g);
	g.axes = g.points[2] > 1 ? 3 : 2;
	for (int a = 0; a < g.axes && !code; a++)
		code = check_axis(&g, a, err);
	if (!code && g.axes == 2 && g.modes[2] > 1)
		code = jm_err_set(err, JM_EUSAGE,
			"--modes-z is for grids with three axes; give --points-z, too, or omit "
			"it.");
	*ret = g;
	return code;
}

static struct jm_tensor *field_input(struct jm_graph *g, const struct grid *grid, int64_t batch,
	int64_t fields, const char *name)
{
	int64_t dim[JM_DIMS] = {batch};

	for (int a = 0; a < grid->axes; a++)
		dim[1 + a] = grid->points[a];
	dim[1 + grid->axes] = fields;
	return jm_graph_input(g, name, g->compute, 2 + grid->axes, dim);
}

static int fno_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	int64_t width, fields;
	enum jm_init init = JM_INIT_XAVIER_UNIFORM;
	struct jm_tensor *x, *target, *wide;
	struct grid grid;
	int code = grid_of(v, &grid, err);

	(void)seq;
	if (code)
		return code;
	width = grid.hidden;
	fields = grid.fields;
	x = field_input(g, &grid, batch, fields, "sample");
	target = field_input(g, &grid, batch, fields, "target");
	x = jm_transformer_linear(g, x, fields, width, init, "lift");
	for (int64_t i = 0; i < grid.layers; i++) {
		jm_graph_scope(g, "h%lld.", (long long)i);
		wide = jm_graph_spectral_conv(g, x, "modes.weight", width, grid.modes);
		x = jm_transformer_linear(g, x, width, width, init, "linear");
		x = jm_graph_gelu_erf(g, jm_graph_add(g, wide, x));
	}
	jm_graph_scope(g, "%s", "");
	x = jm_transformer_linear(g, x, width, EXPAND * width, init, "project.in");
	x = jm_transformer_linear(
		g, jm_graph_gelu_erf(g, x), EXPAND * width, fields, init, "project.out");
	*ret_loss = jm_graph_relative_l2(g, x, target, NORM_AXES);
	return 0;
}

static const struct jm_input inputs[] = {
	{.name = "sample", .fill = JM_FILL_HEAT, .field = "inputs"},
	{.name = "target", .fill = JM_FILL_HEAT, .shift = 1, .field = "outputs"},
	{0},
};

const struct jm_model jm_model_fno = {
	.name = "fno",
	.summary = "Fourier neural operator for fields on a periodic grid of two or three axes",
	.item = "sample",
	.inputs = inputs,
	.options = options,
	.presets = presets,
	.complete = fno_complete,
	.build = fno_build,
};
