/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every op's gradient against central finite differences, on ref in f64. A case computes logits
 * from parameters by the op; the loss is softmax-xent, whose gradient is thereby tested, too.
 */
#include "kit/engine_kit.h"
#include "engine/graph/model.h"
#include "kit/test.h"
#include "engine/graph/gradient.h"
#include "engine/graph/layer_image.h"
#include "engine/graph/layer.h"
#include "engine/graph/layer_pages.h"
#include "engine/graph/layer_spectral.h"
#include "engine/run/start_values.h"
#include "engine/graph/rng.h"

#define STEP	  2e-5
#define TOLERANCE 1e-9 /* of a derivative, relative to 1 + its size */
#define PROBES	  24   /* elements of each parameter */

/* Declares the case; returns the loss. */
typedef struct jm_tensor *build_fn(struct kit *k);

static struct jm_tensor *loss_of(struct kit *k, struct jm_tensor *y)
{
	struct jm_tensor *target = kit_ids(k, y->dim[y->rank - 1], y->rank - 1, y->dim);

	return jm_graph_softmax_xent(k->graph, y, target);
}

static struct jm_tensor *xent(struct kit *k)
{
	return loss_of(k, kit_param(k, 2, DIMS(3, 7)));
}

/* Of rows with a target and some without one. */
static struct jm_tensor *xent_ignored(struct kit *k)
{
	struct jm_tensor *target = kit_whole(k, JM_I32, -4, 6, 1, DIMS(12));
	struct jm_tensor *at = jm_graph_wanted_rows(k->graph, &target, 11);
	struct jm_tensor *x = jm_graph_rows(k->graph, kit_param(k, 2, DIMS(12, 7)), at);

	return jm_graph_ignore_targets(k->graph, jm_graph_softmax_xent(k->graph, x, target));
}

static struct jm_tensor *mse(struct kit *k)
{
	struct jm_tensor *target = kit_normal(k, JM_F64, 0, 1, 2, DIMS(3, 7));

	return jm_graph_mse(k->graph, kit_param(k, 2, DIMS(3, 7)), target);
}

/* Each of some rows with each of others, which both need gradients, both ways: a weighted sum. */
static struct jm_tensor *symmetric(struct kit *k)
{
	struct jm_tensor *a = jm_graph_gelu(k->graph, kit_param(k, 2, DIMS(4, 6)));
	struct jm_tensor *b = jm_graph_gelu(k->graph, kit_param(k, 2, DIMS(4, 6)));
	struct jm_tensor *same = kit_ids(k, 4, 1, DIMS(4));
	struct jm_tensor *loss =
		jm_graph_softmax_xent(k->graph, jm_graph_linear(k->graph, a, b, NULL), same);

	return jm_graph_softmax_xent_add(
		k->graph, loss, 0.4, jm_graph_linear(k->graph, b, a, NULL), same);
}

static struct jm_tensor *embed(struct kit *k)
{
	struct jm_tensor *ids = kit_ids(k, 5, 2, DIMS(2, 3));
	struct jm_tensor *table = kit_param(k, 2, DIMS(5, 6));

	return loss_of(k, jm_graph_embed(k->graph, ids, table, kit_param(k, 2, DIMS(4, 6))));
}

static struct jm_tensor *embed_alone(struct kit *k)
{
	struct jm_tensor *ids = kit_ids(k, 5, 2, DIMS(2, 3));

	return loss_of(k, jm_graph_embed(k->graph, ids, kit_param(k, 2, DIMS(5, 6)), NULL));
}

static struct jm_tensor *linear(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 3, DIMS(2, 3, 5)), *w = kit_param(k, 2, DIMS(4, 5));

	return loss_of(k, jm_graph_linear(k->graph, x, w, kit_param(k, 1, DIMS(4))));
}

static struct jm_tensor *activations(struct kit *k)
{
	struct jm_tensor *x = jm_graph_geglu(k->graph, kit_param(k, 2, DIMS(4, 36)));

