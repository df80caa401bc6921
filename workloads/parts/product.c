/* SPDX-License-Identifier: Apache-2.0 */
#include "product.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"

#define SAMPLES 64 /* entries that are computed again */

static struct jm_tensor *matrix(
	struct jm_product *p, enum jm_class class, int64_t rows, int64_t width, const char *name)
{
	struct jm_graph *g = p->kernel->graph;
	enum jm_dtype type = class == JM_CLASS_INPUT ? p->kernel->factor : g->compute;

	return jm_graph_tensor(g, class, type, 2, (const int64_t[]){rows, width}, name);
}

static int choose_repeat(const struct jm_product *p)
{
	double m = (double)p->m, n = (double)p->n, k = (double)p->k;
	double from = (double)jm_dtype_bytes(p->kernel->factor);
	double to = (double)jm_dtype_bytes(p->kernel->graph->compute);

	if (p->times)
		return p->times;
	return jm_kernel_repeat(p->kernel, 2 * m * n * k, from * (m * k + n * k) + to * m * n);
}

void jm_product_declare(struct jm_product *p, struct jm_kernel *kernel)
{
	p->kernel = kernel;
	p->times = choose_repeat(p);
	p->x = matrix(p, JM_CLASS_INPUT, p->m, p->k, "x");
	p->w = matrix(p, JM_CLASS_INPUT, p->n, p->k, "w");
	p->y = matrix(p, JM_CLASS_SCALAR, p->m, p->n, "y");
	for (int i = 0; i < p->times; i++)
		jm_graph_node(kernel->graph, JM_OP_LINEAR,
			(struct jm_tensor *[JM_NODE_IN]){p->x, p->w}, &p->y);
	p->w_values = p->x_values;
	p->x_values.seed = jm_rng(kernel->work->seed, 0);
	p->w_values.seed = jm_rng(kernel->work->seed, 1);
}

void jm_product_text(const struct jm_product *p, char *ret, size_t size)
{
	snprintf(ret, size, "%lld x %lld x %lld, %s operands", (long long)p->m, (long long)p->n,
		(long long)p->k, jm_values_kinds[p->x_values.kind]);
}

int jm_product_write(struct jm_product *p, struct jm_err *err)
{
	int code = jm_operand_write(p->kernel, &p->x_values, p->x, err);

	return code ? code : jm_operand_write(p->kernel, &p->w_values, p->w, err);
}

/* ---- verification ---------------------------------------------------------------------------- */

/* Entry (i, j) in f64, and the sum of its terms' sizes. */
static double entry(const struct jm_product *p, int64_t i, int64_t j, double *ret_size)
{
	enum jm_dtype type = p->kernel->factor;
	double sum = 0, size = 0;

	for (int64_t t = 0; t < p->k; t++) {
		double term = jm_operand_value(&p->x_values, type, i * p->k + t) *
			      jm_operand_value(&p->w_values, type, j * p->k + t);

		sum += term;
		size += fabs(term);
	}
	*ret_size = size;
	return sum;
}

/* Entries at random places, and the corners. */
static int compare(const struct jm_product *p, const void *y, struct jm_err *err)
{
	for (int t = 0; t < SAMPLES; t++) {
		uint64_t bits = jm_rng(p->kernel->work->seed ^ 0x67656d6d, (uint64_t)t);
		int64_t i = t < 4 ? (t & 1) * (p->m - 1) : (int64_t)(bits % (uint64_t)p->m);
		int64_t j = t < 4 ? t / 2 * (p->n - 1) : (int64_t)((bits >> 32) % (uint64_t)p->n);
		double size, want = entry(p, i, j, &size);
		double got = jm_element_get(p->y->type, y, i * p->n + j);

		if (!(fabs(got - want) <= jm_product_tolerance(p->kernel, want, size)))
			return jm_err_set(err, JM_ERANGE,
				"Entry (%lld, %lld) of the product is %.9g, and by f64 it is %.9g: "
				"the device or its library computes wrongly; do not trust its "
				"results.",
				(long long)i, (long long)j, got, want);
	}
	return 0;
}

int jm_product_verify(const struct jm_product *p, struct jm_err *err)
{
	void *y = jm_kernel_read(p->kernel, p->y, err);
	int code = y ? compare(p, y, err) : err->code;

	free(y);
	return code;
}
