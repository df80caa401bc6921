/* SPDX-License-Identifier: Apache-2.0 */
/* quantize and rescale, and the conversions between f32 and the types of 8 bits. */
#include "ops_quantize.h"

#include <math.h>

#define CODES 256

struct format {
	int bias, mantissa;
	float top;
	uint8_t top_code;
};

static struct format format_of(enum jm_dtype type)
{
	return type == JM_F8E4M3 ? (struct format){7, 3, 448, 0x7e}
				 : (struct format){15, 2, 57344, 0x7b};
}

/* Codes below the smallest normal number are multiples of the smallest one; others are the upper
 * bits of an f32. */
static uint8_t magnitude(const struct format *f, float x)
{
	uint32_t bits, half;
	int cut = 23 - f->mantissa;

	if (!(x < f->top))
		return isnan(x) ? 0x7f : f->top_code;
	if (x < ldexpf(1, 1 - f->bias))
		return (uint8_t)nearbyintf(ldexpf(x, f->bias - 1 + f->mantissa));
	memcpy(&bits, &x, sizeof bits);
	half = (1U << (cut - 1)) - 1 + (bits >> cut & 1);
	return (uint8_t)(((bits + half) >> cut) - ((127U - (uint32_t)f->bias) << f->mantissa));
}

/* The nearest code, or the even one of two; a value that is too large becomes the largest number;
 * keeps NaN. */
static uint8_t f8_of(enum jm_dtype type, float x)
{
	struct format f = format_of(type);

	return (uint8_t)(magnitude(&f, fabsf(x)) | (signbit(x) ? 0x80 : 0));
}

void cpu_f8_widen(const struct jm_tensor *x, const struct jm_tensor *scale, float *y, int threads)
{
	float table[CODES];
	const float one = 1, *factor = scale ? scale->data : &one;
	const uint8_t *from = x->data;
	int64_t parts = scale ? jm_tensor_count(scale) : 1, n = jm_tensor_count(x) / parts;

	for (int code = 0; code < CODES; code++) {
		uint8_t byte = (uint8_t)code;

		table[code] = (float)jm_element_get(x->type, &byte, 0);
	}
#pragma omp parallel for num_threads(threads) collapse(2)
	for (int64_t k = 0; k < parts; k++)
		for (int64_t i = 0; i < n; i++)
			y[k * n + i] = factor[k] * table[from[k * n + i]];
}

/* ---- quantize -------------------------------------------------------------------------------- */

static float element(const struct jm_tensor *t, int64_t i)
{
	return t->type == JM_BF16 ? jm_bf16_get(((const uint16_t *)t->data)[i])
				  : ((const float *)t->data)[i];
}

/* Of elements first to first + n - 1. */
static float largest(const struct jm_tensor *x, int64_t first, int64_t n, int threads)
{
	float most = 0;

#pragma omp parallel for num_threads(threads) reduction(max : most)
	for (int64_t i = first; i < first + n; i++)
		most = fmaxf(most, fabsf(element(x, i)));
	return most;
}

static float *row_of(const struct jm_node *n, const struct jm_tensor *ranges)
{
	return ranges ? (float *)ranges->data + n->attr.quantize.row * jm_tensor_width(ranges)
		      : NULL;
}

/* Part k of the parts of equal length, each with an inverse of its own. */
static void narrow(const struct jm_node *n, int64_t k, float limit, int threads)
{
	const struct jm_tensor *x = n->in[0], *y = n->out[0];
	int64_t length = jm_tensor_count(x) / jm_tensor_count(n->out[1]);
	float scale = jm_f8_scale(y->type, limit);
	uint8_t *to = y->data;

#pragma omp parallel for num_threads(threads)
	for (int64_t i = k * length; i < (k + 1) * length; i++)
		to[i] = f8_of(y->type, scale * element(x, i));
	((float *)n->out[1]->data)[k] = 1 / scale;
}

/* Each row by its own maximum. */
static void narrow_rows(const struct jm_node *n, int threads)
{
	int64_t parts = jm_tensor_count(n->out[1]), length = jm_tensor_count(n->in[0]) / parts;

#pragma omp parallel for num_threads(threads)
	for (int64_t k = 0; k < parts; k++)
		narrow(n, k, largest(n->in[0], k * length, length, 1), 1);
}

static int run_quantize(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct jm_tensor *x = n->in[0];
	const float *before = row_of(n, n->in[1]);
	float *row = row_of(n, n->out[2]), most, limit;

	(void)err;
	if (jm_tensor_count(n->out[1]) > 1) {
		narrow_rows(n, dev->threads);
		return 0;
	}
	most = largest(x, 0, jm_tensor_count(x), dev->threads);
	limit = before && before[0] > 0 ? before[0] : most;
	narrow(n, 0, limit, dev->threads);
	if (row) {
		row[0] = limit;
		row[1] = fmaxf(row[1], most);
	}
	if (n->out[3])
		dev->kernels->rows->sum(cpu_vec(x), n->out[3]->data, jm_tensor_rows(x),
			jm_tensor_width(x), jm_node_adds(n, 3), dev->threads);
	return 0;
}

/* ---- rescale --------------------------------------------------------------------------------- */

static void push(float *row, int64_t length)
{
	float most = 0;

	if (isfinite(row[1]) && row[1] > 0) {
		memmove(row + 3, row + 2, (size_t)(length - 1) * sizeof *row);
		row[2] = row[1];
	}
	for (int64_t i = 0; i < length; i++)
		most = fmaxf(most, row[2 + i]);
	row[0] = most;
	row[1] = 0;
}

static int run_rescale(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_tensor *t = exec->node[0].out[0];
	int64_t width = jm_tensor_width(t);

	(void)dev;
	(void)err;
	for (int64_t r = 0; r < jm_tensor_rows(t); r++)
		push((float *)t->data + r * width, width - 2);
	return 0;
}

const struct cpu_op cpu_ops_quantize[] = {
	{{JM_OP_QUANTIZE}, 1, NULL, NULL, NULL, run_quantize, NULL},
	{{JM_OP_RESCALE}, 1, NULL, NULL, NULL, run_rescale, NULL},
	{.n_nodes = 0},
};
