/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes large operands with a chosen number of operations per byte: y = a + b where that
 * is 0, else y[rows,w] = x[rows,w] W[w,w]^T, which does w / 2 operations per byte with operands of
 * 2 bytes. A sweep over it draws a device's roofline.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "workloads/parts/kernel_run.h"

#define SAMPLES	  1024
#define ADD_WIDTH 1024

struct stream {
	struct jm_kernel kernel; /* first */
	int64_t rows, width;
	double intensity; /* operations per byte */
	double size;	  /* GB of an operand */
	int passes;	  /* per step; 0 = by the device */
	bool adds;
	struct jm_tensor *x, *w, *y; /* w: the second operand of a sum, or the matrix */
	struct jm_operand values[2];
};

static const struct jm_option options[] = {
	{.name = "intensity",
		JM_BIND(JM_REAL, struct stream, intensity),
		.min = 0,
		.max = 1e6,
		.fallback = "0",
		.help = "operations per byte of memory, produced by products with a narrow matrix; "
			"0 = sums of two operands"},
	{.name = "size",
		JM_BIND(JM_REAL, struct stream, size),
		.min = 1e-6,
		.max = 1e6,
		.fallback = "0.25",
		.help = "GB of each large operand; use several times the size of the caches"},
	{.name = "passes",
		JM_BIND(JM_INT, struct stream, passes),
		.min = 1,
		.max = 1e4,
		.help = "passes over the operands per step; without it as many as the device "
			"should do in 20 ms"},
	JM_KERNEL_THREADS(struct stream),
	{0},
};

/* ---- setup ----------------------------------------------------------------------------------- */

static struct jm_tensor *matrix(
	struct stream *s, enum jm_class class, int64_t rows, const char *name)
{
	struct jm_graph *g = s->kernel.graph;

	return jm_graph_tensor(g, class, g->compute, 2, (const int64_t[]){rows, s->width}, name);
}

/* Operations per byte are 2 w^2 / (2 w size). Libraries need widths of whole 16 bytes. */
static void choose_shape(struct stream *s)
{
	double size = (double)jm_dtype_bytes(s->kernel.graph->compute);
	double intensity = s->intensity, step = 16 / size;

	s->adds = !(intensity > 0);
	s->width = s->adds ? ADD_WIDTH : (int64_t)(step * fmax(1, round(intensity * size / step)));
	s->rows = (int64_t)fmax(1, s->size * 1e9 / size / (double)s->width);
}

/* Bytes of one pass, and its operations. */
static double pass_bytes(const struct stream *s)
{
	double size = (double)jm_dtype_bytes(s->kernel.graph->compute);
	double large = size * (double)s->rows * (double)s->width;

	return s->adds ? 3 * large : 2 * large + size * (double)s->width * (double)s->width;
}

static double pass_flops(const struct stream *s)
{
	double elements = (double)s->rows * (double)s->width;

	return s->adds ? elements : 2 * elements * (double)s->width;
}

static void declare(struct stream *s)
{
	int passes =
		s->passes ? s->passes : jm_kernel_repeat(&s->kernel, pass_flops(s), pass_bytes(s));

	s->x = matrix(s, JM_CLASS_INPUT, s->rows, "x");
	s->w = matrix(s, JM_CLASS_INPUT, s->adds ? s->rows : s->width, "w");
	s->y = matrix(s, JM_CLASS_SCALAR, s->rows, "y");
	for (int i = 0; i < passes; i++)
		jm_graph_node(s->kernel.graph, s->adds ? JM_OP_ADD : JM_OP_LINEAR,
			(struct jm_tensor *[JM_NODE_IN]){s->x, s->w}, &s->y);
	s->kernel.each.items = passes * pass_bytes(s) / 1e9;
	snprintf(s->kernel.work->detail, sizeof s->kernel.work->detail,
		"%s of %lld x %lld, %.4g operations per byte, %d passes per step",
		s->adds ? "sums" : "products", (long long)s->rows, (long long)s->width,
		pass_flops(s) / pass_bytes(s), passes);
}

static int prepare(void *state, struct jm_work *work, struct jm_err *err)
{
	struct stream *s = state;
	int code = jm_kernel_open(&s->kernel, work, err);

	if (code)
		return code;
	for (int i = 0; i < 2; i++)
		s->values[i].seed = jm_rng(work->seed, (uint64_t)i);
	choose_shape(s);
	declare(s);
	code = jm_kernel_ready(&s->kernel, err);
	if (!code)
		code = jm_operand_write(&s->kernel, &s->values[0], s->x, err);
	return code ? code : jm_operand_write(&s->kernel, &s->values[1], s->w, err);
}

static int stream_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_kernel_setup(
		work, sizeof(struct stream), prepare, jm_kernel_teardown, ret_state, err);
}

/* ---- verification ---------------------------------------------------------------------------- */

static double element(const struct stream *s, int64_t row, int64_t column, double *ret_size)
{
	enum jm_dtype type = s->kernel.graph->compute;
	double sum = 0, size = 0;

	if (s->adds) {
		int64_t at = row * s->width + column;

		*ret_size = 0;
		return jm_operand_value(&s->values[0], type, at) +
		       jm_operand_value(&s->values[1], type, at);
	}
	for (int64_t k = 0; k < s->width; k++) {
		double term = jm_operand_value(&s->values[0], type, row * s->width + k) *
			      jm_operand_value(&s->values[1], type, column * s->width + k);

		sum += term;
		size += fabs(term);
	}
	*ret_size = size;
	return sum;
}

static int compare(const struct stream *s, const void *y, struct jm_err *err)
{
	for (int t = 0; t < SAMPLES; t++) {
		uint64_t bits = jm_rng(s->kernel.work->seed ^ 0x73747265, (uint64_t)t);
		int64_t row = t ? (int64_t)(bits % (uint64_t)s->rows) : s->rows - 1;
		int64_t column = (int64_t)((bits >> 40) % (uint64_t)s->width);
		double size, want = element(s, row, column, &size);
		double got = jm_element_get(s->y->type, y, row * s->width + column);

		if (!(fabs(got - want) <= jm_product_tolerance(&s->kernel, want, size)))
			return jm_err_set(err, JM_ERANGE,
				"Element (%lld, %lld) of the result is %.9g, and by f64 it is "
				"%.9g: the device or its memory computes wrongly.",
				(long long)row, (long long)column, got, want);
	}
	return 0;
}

static int stream_verify(void *state, struct jm_err *err)
{
	struct stream *s = state;
	void *y = jm_kernel_read(&s->kernel, s->y, err);
	int code = y ? compare(s, y, err) : err->code;

	free(y);
	return code;
}

const struct jm_workload jm_workload_stream = {
	.name = "stream",
	.summary = "moves memory, with a chosen number of operations per byte",
	.unit = "GB",
	.options = options,
	.check = jm_kernel_check,
	.setup = stream_setup,
	.step = jm_kernel_step,
	.finish = jm_kernel_finish,
	.verify = stream_verify,
	.teardown = jm_kernel_teardown,
};
