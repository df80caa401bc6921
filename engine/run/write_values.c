/* SPDX-License-Identifier: Apache-2.0 */
#include "write_values.h"
#include "engine/graph/tensor.h"
#include "base/process/parallel_for.h"

#include <math.h>
#include <stdlib.h>

/* A matrix whose rows become codes of 8 bits. */
struct rows {
	enum jm_dtype type;
	const void *from;
	int64_t n, width;
	uint8_t *codes;
	float *inverse;
};

static float value(const struct rows *r, int64_t i)
{
	return r->type == JM_BF16 ? jm_bf16_get(((const uint16_t *)r->from)[i])
				  : (float)jm_element_get(r->type, r->from, i);
}

static void quantize_row(const struct rows *r, int64_t row)
{
	int64_t first = row * r->width;
	float most = 0, scale;

	for (int64_t i = first; i < first + r->width; i++) {
		float size = fabsf(value(r, i));

		most = size > most ? size : most;
	}
	scale = jm_f8_scale(JM_F8E4M3, most);
	for (int64_t i = first; i < first + r->width; i++)
		r->codes[i] = jm_f8e4m3_set(scale * value(r, i));
	r->inverse[row] = 1 / scale;
}

static void quantize_rows(void *arg, int share, int64_t first, int64_t n)
{
	(void)share;
	for (int64_t i = first; i < first + n; i++)
		quantize_row(arg, i);
}

void jm_quantize_rows(enum jm_dtype type, const void *from, int64_t n, int64_t width,
	uint8_t *codes, float *inverse)
{
	struct rows all = {type, from, n, width, codes, inverse};

	jm_shares_run(&(struct jm_shares){.count = n,
		.weight = width,
		.unit = 1,
		.most = JM_SHARES_MOST,
		.fn = quantize_rows,
		.arg = &all});
}

enum jm_dtype jm_program_value_type(const struct jm_program *p, const struct jm_tensor *t)
{
	return jm_graph_cell(p->graph, t)->scale ? p->graph->compute : t->type;
}

int jm_program_write_values(
	struct jm_program *p, struct jm_tensor *t, const void *from, struct jm_err *err)
{
	struct jm_tensor *scale = jm_graph_cell(p->graph, t)->scale;
	int64_t n = t->dim[0], count = jm_tensor_count(t);
	uint8_t *codes;
	float *inverse;
	int code;

	if (!scale)
		return jm_program_write(p, t, from, err);
	codes = malloc((size_t)count);
	inverse = malloc((size_t)n * sizeof(*inverse));
	if (codes && inverse) {
		jm_quantize_rows(p->graph->compute, from, n, count / n, codes, inverse);
		code = jm_program_write(p, t, codes, err);
		if (!code)
			code = jm_program_write(p, scale, inverse, err);
	} else {
		code = jm_err_set(err, JM_ENOMEM, "Out of memory for the values of %s.", t->name);
	}
	free(codes);
	free(inverse);
	return code;
}
