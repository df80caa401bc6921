/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of two matrices, y[m,n] = x[m,k] w[n,k]^T, on any device. What the operands hold is an
 * option: power depends on it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "workloads/parts/kernel_run.h"

#define SAMPLES 64 /* entries that are computed again */

struct gemm {
	struct jm_kernel kernel; /* first */
	int64_t m, n, k;
	int products; /* per step; 0 = by the device */
	struct jm_tensor *x, *w, *y;
	struct jm_operand x_values, w_values;
};

#define SIDE(field, what)                                                                          \
	{                                                                                          \
		.name = #field, JM_BIND(JM_INT, struct gemm, field), .min = 1, .max = 1e7,         \
		.fallback = "4096", .help = what                                                   \
	}

static const struct jm_option options[] = {
	SIDE(m, "rows of the result"),
	SIDE(n, "columns of the result"),
	SIDE(k, "length of the sums"),
	{.name = "data",
		JM_BIND(JM_CHOICE, struct gemm, x_values.kind),
		.choices = jm_values_kinds,
		.fallback = "random",
		.help = "what the operands hold: normal values, zeros, ones, or normal values of "
			"which a share is zero; the power depends on it"},
	{.name = "sparsity",
		JM_BIND(JM_REAL, struct gemm, x_values.share),
		.min = 0,
		.max = 1,
		.fallback = "0.5",
		.help = "the share of zeros of --data sparse"},
	{.name = "products",
		JM_BIND(JM_INT, struct gemm, products),
		.min = 1,
		.max = 1e4,
		.help = "products per step; without it as many as the device should do in 20 "
			"ms"},
	JM_KERNEL_THREADS(struct gemm),
	{0},
};

/* ---- setup ----------------------------------------------------------------------------------- */

static struct jm_tensor *matrix(
	struct gemm *s, enum jm_class class, int64_t rows, int64_t width, const char *name)
{
	struct jm_graph *g = s->kernel.graph;
	enum jm_dtype type = class == JM_CLASS_INPUT ? s->kernel.factor : g->compute;

	return jm_graph_tensor(g, class, type, 2, (const int64_t[]){rows, width}, name);
}

static int choose_repeat(const struct gemm *s)
{
	double m = (double)s->m, n = (double)s->n, k = (double)s->k;
	double from = (double)jm_dtype_bytes(s->kernel.factor);
	double to = (double)jm_dtype_bytes(s->kernel.graph->compute);

	if (s->products)
		return s->products;
	return jm_kernel_repeat(&s->kernel, 2 * m * n * k, from * (m * k + n * k) + to * m * n);
}

static void declare(struct gemm *s)
{
	int repeat = choose_repeat(s);

	s->x = matrix(s, JM_CLASS_INPUT, s->m, s->k, "x");
	s->w = matrix(s, JM_CLASS_INPUT, s->n, s->k, "w");
	s->y = matrix(s, JM_CLASS_SCALAR, s->m, s->n, "y");
	for (int i = 0; i < repeat; i++)
		jm_graph_node(s->kernel.graph, JM_OP_LINEAR,
			(struct jm_tensor *[JM_NODE_IN]){s->x, s->w}, &s->y);
	s->kernel.each.items = repeat;
}

static void choose_values(struct gemm *s)
{
	s->w_values = s->x_values;
	s->x_values.seed = jm_rng(s->kernel.work->seed, 0);
	s->w_values.seed = jm_rng(s->kernel.work->seed, 1);
	snprintf(s->kernel.work->detail, sizeof s->kernel.work->detail,
		"%lld x %lld x %lld, %s operands, %.0f products per step", (long long)s->m,
		(long long)s->n, (long long)s->k, jm_values_kinds[s->x_values.kind],
		s->kernel.each.items);
}

static int prepare(void *state, struct jm_work *work, struct jm_err *err)
{
	struct gemm *s = state;
	int code = jm_kernel_open(&s->kernel, work, err);

	if (code)
		return code;
	declare(s);
	choose_values(s);
	code = jm_kernel_ready(&s->kernel, err);
	if (!code)
		code = jm_operand_write(&s->kernel, &s->x_values, s->x, err);
	return code ? code : jm_operand_write(&s->kernel, &s->w_values, s->w, err);
}

static int gemm_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_kernel_setup(
		work, sizeof(struct gemm), prepare, jm_kernel_teardown, ret_state, err);
}

/* ---- verification ---------------------------------------------------------------------------- */

/* Entry (i, j) in f64, and the sum of its terms' sizes. */
static double entry(const struct gemm *s, int64_t i, int64_t j, double *ret_size)
{
	enum jm_dtype type = s->kernel.factor;
	double sum = 0, size = 0;

	for (int64_t p = 0; p < s->k; p++) {
		double term = jm_operand_value(&s->x_values, type, i * s->k + p) *
			      jm_operand_value(&s->w_values, type, j * s->k + p);

		sum += term;
		size += fabs(term);
	}
	*ret_size = size;
	return sum;
}

/* Entries at random places, and the corners. */
static int compare(const struct gemm *s, const void *y, struct jm_err *err)
{
	for (int t = 0; t < SAMPLES; t++) {
		uint64_t bits = jm_rng(s->kernel.work->seed ^ 0x67656d6d, (uint64_t)t);
		int64_t i = t < 4 ? (t & 1) * (s->m - 1) : (int64_t)(bits % (uint64_t)s->m);
		int64_t j = t < 4 ? t / 2 * (s->n - 1) : (int64_t)((bits >> 32) % (uint64_t)s->n);
		double size, want = entry(s, i, j, &size);
		double got = jm_element_get(s->y->type, y, i * s->n + j);

		if (!(fabs(got - want) <= jm_product_tolerance(&s->kernel, want, size)))
			return jm_err_set(err, JM_ERANGE,
				"Entry (%lld, %lld) of the product is %.9g, and by f64 it is %.9g: "
				"the device or its library computes wrongly; do not trust its "
				"results.",
				(long long)i, (long long)j, got, want);
	}
	return 0;
}

static int gemm_verify(void *state, struct jm_err *err)
{
	struct gemm *s = state;
	void *y = jm_kernel_read(&s->kernel, s->y, err);
	int code = y ? compare(s, y, err) : err->code;

	free(y);
	return code;
}

const struct jm_workload jm_workload_gemm = {
	.name = "gemm",
	.summary = "matrix products",
	.unit = "product",
	.options = options,
	.check = jm_kernel_check_products,
	.setup = gemm_setup,
	.step = jm_kernel_step,
	.finish = jm_kernel_finish,
	.verify = gemm_verify,
	.teardown = jm_kernel_teardown,
};