	x = jm_graph_silu(k->graph, jm_graph_swiglu(k->graph, x));
	x = jm_graph_gelu_quick(k->graph, jm_graph_gelu(k->graph, jm_graph_gelu_erf(k->graph, x)));
	return loss_of(k, jm_graph_relu(k->graph, x));
}

static struct jm_tensor *layernorm(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 2, DIMS(4, 9)), *gamma = kit_param(k, 1, DIMS(9));

	return loss_of(k, jm_graph_layernorm(k->graph, x, gamma, kit_param(k, 1, DIMS(9)), 1e-5));
}

static struct jm_tensor *layernorm_alone(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 2, DIMS(4, 9)), *gamma = kit_param(k, 1, DIMS(9));

	return loss_of(k, jm_graph_layernorm(k->graph, x, gamma, NULL, 1e-2));
}

static struct jm_tensor *attention(struct kit *k)
{
	struct jm_tensor *qkv = kit_param(k, 3, DIMS(2, 5, 3 * 2 * 4));

	return loss_of(k, jm_graph_attention(k->graph, qkv, 2, 2, true));
}

/* To the own positions, then to fewer others. */
static struct jm_tensor *attention_full(struct kit *k)
{
	struct jm_tensor *q =
		jm_graph_attention(k->graph, kit_param(k, 3, DIMS(1, 5, 3 * 2 * 3)), 2, 2, false);
	struct jm_tensor *keys = kit_param(k, 3, DIMS(1, 3, 6)),
			 *v = kit_param(k, 3, DIMS(1, 3, 6));

	return loss_of(k, jm_graph_attention_apart(k->graph, q, keys, v, 2));
}

static struct jm_tensor *attention_grouped(struct kit *k)
{
	struct jm_tensor *qkv = kit_param(k, 3, DIMS(2, 4, (4 + 2 * 2) * 3));

	return loss_of(k, jm_graph_attention(k->graph, qkv, 4, 2, true));
}

static struct jm_tensor *rope(struct kit *k)
{
	struct jm_tensor *qkv = kit_param(k, 3, DIMS(2, 5, (2 + 2 * 1) * 4));
	struct jm_tensor *y = jm_graph_rope(k->graph, qkv, 2, 1, (struct jm_rotary){.theta = 100});

	return loss_of(k, jm_graph_attention(k->graph, y, 2, 1, true));
}

static struct jm_tensor *add(struct kit *k)
{
	struct jm_tensor *a = kit_param(k, 2, DIMS(3, 5)), *b = kit_param(k, 2, DIMS(3, 5));

	return loss_of(k, jm_graph_add(k->graph, a, b));
}

/* x + x, where both parts of the gradient are one tensor */
static struct jm_tensor *doubled(struct kit *k)
{
	struct jm_tensor *x = jm_graph_gelu(k->graph, kit_param(k, 2, DIMS(3, 5)));

	return loss_of(k, jm_graph_add(k->graph, x, x));
}

/* A shared gradient that one owner adds to before the other has used it. */
static struct jm_tensor *shared(struct kit *k)
{
	struct jm_graph *g = k->graph;
	struct jm_tensor *b = jm_graph_gelu(g, kit_param(k, 2, DIMS(3, 5)));
	struct jm_tensor *a = jm_graph_gelu(g, kit_param(k, 2, DIMS(3, 5)));
	struct jm_tensor *c = jm_graph_gelu(g, a);

	return loss_of(k, jm_graph_add(g, jm_graph_add(g, a, b), c));
}

/* One matrix as table and as output weight: two nodes write one gradient. */
static struct jm_tensor *tied(struct kit *k)
{
	struct jm_tensor *ids = kit_ids(k, 6, 2, DIMS(2, 4)), *table = kit_param(k, 2, DIMS(6, 5));
	struct jm_tensor *x = jm_graph_embed(k->graph, ids, table, NULL);

	return loss_of(k, jm_graph_linear(k->graph, x, table, NULL));
}

