/* SPDX-License-Identifier: Apache-2.0 */
/* Start values of parameters: random numbers from counters, so that they depend only on seed and
 * position. */
#include "start_values.h"
#include "write_values.h"
#include "engine/graph/init_rule.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "engine/graph/tensor_parallel.h"
#include "base/process/parallel_for.h"

#include <math.h>
#include <stdlib.h>

/* Two uniform values in (-1, 1) from one counter: odd multiples of 2^-24, which are exact in
 * f32. */
static void uniform_pair(uint64_t seed, uint64_t counter, float *ret)
{
	uint64_t bits = jm_rng(seed, counter);

	ret[0] = (float)(((double)(bits >> 40) + 0.5) * 0x1p-23 - 1);
	ret[1] = (float)(((double)(bits & 0xffffff) + 0.5) * 0x1p-23 - 1);
}

/* The same in [0, 1): multiples of 2^-24. */
static void positive_pair(uint64_t seed, uint64_t counter, float *ret)
{
	uint64_t bits = jm_rng(seed, counter);

	ret[0] = (float)(bits >> 40) * 0x1p-24F;
	ret[1] = (float)(bits & 0xffffff) * 0x1p-24F;
}

/* Two normal values within two standard deviations; others are drawn again with distant
 * counters. */
static void cut_pair(uint64_t seed, uint64_t counter, float *ret)
{
	do {
		jm_rng_normal_pair(seed, counter, ret);
		counter += UINT64_C(1) << 48;
	} while (fabsf(ret[0]) > 2 || fabsf(ret[1]) > 2);
}

typedef void draw_fn(uint64_t seed, uint64_t counter, float *ret);

/* The function that draws values; NULL = a constant. ret_std: the standard deviation of its
 * values. */
static draw_fn *draw_of(enum jm_init rule, double *ret_std)
{
	*ret_std = 1;
	switch (rule) {
	case JM_INIT_NORMAL:
	case JM_INIT_GPT2:
	case JM_INIT_HE_NORMAL:
	case JM_INIT_LECUN_NORMAL:
		return jm_rng_normal_pair;
	case JM_INIT_TRUNC_NORMAL:
		*ret_std = JM_INIT_CUT_STD;
		return cut_pair;
	case JM_INIT_XAVIER_UNIFORM:
		*ret_std = sqrt(1.0 / 3);
		return uniform_pair;
	case JM_INIT_UNIFORM:
		*ret_std = sqrt(1.0 / 12);
		return positive_pair;
	case JM_INIT_OWN:
	case JM_INIT_ZERO:
	case JM_INIT_ONE:
	case JM_INIT_COUNT:
		break;
	}
	return NULL;
}

/* Of a whole tensor. */
struct values {
	const struct jm_graph *graph;
	const struct jm_cell *cell;
	uint64_t seed;
	draw_fn *draw;	    /* NULL = a constant */
	float scale;	    /* factor of drawn values */
	enum jm_dtype type; /* of data */
	void *data;
	void *copy; /* the same values rounded to the type of the copy; NULL = there is none */
};

static void set(enum jm_dtype type, void *data, int64_t i, float value)
{
	if (type == JM_F32)
		((float *)data)[i] = value;
	else if (type == JM_BF16)
		((uint16_t *)data)[i] = jm_bf16_set(value);
	else
		jm_element_set(type, data, i, (double)value);
}

static void fill_stretch(void *arg, int share, int64_t first, int64_t n)
{
	const struct values *s = arg;
	const struct jm_cell *c = s->cell;
	draw_fn *draw = s->draw;
	float pair[2] = {0, 0};
	int64_t drawn = -1, at; /* in the whole parameter */

	(void)share;
	if (c->init == JM_INIT_ONE)
		pair[0] = pair[1] = 1;
	for (int64_t i = first; i < first + n; i++) {
		at = jm_cell_index(s->graph, c, i);
		if (draw && at / 2 != drawn) {
			drawn = at / 2;
			draw(s->seed, (uint64_t)drawn, pair);
			pair[0] *= s->scale;
			pair[1] *= s->scale;
		}
		set(s->type, s->data, i, pair[at & 1]);
		if (s->copy)
			set(c->copy->type, s->copy, i, pair[at & 1]);
	}
}

/* The values do not depend on the number of threads. */
static void fill(
	const struct jm_program *p, const struct jm_cell *c, uint64_t seed, void *data, void *copy)
{
	double std;
	struct values all = {.graph = p->graph,
		.cell = c,
		.seed = seed,
		.draw = draw_of(c->init, &std),
		.type = jm_program_value_type(p, &c->t),
		.data = data,
		.copy = copy};

	all.scale = (float)(jm_init_std(p->graph, c) / std);
	jm_shares_run(&(struct jm_shares){.count = jm_tensor_count(&c->t),
		.weight = 1,
		.unit = 2, /* values are drawn in pairs */
		.most = JM_SHARES_MOST,
		.fn = fill_stretch,
		.arg = &all});
}

/* A copy of the parameter that persists (shard_update.c) begins with the parameter's values,
 * rounded. */
static int write_start(struct jm_program *p, struct jm_cell *c, uint64_t seed, struct jm_err *err)
{
	struct jm_tensor *copy = c->copy && c->copy->class == JM_CLASS_PARAM ? c->copy : NULL;
	void *data, *rounded;
	double std;
	int code;

	/* the device writes zeros itself: a cache of keys and values has tens of gigabytes of
	 * them */
	if (c->t.class == JM_CLASS_STATE && c->init != JM_INIT_ONE && !draw_of(c->init, &std))
		return jm_device_fill(p->device, JM_QUEUE_COMPUTE, c->t.data, 0, c->t.bytes, err);
	data = malloc(
		(size_t)jm_tensor_count(&c->t) * jm_dtype_bytes(jm_program_value_type(p, &c->t)));
	rounded = copy ? malloc(copy->bytes) : NULL;
	if (data && (rounded || !copy)) {
		fill(p, c, seed, data, rounded);
		code = jm_program_write_values(p, &c->t, data, err);
		if (!code && copy)
			code = jm_program_write(p, copy, rounded, err);
	} else {
		code = jm_err_set(
			err, JM_ENOMEM, "Out of memory for start values of %s.", c->t.name);
	}
	free(data);
	free(rounded);
	return code;
}

int jm_program_init_some(struct jm_program *p, uint64_t seed, jm_start_fn *wanted, const void *arg,
	struct jm_err *err)
{
	uint64_t n = 0; /* parameters so far; other tensors must not change their values */
	int code = 0;

	for (int i = 0; i < p->graph->n_cells && !code; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (c->t.class != JM_CLASS_STATE &&
			(c->t.class != JM_CLASS_PARAM || !(c->needs_grad || c->frozen)))
			continue;
		/* a frozen bias that another rank adds has no memory, but counts */
		if (c->t.data && wanted(arg, c))
			code = write_start(p, c, jm_rng(seed, n), err);
		n += c->t.class == JM_CLASS_PARAM;
	}
	return code;
}

static bool all(const void *arg, const struct jm_cell *c)
{
	(void)arg;
	(void)c;
	return true;
}

int jm_program_init(struct jm_program *p, uint64_t seed, struct jm_err *err)
{
	return jm_program_init_some(p, seed, all, NULL, err);
}
