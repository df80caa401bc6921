/* SPDX-License-Identifier: Apache-2.0 */
#include "write_values.h"
#include "engine/graph/tensor.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/param.h>
#include <unistd.h>

#define MOST_SCALE 0x1p100F /* the inverse is still a normal number */

/* Rows of a matrix for one thread. */
struct rows {
	enum jm_dtype type;
	const void *from;
	int64_t first, n, width;
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
	scale = fminf(448 / (most > 0 ? most : 1), MOST_SCALE);
	for (int64_t i = first; i < first + r->width; i++)
		r->codes[i] = jm_f8e4m3_set(scale * value(r, i));
	r->inverse[row] = 1 / scale;
}

static void *quantize_rows(void *arg)
{
	const struct rows *r = arg;

	for (int64_t i = 0; i < r->n; i++)
		quantize_row(r, r->first + i);
	return NULL;
}

static void quantize(const struct rows *all)
{
	enum { MOST = 64, LEAST = 1 << 18 };
	int64_t cpus = sysconf(_SC_NPROCESSORS_ONLN), each;
	int64_t threads = MIN(MIN(MAX(cpus, 1), MOST), all->n * all->width / LEAST + 1);
	struct rows part[MOST];
	pthread_t thread[MOST];
	bool started[MOST] = {false};

	each = (all->n + threads - 1) / threads;
	for (int64_t i = 0; i < threads; i++) {
		part[i] = *all;
		part[i].first = MIN(i * each, all->n);
		part[i].n = MIN(each, all->n - part[i].first);
		started[i] = i + 1 < threads &&
			     !pthread_create(&thread[i], NULL, quantize_rows, &part[i]);
		if (!started[i])
			quantize_rows(&part[i]);
	}
	for (int64_t i = 0; i < threads; i++)
		if (started[i])
			pthread_join(thread[i], NULL);
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