static struct jm_tensor *conv(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 4, DIMS(2, 3, 5, 6)),
			 *w = kit_param(k, 4, DIMS(4, 3, 3, 2));

	return loss_of(k, jm_graph_conv(k->graph, x, w, kit_param(k, 1, DIMS(4)),
				  &(struct jm_window){.stride = 2, .pad = 1}));
}

static struct jm_tensor *conv_grouped(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 4, DIMS(1, 4, 7, 7)),
			 *w = kit_param(k, 4, DIMS(6, 2, 3, 3));

	return loss_of(k, jm_graph_conv(k->graph, x, w, NULL,
				  &(struct jm_window){.groups = 2, .dilation = 2, .pad = 2}));
}

static struct jm_tensor *conv_flat(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 4, DIMS(2, 3, 4, 5)),
			 *w = kit_param(k, 4, DIMS(4, 3, 1, 5)), *y;

	y = jm_graph_conv(k->graph, x, w, NULL, &(struct jm_window){.same = true});
	assert_non_null(y);
	assert_int_equal(y->dim[2], 4);
	assert_int_equal(y->dim[3], 5);
	return loss_of(k, y);
}

static struct jm_tensor *conv_depthwise(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 4, DIMS(2, 3, 4, 5)),
			 *w = kit_param(k, 4, DIMS(3, 1, 3, 3));

	return loss_of(k, jm_graph_conv(k->graph, x, w, NULL,
				  &(struct jm_window){.groups = 3, .pad = 1, .more = 1}));
}

static struct jm_tensor *batchnorm(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 4, DIMS(3, 2, 2, 3));

	x = jm_graph_batchnorm(k->graph, x, NULL, true, 1e-2, "bn1");
	return loss_of(k, jm_graph_batchnorm(k->graph, x, NULL, false, 1e-5, "bn2"));
}

/* A residual block: its input's gradient comes from two sides. */
static struct jm_tensor *batchnorm_add(struct kit *k)
{
	struct jm_tensor *x = jm_graph_silu(k->graph, kit_param(k, 4, DIMS(3, 2, 3, 3))), *y;

	y = jm_graph_conv(k->graph, x, kit_param(k, 4, DIMS(2, 2, 3, 3)), NULL,
		&(struct jm_window){.pad = 1});
	y = jm_graph_batchnorm(k->graph, y, x, true, 1e-5, "bn1");
	x = jm_graph_batchnorm(k->graph, y, NULL, false, 1e-5, "bn2");
	return loss_of(k, jm_graph_batchnorm(k->graph, x, y, false, 1e-5, "bn3"));
}

static struct jm_tensor *rmsnorm(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 2, DIMS(4, 9));

	return loss_of(k, jm_graph_rmsnorm(k->graph, x, kit_param(k, 1, DIMS(9)), 1e-5));
}

static struct jm_tensor *pools(struct kit *k)
{
	const struct jm_window halves = {.stride = 2, .pad = 1, .more = 1}, counted = {.pad = 1};
	struct jm_tensor *x = kit_param(k, 4, DIMS(2, 2, 5, 6));

	x = jm_graph_avgpool(k->graph, x, 3, &(struct jm_window){.pad = 1}, false);
	x = jm_graph_maxpool(k->graph, x, 3, &halves);
	return loss_of(k, jm_graph_avgpool(k->graph, x, 2, &counted, true));
}

static struct jm_tensor *gap(struct kit *k)
{
	return loss_of(k, jm_graph_gap(k->graph, kit_param(k, 4, DIMS(2, 5, 2, 3))));
}

static struct jm_tensor *tokens(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 4, DIMS(2, 5, 2, 3)), *first = kit_param(k, 1, DIMS(5));

	return loss_of(k, jm_graph_tokens(k->graph, x, first, kit_param(k, 2, DIMS(7, 5))));
}

static struct jm_tensor *tokens_alone(struct kit *k)
{
	struct jm_tensor *x = jm_graph_rows_of_image(k->graph, kit_param(k, 4, DIMS(2, 5, 2, 3)));

	x = jm_graph_image_of_rows(k->graph, jm_graph_gelu(k->graph, x), 2, 3);
	return loss_of(k, jm_graph_tokens(k->graph, x, NULL, NULL));
}

