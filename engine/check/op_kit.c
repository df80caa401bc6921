/* SPDX-License-Identifier: Apache-2.0 */
/* Small graphs with random operands. */
#include "op_kit.h"
#include "engine/graph/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int kit_open_on(
	struct kit *k, const struct jm_device *device, enum jm_dtype precision, struct jm_err *err)
{
	*k = (struct kit){.seed = 1, .device = *device, .borrowed = true};
	k->graph = jm_graph_new(precision);
	return k->graph ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for a graph.");
}

int kit_open(
	struct kit *k, const char *device, int threads, enum jm_dtype precision, struct jm_err *err)
{
	struct jm_device d;
	int code = jm_device_open(device, threads, &d, err);

	*k = (struct kit){0};
	if (code)
		return code;
	code = kit_open_on(k, &d, precision, err);
	k->borrowed = false;
	return code;
}

void kit_done(struct kit *k)
{
	jm_program_free(k->program);
	jm_graph_free(k->graph);
	if (k->device.backend && !k->borrowed)
		jm_device_close(&k->device);
}

static struct jm_tensor *give(
	struct kit *k, struct jm_tensor *t, double mean, double spread, int64_t below)
{
	if (!t || k->n_given == KIT_MAX) {
		jm_err_set(&k->graph->err, JM_EBUG, "A case has more than %d operands.", KIT_MAX);
		return t;
	}
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

struct jm_tensor *kit_whole(
	struct kit *k, enum jm_dtype type, int least, int most, int rank, const int64_t *dim)
{
	return give(k, jm_graph_tensor(k->graph, JM_CLASS_INPUT, type, rank, dim, "whole"), least,
		0, most - least + 1);
}

struct jm_tensor *kit_counted(struct kit *k, int first, int rank, const int64_t *dim)
{
	struct jm_tensor *t = kit_whole(k, JM_I32, first, first, rank, dim);

	k->counts[k->n_given - 1] = true;
	return t;
}

struct jm_tensor *kit_special(
	struct kit *k, enum jm_dtype type, unsigned kinds, int rank, const int64_t *dim)
{
	struct jm_tensor *t = kit_normal(k, type, 0, 1, rank, dim);

	k->special[k->n_given - 1] = kinds;
	return t;
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

	if (!plain || k->n_results == KIT_MAX) {
		jm_err_set(&k->graph->err, JM_EBUG, "A case has more than %d results.", KIT_MAX);
		return;
	}
	jm_graph_node(k->graph, JM_OP_CAST, &t, &plain);
	k->result[k->n_results++] = plain;
}

/* Approximately normal: the sum of four uniform values of 16 bits, scaled to a deviation of 1. */
static double normal(uint64_t bits)
{
	uint64_t sum =
		(bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);

	return ((double)sum * 0x1p-16 - 2) * 1.7320508;
}

/* Values first, first + 1... of operand g. */
static void draw(const struct kit *k, int g, int64_t first, int64_t n, double *ret_value)
{
	const uint64_t stream = jm_rng_stream(jm_rng(k->seed, (uint64_t)g));
	const uint64_t below = (uint64_t)k->below[g];

	for (int64_t i = 0; i < n; i++) {
		uint64_t bits = jm_rng_of(stream, (uint64_t)(first + i));

		if (k->counts[g])
			ret_value[i] = k->mean[g] + (double)(first + i);
		else if (below)
			ret_value[i] = k->mean[g] + (double)(bits % below);
		else
			ret_value[i] = k->mean[g] + k->spread[g] * normal(bits);
	}
}

/* A special value, and what the other elements of its row are: normal if 0. */
struct special {
	unsigned kind;
	double value, others;
};

/* The special value of a row, or none (kind 0). */
static struct special special_of(unsigned kinds, enum jm_dtype type, uint64_t bits)
{
	const bool half = type == JM_F16;
	const double large = half ? 6e4 : 1e15, huge = half ? 6e4 : 1e30,
		     tiny = half ? 1e-7 : 1e-40;
	const struct special all[] = {{0}, {KIT_INFINITE, INFINITY, 0},
		{KIT_INFINITE, -INFINITY, 0}, {KIT_NAN, NAN, 0},
		{KIT_INFINITE | KIT_NAN, NAN, -INFINITY}, {KIT_LARGE, large, 0},
		{KIT_LARGE, -large, 0}, {KIT_HUGE, huge, 0}, {KIT_HUGE, -huge, 0},
		{KIT_TINY, tiny, 0}, {KIT_TINY, -0.0, 0}, {KIT_MASKED, -INFINITY, 0}};
	struct special asked[sizeof(all) / sizeof(*all)];
	size_t n = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if ((all[i].kind & kinds) == all[i].kind)
			asked[n++] = all[i];
	return asked[bits % n];
}

/* Puts special values in place of some of values first, first + 1... of operand g; in half of the
 * special rows most elements are special. */
static void draw_special(const struct kit *k, int g, int64_t first, int64_t n, double *value)
{
	const struct jm_tensor *t = k->given[g];
	const uint64_t width = (uint64_t)jm_tensor_width(t), seed = ~jm_rng(k->seed, (uint64_t)g);

	for (int64_t j = 0; j < n; j++) {
		uint64_t i = (uint64_t)(first + j), row = jm_rng(seed, i / width);
		struct special s = special_of(k->special[g], t->type, row >> 1);
		bool few = jm_rng(seed, ~i) % 8 == 0, is = few != (row & 1);

		if (s.kind == KIT_MASKED)
			is = i % width < width / 2;
		if (s.kind == KIT_LARGE) /* the variance of many equal ones is only rounding */
			is = few;
		if (s.kind && (is || s.others != 0))
			value[j] = is ? s.value : s.others;
	}
}

static int write_given(struct kit *k, int g, struct jm_err *err)
{
	struct jm_tensor *t = k->given[g];
	const int64_t count = jm_tensor_count(t);
	char *data = malloc(t->bytes);
	double value[1024];
	int code;

	if (!data)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the operands of a case.");
	for (int64_t i = 0, n; i < count; i += n) {
		n = count - i < 1024 ? count - i : 1024;
		draw(k, g, i, n, value);
		if (k->special[g])
			draw_special(k, g, i, n, value);
		jm_elements_narrow(t->type, data + (size_t)i * jm_dtype_bytes(t->type), n, value);
	}
	code = jm_program_write(k->program, t, data, err);
	free(data);
	return code;
}

/* Fills the arena with NaN of all floating types, because no result may depend on its former
 * contents. */
static int soil(struct kit *k, struct jm_err *err)
{
	const struct jm_program *p = k->program;

	return jm_device_fill(&k->device, JM_QUEUE_COMPUTE, p->arena, 0xff, p->arena_bytes, err);
}

int kit_run(struct kit *k, struct jm_err *err)
{
	int code;

	if (k->graph->err.code)
		return jm_err_set(err, k->graph->err.code, "%s", k->graph->err.text);
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
	int64_t count = jm_tensor_count(t);
	double *value = malloc((size_t)count * sizeof(*value));
	void *data = malloc(t->bytes);

	if (!value || !data || jm_program_read(k->program, t, data, &err)) {
		free(value);
		free(data);
		return NULL;
	}
	jm_elements_widen(t->type, data, count, value);
	free(data);
	return value;
}
