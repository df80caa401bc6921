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

	for (int64_t i = first; i < first + r->width; i++)
		most = fmaxf(most, fabsf(value(r, i)));
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

static void quantize(struct rows *all)
{
	jm_shares_run(&(struct jm_shares){.count = all->n,
		.weight = all->width,
		.unit = 1,
		.most = JM_SHARES_MOST,
		.fn = quantize_rows,
		.arg = all});
}

enum jm_dtype jm_program_value_type(const struct jm_program *p, const struct jm_tensor *t)
{
	return jm_graph_cell(p->graph, t)->scale ? p->graph->compute : t->type;
}

int jm_program_write_values(
	struct jm_program *p, struct jm_tensor *t, const void *from, struct jm_err *err)
{
	struct jm_tensor *scale = jm_graph_cell(p->graph, t)->scale;
	struct rows all = {.type = p->graph->compute, .from = from, .n = t->dim[0]};
	int code = 0;

	if (!scale)
		return jm_program_write(p, t, from, err);
	all.width = jm_tensor_count(t) / all.n;
	all.codes = malloc((size_t)jm_tensor_count(t));
	all.inverse = malloc((size_t)all.n * sizeof(*all.inverse));
	if (all.codes && all.inverse) {
		quantize(&all);
		code = jm_program_write(p, t, all.codes, err);
		if (!code)
			code = jm_program_write(p, scale, all.inverse, err);
	} else {
		code = jm_err_set(err, JM_ENOMEM, "Out of memory for the values of %s.", t->name);
	}
	free(all.codes);
	free(all.inverse);
	return code;
}