/* Not into the first of three, at the start of the second, behind that of the third. */
static struct jm_tensor *put_rows(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 3, DIMS(3, 3, 4)),
			 *rows = kit_param(k, 3, DIMS(3, 2, 4));

	return loss_of(k, jm_graph_put_rows(k->graph, x, rows, kit_counted(k, -1, 1, DIMS(3))));
}

static struct jm_tensor *first(struct kit *k)
{
	struct jm_tensor *x = jm_graph_gelu(k->graph, kit_param(k, 3, DIMS(2, 3, 5)));

	return loss_of(k, jm_graph_first(k->graph, x));
}

/* Four images of different widths along an axis, of which the second one has another reader, and
 * the third one needs no gradient. */
static struct jm_tensor *concat_along(struct kit *k, int axis)
{
	struct jm_tensor *part[JM_PARTS], *y;

	for (int i = 0; i < JM_PARTS; i++) {
		int64_t dim[] = {2, 2, 2, 3};

		dim[axis] = i + 1;
		part[i] = i == 2 ? kit_normal(k, JM_F64, 0, 1, 4, dim) : kit_param(k, 4, dim);
		part[i] = jm_graph_gelu(k->graph, part[i]);
	}
	y = jm_graph_concat(k->graph, JM_PARTS, part, axis);
	assert_non_null(y);
	assert_int_equal(y->dim[axis], 10);
	part[0] = y;
	part[1] = jm_graph_silu(k->graph, part[1]);
	return jm_graph_concat(k->graph, 2, part, axis);
}

/* Along images, channels and columns. */
static struct jm_tensor *concat(struct kit *k)
{
	struct jm_tensor *loss = loss_of(k, concat_along(k, 0)), *y;

	for (int axis = 1; axis < 4; axis += 2) {
		y = concat_along(k, axis);
		jm_graph_softmax_xent_add(k->graph, loss, 1, y, kit_ids(k, y->dim[3], 3, y->dim));
	}
	return loss;
}

static struct jm_tensor *upsample_groupnorm(struct kit *k)
{
	struct jm_tensor *x = jm_graph_upsample(k->graph, kit_param(k, 4, DIMS(2, 6, 3, 2)), 2);

	x = jm_graph_groupnorm(k->graph, x, 3, true, 1e-2, "a");
	return loss_of(k, jm_graph_groupnorm(k->graph, x, 2, false, 1e-5, "b"));
}

/* Fields on a grid, with the relative loss over two axes at most. */
static struct jm_tensor *fields(struct kit *k, int rank, const int64_t *dim, const int64_t *modes)
{
	struct jm_tensor *x = jm_graph_gelu(k->graph, kit_param(k, rank, dim));

	x = jm_graph_spectral_conv(k->graph, x, "w", dim[rank - 1], modes);
	return jm_graph_relative_l2(
		k->graph, x, kit_normal(k, JM_F64, 0, 1, rank, dim), rank > 3 ? 2 : 1);
}

static struct jm_tensor *fields_1d(struct kit *k)
{
	return fields(k, 3, DIMS(2, 7, 2), DIMS(4));
}

/* With the frequency N/2 of the last axis. */
static struct jm_tensor *fields_3d(struct kit *k)
{
	return fields(k, 5, DIMS(2, 3, 2, 4, 1), DIMS(1, 1, 3));
}

static struct jm_tensor *dropout(struct kit *k)
{
	return loss_of(k, jm_graph_dropout(k->graph, kit_param(k, 2, DIMS(4, 9)), 0.3));
}

static struct jm_tensor *gpt(struct kit *k, const char *positions)
{
	const char *const dims[][2] = {{"layers", "2"}, {"hidden", "8"}, {"heads", "2"},
		{"ffn", "12"}, {"vocab", "7"}, {"context", "6"}, {"positions", positions},
		{"norm-eps", "1e-5"}};
	const struct jm_preset *preset;
	const struct jm_model *model;
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *loss;
	struct jm_values v;

