/* SPDX-License-Identifier: Apache-2.0 */
/* Small graphs for tests. */
#include "kit.h"

#include <stdio.h>

#include "engine/rng.h"
#include "unit/test.h"

void kit_open(struct kit *k, const char *device, int threads, enum jm_dtype precision)
{
	struct jm_err err = JM_ERR_INIT;

	*k = (struct kit){.seed = 1};
	assert_ok(jm_device_open(device, threads, &k->device, &err), err);
	k->graph = jm_graph_new(precision);
	assert_non_null(k->graph);
}

void kit_init(struct kit *k, const char *device, enum jm_dtype precision)
{
	kit_open(k, device, 2, precision);
}

void kit_done(struct kit *k)
{
	jm_program_free(k->program);
	jm_graph_free(k->graph);
	jm_device_close(&k->device);
}

static struct jm_tensor *give(
	struct kit *k, struct jm_tensor *t, double mean, double spread, int64_t below)
{
	assert_non_null(t);
	assert_true(k->n_given < KIT_MAX);
	k->given[k->n_given] = t;
	k->mean[k->n_given] = mean;
	k->spread[k->n_given] = spread;
	k->below[k->n_given++] = below;
	return t;
}

struct jm_tensor *kit_normal(
	struct kit *k, enum jm_dtype type, double mean, double spread, int rank, const int64_t *dim)
{
	return give(k, jm_graph_tensor(k->graph, JM_CLASS_INPUT, type, rank, dim, "given"), mean,
		spread, 0);
}

struct jm_tensor *kit_ids(struct kit *k, int64_t below, int rank, const int64_t *dim)
{
	return give(k, jm_graph_tensor(k->graph, JM_CLASS_INPUT, JM_I32, rank, dim, "ids"), 0, 0,
		below);
}

struct jm_tensor *kit_param(struct kit *k, int rank, const int64_t *dim)
{
	struct jm_tensor *t =
		jm_graph_tensor(k->graph, JM_CLASS_PARAM, k->graph->vector, rank, dim, "param");

	jm_graph_cell(k->graph, give(k, t, 0.1, 0.7, 0))->needs_grad = true;
	return t;
}

struct jm_tensor *kit_out(
	struct kit *k, enum jm_dtype type, int rank, const int64_t *dim, struct jm_tensor *from)
{
	struct jm_tensor *t = jm_graph_tensor(k->graph, JM_CLASS_ACT, type, rank, dim, "out");

	if (from)
		jm_graph_node(k->graph, JM_OP_CAST, OPS(from), &t);
	return t;
}

void kit_read(struct kit *k, struct jm_tensor *t)
{
	struct jm_tensor *plain =
		jm_graph_tensor(k->graph, JM_CLASS_SCALAR, t->type, t->rank, t->dim, "result");

	assert_true(k->n_results < KIT_MAX);
	jm_graph_node(k->graph, JM_OP_CAST, &t, &plain);
	k->result[k->n_results++] = plain;
}

/* The sum of four uniform values of 16 bits, scaled to a deviation of 1: normal enough. */
static double normal(uint64_t seed, uint64_t i)
{
	uint64_t bits = jm_rng(seed, i);
	double sum = -2;

	for (int j = 0; j < 4; j++, bits >>= 16)
		sum += (double)(bits & 0xffff) * 0x1p-16;
	return sum * 1.7320508;
}

static int write_given(struct kit *k, int g, struct jm_err *err)
{
	struct jm_tensor *t = k->given[g];
	void *data = malloc(t->bytes);
	uint64_t seed = jm_rng(k->seed, (uint64_t)g);
	int code;

	for (int64_t i = 0; i < jm_tensor_count(t); i++) {
		double value = k->mean[g] + k->spread[g] * normal(seed, (uint64_t)i);

		if (k->below[g])
			value = (double)(jm_rng(seed, (uint64_t)i) % (uint64_t)k->below[g]);
		jm_element_set(t->type, data, i, value);
	}
	code = jm_program_write(k->program, t, data, err);
	free(data);
	return code;
}

/* Nothing may depend on what a step finds in the arena: NaN, in all floating types. */
static int soil(struct kit *k, struct jm_err *err)
{
	const struct jm_program *p = k->program;

	return jm_device_fill(&k->device, JM_QUEUE_COMPUTE, p->arena, 0xff, p->arena_bytes, err);
}

int kit_run(struct kit *k, struct jm_err *err)
{
	int code;

	assert_ok(k->graph->err.code, k->graph->err);
	code = jm_program_plan(k->graph, &k->device, &k->program, err);
	if (!code)
		code = jm_program_build(k->program, err);
	if (!code)
		code = soil(k, err);
	for (int g = 0; g < k->n_given && !code; g++)
		code = write_given(k, g, err);
	return code ? code : jm_program_run(k->program, err);
}

double *kit_values(struct kit *k, const struct jm_tensor *t)
{
	struct jm_err err = JM_ERR_INIT;
	double *value = malloc((size_t)jm_tensor_count(t) * sizeof(*value));
	void *data = malloc(t->bytes);

	assert_ok(jm_program_read(k->program, t, data, &err), err);
	for (int64_t i = 0; i < jm_tensor_count(t); i++)
		value[i] = jm_element_get(t->type, data, i);
	free(data);
	return value;
}

void kit_model(
	const char *const *words, const struct jm_model **ret_model, struct jm_values *ret_dims)
{
	const struct jm_preset *preset;
	struct jm_err err = JM_ERR_INIT;
	struct jm_values given;

	assert_ok(jm_model_find(words[0], ret_model, &preset, &err), err);
	assert_ok(jm_values_init(&given, (*ret_model)->options, &err), err);
	for (int i = 1; words[i]; i++) {
		const char *equals = strchr(words[i], '=');
		char name[32];

		snprintf(name, sizeof(name), "%.*s", (int)(equals - words[i]), words[i]);
		assert_ok(jm_values_set(&given, name, equals + 1, &err), err);
	}
	assert_ok(jm_model_dims(*ret_model, preset, &given, ret_dims, &err), err);
	jm_values_done(&given);
}

struct jm_program *kit_plan(
	const char *const *words, const struct jm_training *how, struct jm_device *device)
{
	struct jm_training t = *how;
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *p;
	struct jm_graph *g;
	struct jm_values dims;

	kit_model(words, &t.model, &dims);
	t.dims = &dims;
	assert_ok(jm_model_train(&t, &g, &err), err);
	assert_ok(jm_program_plan(g, device, &p, &err), err);
	jm_values_done(&dims);
	return p;
}

void kit_plan_free(struct jm_program *p)
{
	struct jm_graph *g = p->graph;

	jm_program_free(p);
	jm_graph_free(g);
}
