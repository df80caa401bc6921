/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the engines that cuDNN has for the convolutions of a network, alone and fused with other
 * ops:
 *	dnn_engines DEVICE.json [MODEL [BATCH]]
 * No GPU is needed: the device is described by cuDNN's JSON. Prints a Markdown table with one row
 * per pattern and type; with -v as the first argument also one line per shape.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/dnn/dnn_conv.h"
#include "backends/cuda/device/math_library.h"
#include "engine/graph/graph.h"
#include "engine/graph/model.h"
#include "backends/cuda/dnn/dnn_plan.h"

#define SHAPES	  64
#define WORKSPACE ((size_t)512 << 20)
#define PLANS	  16

static const struct {
	const char *name;
	cudnnDataType_t type;
	bool exact;
} types[] = {
	{"bf16", CUDNN_DATA_BFLOAT16, false},
	{"fp16", CUDNN_DATA_HALF, false},
	{"tf32", CUDNN_DATA_FLOAT, false},
	{"f32", CUDNN_DATA_FLOAT, true},
};

static struct dnn_conv_shape shapes[SHAPES];
static int n_shapes;

static void give_up(const char *text)
{
	fprintf(stderr, "dnn_engines: %s\n", text);
	exit(1);
}

static void add_shape(const struct jm_node *n)
{
	struct dnn_conv_shape s = {0};

	memcpy(s.x, n->in[0]->dim, sizeof s.x);
	memcpy(s.w, n->in[1]->dim, sizeof s.w);
	memcpy(s.y, n->out[0]->dim, sizeof s.y);
	for (int i = 0; i < 2; i++) {
		s.window.stride[i] = n->attr.conv.stride[i];
		s.window.pad[i] = n->attr.conv.pad[i];
		s.window.dilation[i] = n->attr.conv.dilation[i];
	}
	for (int i = 0; i < n_shapes; i++)
		if (dnn_conv_shape_equal(&shapes[i], &s))
			return;
	if (n_shapes < SHAPES)
		shapes[n_shapes++] = s;
}

/* The shapes of all convolutions of the model, each once. */
static void find_shapes(const char *name, int64_t batch)
{
	struct jm_training t = {.batch = batch, .precision = JM_F32};
	const struct jm_preset *preset;
	struct jm_err err = JM_ERR_INIT;
	struct jm_values dims;
	struct jm_graph *g;

	if (jm_model_find(name, &t.model, &preset, &err) ||
		jm_model_dims(t.model, preset, NULL, &dims, &err))
		give_up(err.text);
	t.dims = &dims;
	if (jm_model_train(&t, &g, &err))
		give_up(err.text);
	for (int i = 0; i < g->n_nodes; i++)
		if (g->node[i]->op == JM_OP_CONV)
			add_shape(g->node[i]);
	jm_graph_free(g);
	jm_values_done(&dims);
}

/* ---- the table ------------------------------------------------------------------------------- */

struct row {
	int built, compiled, plans;
	size_t workspace;
};

static void show_shape(const struct dnn_conv_shape *s, const char *what, const char *type, int n,
	const struct dnn_plan *plan, const char *why)
{
	fprintf(stderr, "%-60s %s x %lldx%lldx%lld w %lldx%lldx%lld /%lld: ", what, type,
		(long long)s->x[1], (long long)s->x[2], (long long)s->x[3], (long long)s->w[0],
		(long long)s->w[2], (long long)s->w[3], (long long)s->window.stride[0]);
	if (n)
		fprintf(stderr, "%d plans, %s%s, %zu bytes\n", n, plan->name,
			plan->compiled ? " (compiled)" : "", plan->workspace);
	else
		fprintf(stderr, "%s\n", why);
}

static void try_shape(const struct cuda_dnn *d, enum dnn_pattern pattern, int type,
	const struct dnn_conv_shape *shape, bool verbose, struct row *row)
{
	struct dnn_conv_shape s = *shape;
	struct jm_err err = JM_ERR_INIT;
	struct dnn_want want = {
		.exact = types[type].exact, .repeatable = true, .workspace = WORKSPACE};
	struct dnn_plan plan[PLANS];
	struct dnn_conv_ids ids;
	struct dnn_graph *g;
	int n;

	s.type = types[type].type;
	g = dnn_conv_graph(d, pattern, &s, &ids);
	n = g ? dnn_plans(g, &want, plan, verbose ? PLANS : 1, &err) : 0;
	if (verbose)
		show_shape(&s, dnn_pattern_names[pattern], types[type].name, n, plan, err.text);
	if (n) {
		row->built++;
		row->compiled += plan[0].compiled;
		if (plan[0].workspace > row->workspace)
			row->workspace = plan[0].workspace;
	}
	for (int i = 0; i < n; i++)
		dnn_plan_drop(d, &plan[i]);
	dnn_graph_free(g);
}

static void show_row(const struct cuda_dnn *d, enum dnn_pattern pattern, int type, bool verbose)
{
	struct row row = {0};

	for (int i = 0; i < n_shapes; i++)
		try_shape(d, pattern, type, &shapes[i], verbose, &row);
	printf("| %s | %s | %d of %d | %d | %.1f |\n", dnn_pattern_names[pattern], types[type].name,
		row.built, n_shapes, row.compiled, (double)row.workspace / 1e6);
	fflush(stdout);
}

static char *read_file(const char *name)
{
	static char text[8192];
	FILE *f = fopen(name, "re");

	if (!f)
		give_up("the description of the device cannot be read");
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	return text;
}

int main(int argc, char **argv)
{
	struct jm_err err = JM_ERR_INIT;
	bool verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
	struct cuda_dnn d = {0};

	argv += verbose;
	argc -= verbose;
	if (argc < 2)
		give_up("usage: dnn_engines [-v] DEVICE.json [MODEL [BATCH]]");
	find_shapes(argc > 2 ? argv[2] : "resnet50", argc > 3 ? strtoll(argv[3], NULL, 10) : 256);
	if (cuda_dnn_load(&d, &err) || dnn_describe(&d, read_file(argv[1]), &err))
		give_up(err.text);
	printf("cuDNN %zu, %d shapes of %s\n\n", d.version, n_shapes,
		argc > 2 ? argv[2] : "resnet50");
	printf("| operations | type | shapes with an engine | compiled at run time | most "
	       "workspace, MB |\n");
	printf("|---|---|--:|--:|--:|\n");
	for (int p = 0; p < DNN_PATTERN_COUNT; p++)
		for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
			show_row(&d, (enum dnn_pattern)p, (int)t, verbose);
	dnn_forget(&d);
	return 0;
}