	assert_ok(jm_model_find("gpt", &model, &preset, &err), err);
	assert_ok(jm_values_init(&v, model->options, &err), err);
	for (size_t i = 0; i < sizeof(dims) / sizeof(*dims); i++)
		assert_ok(jm_values_set(&v, dims[i][0], dims[i][1], &err), err);
	assert_ok(model->build(k->graph, &v, 2, 5, &loss, &err), err);
	jm_values_done(&v);
	return loss;
}

static struct jm_tensor *gpt_learned(struct kit *k)
{
	return gpt(k, "learned");
}

static struct jm_tensor *gpt_rotary(struct kit *k)
{
	return gpt(k, "rotary");
}

static double loss_now(struct kit *k, const struct jm_tensor *loss)
{
	struct jm_err err = JM_ERR_INIT;
	double value;

	assert_ok(jm_program_run(k->program, &err), err);
	assert_ok(jm_program_read(k->program, loss, &value, &err), err);
	return value;
}

static double loss_at(struct kit *k, struct jm_tensor *p, double *value, int64_t i, double by,
	const struct jm_tensor *loss)
{
	struct jm_err err = JM_ERR_INIT;
	double before = value[i], result;

	value[i] += by;
	assert_ok(jm_program_write(k->program, p, value, &err), err);
	result = loss_now(k, loss);
	value[i] = before;
	assert_ok(jm_program_write(k->program, p, value, &err), err);
	return result;
}

/* Central differences over one and two steps, so that the error is of order STEP^4. */
static double derivative(
	struct kit *k, struct jm_tensor *p, double *value, int64_t i, const struct jm_tensor *loss)
{
	double one = loss_at(k, p, value, i, STEP, loss) - loss_at(k, p, value, i, -STEP, loss);
	double two =
		loss_at(k, p, value, i, 2 * STEP, loss) - loss_at(k, p, value, i, -2 * STEP, loss);

	return (8 * one - two) / (12 * STEP);
}

static void check_param(
	struct kit *k, const char *name, struct jm_tensor *p, const struct jm_tensor *loss)
{
	const struct jm_cell *c = jm_graph_cell(k->graph, p);
	int64_t n = jm_tensor_count(p);
	double *value = kit_values(k, p), *grad;

	assert_non_null(c->grad);
	loss_now(k, loss); /* the gradients are those of the last probe: compute them again */
	grad = kit_values(k, c->grad);
	for (int64_t probe = 0; probe < n && probe < PROBES; probe++) {
		int64_t i =
			n <= PROBES ? probe : (int64_t)(jm_rng(7, (uint64_t)probe) % (uint64_t)n);
		double d = derivative(k, p, value, i, loss);

		if (!(fabs(d - grad[i]) <= TOLERANCE * (1 + fabs(d))))
			fail_msg("%s: d loss / d %s[%ld] is %.10g, not %.10g", name, p->name,
				(long)i, d, grad[i]);
	}
	free(value);
	free(grad);
}

/* Parameters that the graph made by itself: near their start value of 1 or 0, but not on it. */
static void fill_rest(struct kit *k)
{
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < k->graph->n_cells; i++) {
		struct jm_cell *c = k->graph->cell[i];
		double value[64] = {0};
		bool given = false;

		for (int g = 0; g < k->n_given; g++)
			given = given || k->given[g] == &c->t;
		if (c->t.class != JM_CLASS_PARAM || given)
			continue;
		assert_true(jm_tensor_count(&c->t) <= 64);
		for (int64_t j = 0; j < jm_tensor_count(&c->t); j++)
			value[j] = (c->init == JM_INIT_ONE) + 0.1 * (double)(j + 1);
		assert_ok(jm_program_write(k->program, &c->t, value, &err), err);
	}
}

