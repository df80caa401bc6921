/* SPDX-License-Identifier: Apache-2.0 */
/* Start values: moments and bounds of large tensors against the papers' formulas; which layers get
 * which. */
#include <stdio.h>

#include "engine/graph/init_rule.h"
#include "kit/engine_kit.h"
#include "engine/graph/model.h"
#include "engine/graph/rng.h"
#include "kit/test.h"
#include "engine/graph/layer_image.h"
#include "engine/graph/layer.h"
#include "engine/run/start_values.h"

#define TO   384
#define FROM 640

/* A rule with the variance and shape it shall have by its paper: of [to, from] and [to, from, 3,
 * 3]. */
struct rule {
	enum jm_init rule;
	double variance[2];
	double kurtosis; /* 3 normal, 1.8 uniform */
	double most;	 /* no value beyond that many of its standard deviations; 0 = any */
};

struct moments {
	double mean, variance, kurtosis, most;
};

static struct moments moments_of(const float *x, int64_t n)
{
	struct moments m = {0};
	double fourth = 0;

	for (int64_t i = 0; i < n; i++)
		m.mean += (double)x[i] / (double)n;
	for (int64_t i = 0; i < n; i++) {
		double d = (double)x[i] - m.mean;

		m.variance += d * d / (double)n;
		fourth += d * d * d * d / (double)n;
		m.most = fmax(m.most, fabs(d));
	}
	m.kurtosis = fourth / (m.variance * m.variance);
	return m;
}

static void check(const struct rule *r, double variance, const float *x, int64_t n)
{
	struct moments m = moments_of(x, n);
	double std = sqrt(variance), some = 6 / sqrt((double)n); /* six deviations */

	if (fabs(m.mean) > some * std || fabs(m.variance / variance - 1) > some * sqrt(2) ||
		fabs(m.kurtosis - r->kurtosis) > some * sqrt(24))
		fail_msg("%s: mean %g, variance %g of %g, kurtosis %g", jm_init_name(r->rule),
			m.mean, m.variance, variance, m.kurtosis);
	if (r->most > 0 && (m.most > 1.005 * r->most * std || m.most < 0.99 * r->most * std))
		fail_msg("%s: up to %g deviations", jm_init_name(r->rule), m.most / std);
}

/* A program whose weights are one matrix and one filter by that rule. */
static void try_rule(const struct rule *r)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *w, *f, *x, *image;
	static float value[TO * FROM * 9];
	struct kit k;

	kit_init(&k, "ref", JM_F32);
	x = jm_graph_input(k.graph, "x", JM_F32, 2, DIMS(1, FROM));
	image = jm_graph_input(k.graph, "image", JM_F32, 4, DIMS(1, FROM, 3, 3));
	w = jm_graph_matrix(k.graph, "w", r->rule, TO, FROM);
	f = jm_graph_filter(k.graph, "f", r->rule, TO, FROM, 3, 3);
	jm_graph_linear(k.graph, x, w, NULL);
	jm_graph_conv(k.graph, image, f, NULL, &(struct jm_window){0});
	assert_ok(jm_program_plan(k.graph, &k.device, &k.program, &err), err);
	assert_ok(jm_program_build(k.program, &err), err);
	assert_ok(jm_program_init(k.program, 11, &err), err);
	assert_ok(jm_program_read(k.program, w, value, &err), err);
	check(r, r->variance[0], value, TO * FROM);
	assert_ok(jm_program_read(k.program, f, value, &err), err);
	check(r, r->variance[1], value, TO * FROM * 9);
	kit_done(&k);
}

