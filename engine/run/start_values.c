/* SPDX-License-Identifier: Apache-2.0 */
/* Start values of parameters: random numbers from counters, so that they depend only on seed and
 * position. */
#include "start_values.h"
#include "value_stream.h"
#include "write_values.h"
#include "engine/graph/init_rule.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "engine/graph/tensor_parallel.h"
#include "base/process/parallel_for.h"

#include <math.h>
#include <stdlib.h>
#include <sys/param.h>

/* Draws two values of each counter from `first` on. */
typedef void draw_fn(uint64_t seed, uint64_t first, int64_t n, float *ret);

/* Uniform values in (-1, 1): odd multiples of 2^-24, which are exact in f32. */
static void draw_uniform(uint64_t seed, uint64_t first, int64_t n, float *ret)
{
	for (int64_t i = 0; i < n; i++) {
		uint64_t bits = jm_rng(seed, first + (uint64_t)i);

		ret[2 * i] = (float)(((double)(bits >> 40) + 0.5) * 0x1p-23 - 1);
		ret[2 * i + 1] = (float)(((double)(bits & 0xffffff) + 0.5) * 0x1p-23 - 1);
	}
}

/* The same in [0, 1): multiples of 2^-24. */
static void draw_positive(uint64_t seed, uint64_t first, int64_t n, float *ret)
{
	for (int64_t i = 0; i < n; i++) {
		uint64_t bits = jm_rng(seed, first + (uint64_t)i);

		ret[2 * i] = (float)(bits >> 40) * 0x1p-24F;
		ret[2 * i + 1] = (float)(bits & 0xffffff) * 0x1p-24F;
	}
}

/* Normal values within two standard deviations; a pair with others is drawn again with distant
 * counters. */
static void draw_cut(uint64_t seed, uint64_t first, int64_t n, float *ret)
{
	jm_rng_normals(seed, first, n, ret);
	for (int64_t i = 0; i < n; i++) {
		uint64_t counter = first + (uint64_t)i;

		while (fabsf(ret[2 * i]) > 2 || fabsf(ret[2 * i + 1]) > 2) {
			counter += UINT64_C(1) << 48;
			jm_rng_normal_pair(seed, counter, ret + 2 * i);
		}
	}
}

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
		return jm_rng_normals;
	case JM_INIT_TRUNC_NORMAL:
		*ret_std = JM_INIT_CUT_STD;
		return draw_cut;
	case JM_INIT_XAVIER_UNIFORM:
		*ret_std = sqrt(1.0 / 3);
		return draw_uniform;
	case JM_INIT_UNIFORM:
		*ret_std = sqrt(1.0 / 12);
		return draw_positive;
	case JM_INIT_OWN:
	case JM_INIT_ZERO:
	case JM_INIT_ONE:
	case JM_INIT_COUNT:
		break;
	}
	return NULL;
}

/* Of a tensor of this rank. */
struct values {
	const struct jm_graph *graph;
	const struct jm_cell *cell;
	uint64_t seed;
	draw_fn *draw; /* NULL = a constant */
	float constant;
	float scale;	    /* factor of drawn values */
	enum jm_dtype type; /* of what is written */
	int64_t first;	    /* of those that are being written */
	char *to;
};

#define DRAWN 512 /* values at once */

/* n values from element `at` of the whole parameter on, to element i of `to`. */
static void write_run(const struct values *v, int64_t at, int64_t n, int64_t i)
{
	float drawn[DRAWN + 2];

	for (int64_t k; n > 0; n -= k, at += k, i += k) {
		k = MIN(n, DRAWN);
		if (v->draw)
			v->draw(v->seed, (uint64_t)at / 2, (at % 2 + k + 1) / 2, drawn);
		for (int64_t j = 0; j < at % 2 + k; j++)
			drawn[j] = v->draw ? drawn[j] * v->scale : v->constant;
		jm_elements_set(v->type, v->to, i, drawn + at % 2, k);
	}
}

static void write_share(void *arg, int share, int64_t first, int64_t n)
{
	const struct values *v = arg;
	int64_t end = v->first + first + n, run, at; /* at: in the whole parameter */

	(void)share;
	for (int64_t i = v->first + first; i < end; i += run) {
		run = MIN(jm_cell_stretch(v->graph, v->cell, v->graph->tp_rank, i, &at), end - i);
		write_run(v, at, run, i - v->first);
	}
}

/* The values do not depend on the number of threads. */
static int write_values(void *arg, int64_t first, int64_t n, void *to, struct jm_err *err)
{
	struct values *v = arg;

	(void)err;
	v->first = first;
	v->to = to;
	jm_shares_run(&(struct jm_shares){.count = n,
		.weight = 1,
		.unit = 2, /* values are drawn in pairs */
		.most = JM_SHARES_MOST,
		.fn = write_share,
		.arg = v});
	return 0;
}

/* By way of the whole tensor on the host, which lies otherwise on the device. */
static int write_whole(
	struct jm_program *p, struct jm_tensor *t, struct values *v, struct jm_err *err)
{
	int64_t n = jm_tensor_count(t);
	void *data = malloc((size_t)n * jm_dtype_bytes(v->type));
	int code;

	if (!data)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for start values of %s.", t->name);
	write_values(v, 0, n, data, err);
	code = jm_program_write_values(p, t, data, err);
	free(data);
	return code;
}

static int write_tensor(
	struct jm_value_stream *s, struct jm_tensor *t, struct values *v, struct jm_err *err)
{
	v->type = jm_program_value_type(s->p, t);
	return jm_value_stream_takes(t)
		       ? jm_value_stream_send(s, t, 0, jm_tensor_count(t), write_values, v, err)
		       : write_whole(s->p, t, v, err);
}

/* A copy of the parameter that persists (shard_update.c) begins with the parameter's values,
 * rounded. */
static int write_start(
	struct jm_value_stream *s, struct jm_cell *c, uint64_t seed, struct jm_err *err)
{
	struct jm_program *p = s->p;
	double std;
	struct values v = {.graph = p->graph,
		.cell = c,
		.seed = seed,
		.draw = draw_of(c->init, &std),
		.constant = c->init == JM_INIT_ONE};
	int code;

	/* the device writes zeros itself: a cache of keys and values has tens of gigabytes of
	 * them */
	if (c->t.class == JM_CLASS_STATE && !v.draw && c->init != JM_INIT_ONE)
		return jm_device_fill(p->device, JM_QUEUE_COMPUTE, c->t.data, 0, c->t.bytes, err);
	v.scale = (float)(jm_init_std(p->graph, c) / std);
	code = write_tensor(s, &c->t, &v, err);
	if (!code && c->copy && c->copy->class == JM_CLASS_PARAM)
		code = write_tensor(s, c->copy, &v, err);
	return code;
}

int jm_program_init_some(struct jm_program *p, uint64_t seed, jm_start_fn *wanted, const void *arg,
	struct jm_err *err)
{
	uint64_t n = 0; /* parameters so far; other tensors must not change their values */
	struct jm_value_stream s = {0};
	int code = jm_value_stream_open(&s, p, err);

	for (int i = 0; i < p->graph->n_cells && !code; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (c->t.class != JM_CLASS_STATE &&
			(c->t.class != JM_CLASS_PARAM || !(c->needs_grad || c->frozen)))
			continue;
		/* a frozen bias that another rank adds has no memory, but counts */
		if (c->t.data && wanted(arg, c))
			code = write_start(&s, c, jm_rng(seed, n), err);
		n += c->t.class == JM_CLASS_PARAM;
	}
	if (!code)
		code = jm_value_stream_end(&s, err);
	jm_value_stream_close(&s);
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