static void check_case(const char *name, build_fn *build)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *loss;
	struct kit k;
	int checked = 0;

	kit_init(&k, "ref", JM_F64);
	loss = build(&k);
	assert_ok(jm_graph_gradients(k.graph, loss, &err), err);
	assert_ok(kit_run(&k, &err), err);
	if (k.n_given)
		fill_rest(&k);
	else { /* a model: its own start values and random tokens */
		int32_t ids[10] = {3, 1, 4, 1, 5, 2, 6, 5, 3, 5};

		assert_ok(jm_program_init(k.program, 3, &err), err);
		assert_ok(
			jm_program_write(k.program, jm_graph_find(k.graph, "ids"), ids, &err), err);
		assert_ok(jm_program_write(k.program, jm_graph_find(k.graph, "target"), ids, &err),
			err);
		assert_ok(jm_program_run(k.program, &err), err);
	}
	for (int i = 0; i < k.graph->n_cells; i++)
		if (k.graph->cell[i]->t.class == JM_CLASS_PARAM) {
			check_param(&k, name, &k.graph->cell[i]->t, loss);
			checked++;
		}
	assert_true(checked);
	kit_done(&k);
}

/* The same graph with gradients that add up: of three micro-steps on the same operands they are
 * three times those of one, whoever writes them. */
static void check_sums(const char *name, build_fn *build)
{
	double *one[KIT_MAX] = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *loss, *grad;
	struct kit k;

	kit_init(&k, "ref", JM_F64);
	k.graph->micro_steps = 3;
	loss = build(&k);
	assert_ok(jm_graph_gradients(k.graph, loss, &err), err);
	assert_ok(kit_run(&k, &err), err);
	for (int i = 0; i < k.n_given; i++)
		if ((grad = jm_graph_cell(k.graph, k.given[i])->grad))
			one[i] = kit_values(&k, grad);
	assert_ok(jm_program_micro(k.program, &err), err);
	assert_ok(jm_program_micro(k.program, &err), err);
	for (int i = 0; i < k.n_given; i++) {
		double *three;

		if (!one[i])
			continue;
		grad = jm_graph_cell(k.graph, k.given[i])->grad;
		three = kit_values(&k, grad);
		for (int64_t j = 0; j < jm_tensor_count(grad); j++)
			if (!(fabs(three[j] - 3 * one[i][j]) < 1e-12))
				fail_msg("%s: %.10g is not three times %.10g", name, three[j],
					one[i][j]);
		free(three);
		free(one[i]);
	}
	kit_done(&k);
}

static const struct {
	const char *name;
	build_fn *build;
} cases[] = {
	{"softmax-xent", xent},
	{"softmax-xent, ignored rows", xent_ignored},
	{"mse", mse},
	{"contrastive, both ways", symmetric},
	{"embed", embed},
	{"embed without positions", embed_alone},
	{"linear", linear},
	{"activations and gated units", activations},
	{"layernorm", layernorm},
	{"layernorm without beta", layernorm_alone},
	{"attention", attention},
	{"attention, no mask", attention_full},
	{"attention, grouped", attention_grouped},
	{"rope", rope},
	{"conv", conv},
	{"conv, grouped and dilated", conv_grouped},
	{"conv, flat", conv_flat},
	{"conv, depthwise", conv_depthwise},
	{"batchnorm, with and without relu", batchnorm},
	{"batchnorm + add + relu", batchnorm_add},
	{"rmsnorm", rmsnorm},
	{"pools", pools},
	{"gap", gap},
	{"tokens", tokens},
	{"tokens alone", tokens_alone},
	{"put-rows", put_rows},
	{"first", first},
	{"concat", concat},
	{"upsample + groupnorm", upsample_groupnorm},
	{"spectral convolution, one axis", fields_1d},
	{"spectral convolution, three axes", fields_3d},
	{"dropout", dropout},
	{"add", add},
	{"x + x", doubled},
	{"shared gradient", shared},
	{"tied matrix", tied},
	{"gpt, learned positions", gpt_learned},
	{"gpt, rotary positions", gpt_rotary},
};

static void gradients(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check_case(cases[i].name, cases[i].build);
}

static void sums_of_micro_steps(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check_sums(cases[i].name, cases[i].build);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients), cmocka_unit_test(sums_of_micro_steps)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