static void test_moments(void **state)
{
	const double to = TO, from = FROM;
	/* second and fourth moment of a normal distribution cut at -2 and 2 (by parts) */
	const double edge = exp(-2) / sqrt(2 * 3.14159265358979) / erf(sqrt(2));
	const double cut = 1 - 4 * edge, cut_fourth = 3 * cut - 16 * edge;
	const struct rule rules[] = {
		{JM_INIT_NORMAL, {4e-4, 4e-4}, 3, 0},
		{JM_INIT_GPT2, {4e-4, 4e-4}, 3, 0},
		{JM_INIT_HE_NORMAL, {2 / to, 2 / (9 * to)}, 3, 0},
		{JM_INIT_LECUN_NORMAL, {1 / from, 1 / (9 * from)}, 3, 0},
		{JM_INIT_XAVIER_UNIFORM, {2 / (to + from), 2 / (9 * (to + from))}, 1.8, sqrt(3)},
		{JM_INIT_TRUNC_NORMAL, {4e-4 * cut, 4e-4 * cut}, cut_fourth / (cut * cut),
			2 / sqrt(cut)},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
		try_rule(&rules[i]);
}

/* Where the bound is one half (6 / (12 + 12) is its square): odd multiples of 2^-25, none at the
 * bound. */
static void test_uniform_grid(void **state)
{
	enum { SIDE = 12 };
	struct jm_err err = JM_ERR_INIT;
	float value[SIDE * SIDE];
	struct jm_tensor *w;
	struct kit k;

	(void)state;
	kit_init(&k, "ref", JM_F32);
	w = jm_graph_matrix(k.graph, "w", JM_INIT_XAVIER_UNIFORM, SIDE, SIDE);
	jm_graph_linear(k.graph, jm_graph_input(k.graph, "x", JM_F32, 2, DIMS(1, SIDE)), w, NULL);
	assert_ok(jm_program_plan(k.graph, &k.device, &k.program, &err), err);
	assert_ok(jm_program_build(k.program, &err), err);
	assert_ok(jm_program_init(k.program, 11, &err), err);
	assert_ok(jm_program_read(k.program, w, value, &err), err);
	for (int i = 0; i < SIDE * SIDE; i++) {
		double steps = (double)value[i] * 0x1p25;

		if (fabs(steps) >= 0x1p24 || fabs(fmod(steps, 2)) != 1)
			fail_msg("%.9g is %.1f steps", (double)value[i], steps);
	}
	kit_done(&k);
}

/* Counters, not state: each value is known by its place alone, whatever thread makes it. */
static void test_values_by_place(void **state)
{
	enum { ROWS = 1031, COLUMNS = 701 }; /* enough for several threads, and odd */
	static float value[ROWS * COLUMNS];
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *w;
	struct kit k;

	(void)state;
	kit_init(&k, "ref", JM_F32);
	w = jm_graph_matrix(k.graph, "w", JM_INIT_NORMAL, ROWS, COLUMNS);
	jm_graph_linear(
		k.graph, jm_graph_input(k.graph, "x", JM_F32, 2, DIMS(1, COLUMNS)), w, NULL);
	assert_ok(jm_program_plan(k.graph, &k.device, &k.program, &err), err);
	assert_ok(jm_program_build(k.program, &err), err);
	assert_ok(jm_program_init(k.program, 11, &err), err);
	assert_ok(jm_program_read(k.program, w, value, &err), err);
	for (int i = 0; i < ROWS * COLUMNS; i++) {
		float pair[2];

		jm_rng_normal_pair(jm_rng(11, 0), (uint64_t)i / 2, pair);
		if (value[i] != 0.02f * pair[i & 1])
			fail_msg("value %d is %.9g", i, (double)value[i]);
	}
	kit_done(&k);
}

/* Against the formula in double; many values, because vectors and single pairs are two paths. */
static void test_normal_values(void **state)
{
	enum { PAIRS = 100003 };
	static float value[2 * PAIRS];

	(void)state;
	jm_rng_normals(5, 17, PAIRS, value);
	for (int i = 0; i < PAIRS; i++) {
		uint64_t bits = jm_rng(5, 17 + (uint64_t)i);
		double radius = sqrt(-2 * log(((double)(bits >> 40) + 1) * 0x1p-24));
		double angle = (double)(bits & 0xffffff) * (0x1p-24 * 2 * M_PI);
		float pair[2];

		jm_rng_normal_pair(5, 17 + (uint64_t)i, pair);
		assert_memory_equal(pair, value + 2 * i, sizeof(pair));
		assert_near(value[2 * i], radius * cos(angle), 1e-6 * radius);
		assert_near(value[2 * i + 1], radius * sin(angle), 1e-6 * radius);
	}
}

static void test_names(void **state)
{
	(void)state;
	for (int i = 0; jm_init_names[i]; i++)
		assert_string_equal(jm_init_name(jm_init_find(jm_init_names[i])), jm_init_names[i]);
	assert_int_equal(jm_init_find("model"), JM_INIT_OWN);
}

/* ---- which layers get which ------------------------------------------------------------------ */

static struct jm_graph *graph_of(const char *name, struct jm_training t)
{
	struct jm_err err = JM_ERR_INIT;
	const struct jm_preset *preset;
	struct jm_values dims;
	struct jm_graph *g;

	assert_ok(jm_model_find(name, &t.model, &preset, &err), err);
	assert_ok(jm_model_dims(t.model, preset, NULL, &dims, &err), err);
	t.dims = &dims;
	t.batch = 2;
	assert_ok(jm_model_train(&t, &g, &err), err);
	jm_values_done(&dims);
	return g;
}

static const struct jm_cell *cell(const struct jm_graph *g, const char *name)
{
	const struct jm_tensor *t = jm_graph_find(g, name);

	assert_non_null(t);
	return jm_graph_cell(g, t);
}

static void near_std(const struct jm_graph *g, const char *name, double std)
{
	double have = jm_init_std(g, cell(g, name));

	if (fabs(have / std - 1) > 1e-12)
		fail_msg("%s: %g, not %g", name, have, std);
}

static void test_models(void **state)
{
	struct jm_graph *g = graph_of("gpt-117m", (struct jm_training){0});

	(void)state;
	near_std(g, "tokens.weight", 0.02);
	near_std(g, "positions.weight", 0.02);
	near_std(g, "h3.attn.qkv.weight", 0.02);
	near_std(g, "h3.attn.out.weight", 0.02 / sqrt(24));
	near_std(g, "h11.mlp.out.weight", 0.02 / sqrt(24));
	assert_int_equal(cell(g, "h3.mlp.in.bias")->init, JM_INIT_ZERO);
	assert_int_equal(cell(g, "ln_f.weight")->init, JM_INIT_ONE);
	jm_graph_free(g);
	g = graph_of("resnet50", (struct jm_training){0});
	near_std(g, "conv1.weight", sqrt(2.0 / (64 * 49)));
	near_std(g, "layer1.0.conv3.weight", sqrt(2.0 / 256));
	near_std(g, "fc.weight", 0.01);
	assert_int_equal(cell(g, "layer1.0.bn3.weight")->init, JM_INIT_ONE);
	jm_graph_free(g);
	g = graph_of("vit-b16", (struct jm_training){0});
	near_std(g, "patches.weight", sqrt(1.0 / 768));
	near_std(g, "h0.attn.qkv.weight", sqrt(2.0 / (768 + 3 * 768)));
	near_std(g, "positions.weight", 0.02);
	jm_graph_free(g);
}

static void test_replaced(void **state)
{
	struct jm_graph *g = graph_of("gpt-117m", (struct jm_training){.init = JM_INIT_HE_NORMAL});

	(void)state;
	near_std(g, "tokens.weight", 0.02); /* a table */
	near_std(g, "h3.attn.out.weight", sqrt(2.0 / 768));
	jm_graph_free(g);
	g = graph_of("llama2-7b", (struct jm_training){.init = JM_INIT_GPT2});
	near_std(g, "h3.ffn.down.weight", 0.02 / 8);
	near_std(g, "h3.ffn.gate_up.weight", 0.02);
	jm_graph_free(g);
}

static void test_zero_gamma(void **state)
{
	struct jm_graph *g = graph_of("resnet50", (struct jm_training){.zero_gamma = true});
	struct jm_err err = JM_ERR_INIT;
	int zeros = 0;

	(void)state;
	for (int i = 0; i < g->n_cells; i++)
		zeros += g->cell[i]->t.class == JM_CLASS_PARAM &&
			 g->cell[i]->init == JM_INIT_ZERO && strstr(g->cell[i]->t.name, "weight");
	assert_int_equal(zeros, 3 + 4 + 6 + 3);
	assert_int_equal(cell(g, "layer1.0.bn3.weight")->init, JM_INIT_ZERO);
	assert_int_equal(cell(g, "layer1.0.bn2.weight")->init, JM_INIT_ONE);
	assert_int_equal(cell(g, "layer1.0.downsample.1.weight")->init, JM_INIT_ONE);
	jm_graph_free(g);
	g = graph_of("gpt-117m", (struct jm_training){0});
	assert_int_equal(jm_init_zero_gamma(g, &err), JM_EUSAGE);
	jm_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moments),
		cmocka_unit_test(test_uniform_grid),
		cmocka_unit_test(test_values_by_place),
		cmocka_unit_test(test_normal_values),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_models),
		cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_zero_gamma),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
