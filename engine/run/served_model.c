/* SPDX-License-Identifier: Apache-2.0 */
#include "served_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/tensor.h"

const char *const jm_cache_types[] = {"auto", "f8e4m3", NULL};

const char *jm_cache_type_name(enum jm_cache_type kv, enum jm_dtype computes)
{
	return jm_dtype_name(kv == JM_CACHE_F8E4M3 ? JM_F8E4M3 : computes);
}

/* Operands of a step, which the caller writes. */
struct inputs {
	int n;
	struct {
		const char *name;
		const void *data;
	} at[JM_STAGING_TENSORS];
};

static struct inputs inputs_of(const struct jm_served_model *c)
{
	const struct inputs greedy = {4, {{"ids", c->ids}, {"position", c->position},
						 {"request", c->request}, {"last", c->last}}};
	const struct inputs drawn = {
		6, {{"ids", c->ids}, {"position", c->position}, {"request", c->request},
			   {"last", c->last}, {"rule", c->rule}, {"draw", c->draw}}};

	return c->shape.samples ? drawn : greedy;
}

/* The table of pages, which all programs read. */
static struct jm_tensor *table_of(const struct jm_served_model *c)
{
	return jm_graph_find(c->program[0]->graph, "page");
}

static bool take(struct jm_served_model *c)
{
	size_t tokens = (size_t)c->shape.tokens, requests = (size_t)c->shape.requests;

	c->ids = calloc(tokens, sizeof(*c->ids));
	c->position = calloc(tokens, sizeof(*c->position));
	c->request = calloc(tokens, sizeof(*c->request));
	c->page = calloc(requests * (size_t)c->shape.pages_each, sizeof(*c->page));
	c->last = calloc(requests, sizeof(*c->last));
	c->used_pages = calloc(requests, sizeof(*c->used_pages));
	c->token = calloc(requests, sizeof(*c->token));
	c->rule = calloc(requests * 3, sizeof(*c->rule));
	c->draw = calloc(requests * 2, sizeof(*c->draw));
	if (!c->rule || !c->draw || !c->used_pages)
		return false;
	return c->ids && c->position && c->request && c->page && c->last && c->token;
}

/* The size after this one: where the time of a step grows with its rows, there is one more between
 * two powers of two. */
static int next_size(int size)
{
	bool power = !(size & (size - 1));

	if (!power)
		return size / 3 * 4;
	return size < JM_SERVED_FEW ? size * 2 : size / 2 * 3;
}

static int plan_one(struct jm_served_model *c, const struct jm_training *t,
	struct jm_device *device, struct jm_err *err)
{
	struct jm_step_shape shape = c->shape;
	struct jm_program **p = &c->program[c->n_programs];
	struct jm_graph *g;
	int code;

	shape.tokens = c->size[c->n_programs];
	code = jm_model_step(t, &shape, &g, err);
	if (code)
		return code;
	code = c->n_programs ? jm_program_plan_beside(g, c->program[0], p, err)
			     : jm_program_plan(g, device, p, err);
	if (code)
		jm_graph_free(g);
	else
		c->n_programs++;
	return code;
}

/* The last token of an answer is no row. A request has one page at least. */
#define ROWS_MULTIPLE 16 /* beyond a few rows, products in 8 bits need a multiple of this */

/* The last block computes a row of each request. */
static int64_t places(int64_t running)
{
	return running <= ROWS_MULTIPLE
		       ? running
		       : (running + ROWS_MULTIPLE - 1) / ROWS_MULTIPLE * ROWS_MULTIPLE;
}

int jm_served_shape(int step_tokens, int running, int64_t request_tokens, struct jm_step_shape *ret,
	struct jm_err *err)
{
	int64_t each = (request_tokens - 1 + JM_PAGE_TOKENS - 1) / JM_PAGE_TOKENS;

	*ret = (struct jm_step_shape){
		.tokens = step_tokens, .requests = places(running), .pages_each = each ? each : 1};
	if (step_tokens >= running)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"A step of %d tokens cannot serve %d requests; give more --step-tokens or fewer "
		"--running.",
		step_tokens, running);
}

int jm_served_plan(const struct jm_training *t, const struct jm_step_shape *shape,
	struct jm_device *device, struct jm_served_model *ret, struct jm_err *err)
{
	int sizes = 0, size = 1, code = 0;

	*ret = (struct jm_served_model){.shape = *shape};
	for (; sizes < JM_SERVED_SIZES && (!sizes || ret->size[sizes - 1] < shape->tokens);
		size = next_size(size))
		ret->size[sizes++] = size;
	if (ret->size[sizes - 1] < shape->tokens)
		return jm_err_set(err, JM_ERANGE,
			"A step of %lld tokens is larger than the largest one, %d; give fewer.",
			(long long)shape->tokens, ret->size[sizes - 1]);
	ret->shape.tokens = ret->size[sizes - 1];
	if (!take(ret))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the rows of a step.");
	for (int i = 0; i < sizes && !code; i++)
		code = plan_one(ret, t, device, err);
	return code;
}

static bool is_cache(const struct jm_cell *c)
{
	return c->t.class == JM_CLASS_STATE && c->t.rank == 4 && c->t.dim[1] == JM_PAGE_TOKENS;
}

size_t jm_served_page_bytes(const struct jm_served_model *c)
{
	const struct jm_graph *g = c->program[0]->graph;
	size_t bytes = 0;

	for (int i = 0; i < g->n_cells; i++) {
		const struct jm_tensor *t = &g->cell[i]->t;

		if (is_cache(g->cell[i]))
			bytes += (size_t)(jm_tensor_count(t) / t->dim[0]) * jm_dtype_bytes(t->type);
	}
	return bytes;
}

size_t jm_served_peak(const struct jm_served_model *c, size_t *ret_arena)
{
	const struct jm_program *first = c->program[0];
	size_t kept = first->persistent_bytes + jm_staging_bytes(first->device, table_of(c));
	struct inputs inputs = inputs_of(c);

	*ret_arena = 0;
	for (int i = 0; i < c->n_programs; i++) {
		const struct jm_program *p = c->program[i];

		kept += i ? p->persistent_bytes - p->weight_bytes : 0;
		for (int k = 0; k < inputs.n; k++)
			kept += jm_staging_bytes(
				p->device, jm_graph_find(p->graph, inputs.at[k].name));
		*ret_arena = p->arena_bytes > *ret_arena ? p->arena_bytes : *ret_arena;
	}
	return kept + *ret_arena;
}

static int open_flight(struct jm_served_model *c, struct jm_served_flight *f, struct jm_err *err)
{
	const struct jm_device *d = c->program[0]->device;
	int code;

	f->token = jm_device_pinned_alloc(d, c->made->bytes);
	if (!f->token)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the tokens of a step.");
	code = jm_event_new(d, &f->begun, err);
	return code ? code : jm_event_new(d, &f->done, err);
}

static int open_table(struct jm_served_model *c, struct jm_err *err)
{
	struct jm_tensor *t = table_of(c);

	return jm_staging_open(&c->table, c->program[0], &t, 1, err);
}

static int open_staging(struct jm_served_model *c, int size, struct jm_err *err)
{
	struct jm_tensor *t[JM_STAGING_TENSORS];
	struct inputs inputs = inputs_of(c);

	for (int i = 0; i < inputs.n; i++)
		t[i] = jm_graph_find(c->program[size]->graph, inputs.at[i].name);
	return jm_staging_open(&c->staging[size], c->program[size], t, inputs.n, err);
}

int jm_served_build(struct jm_served_model *c, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < c->n_programs && !code; i++) {
		code = jm_program_build(c->program[i], err);
		if (!code)
			code = open_staging(c, i, err);
	}
	if (!code)
		code = open_table(c, err);
	c->made = jm_graph_find(c->program[0]->graph, "token");
	for (int i = 0; i <= JM_SERVED_AHEAD && !code; i++)
		code = open_flight(c, &c->flight[i], err);
	return code;
}

int jm_served_program(const struct jm_served_model *c, int64_t rows)
{
	int i = 0;

	while (c->size[i] < rows)
		i++;
	return i;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* A table for requests of the whole context of a model is much larger than what a step reads. */
static void copy_pages(const struct jm_served_model *c, int32_t *to)
{
	size_t each = (size_t)c->shape.pages_each;

	for (size_t i = 0; i < (size_t)c->shape.requests; i++)
		memcpy(to + i * each, c->page + i * each, (size_t)c->used_pages[i] * sizeof(*to));
}

static int send_pages(struct jm_served_model *c, struct jm_err *err)
{
	struct jm_staging *s = &c->table;
	int code = jm_staging_begin(s, err);

	if (code)
		return code;
	copy_pages(c, jm_staging_room(s, s->tensor[0]));
	jm_staging_rows(s, c->used_pages);
	return jm_staging_end(s, err);
}

/* Sends what the caller wrote to the program; rows after those are padding. */
static int send_inputs(struct jm_served_model *c, int size, int64_t rows, struct jm_err *err)
{
	struct jm_staging *s = &c->staging[size];
	struct inputs inputs = inputs_of(c);
	int code = jm_staging_begin(s, err);

	for (int64_t i = rows; i < c->size[size]; i++) {
		c->ids[i] = c->request[i] = 0;
		c->position[i] = -1;
	}
	if (code)
		return code;
	for (int i = 0; i < inputs.n; i++)
		memcpy(jm_staging_room(s, s->tensor[i]), inputs.at[i].data, s->tensor[i]->bytes);
	code = jm_staging_end(s, err);
	return code ? code : send_pages(c, err);
}

static struct jm_served_flight *flight_of(struct jm_served_model *c, int64_t step)
{
	return &c->flight[step % (JM_SERVED_AHEAD + 1)];
}

static int queue_program(struct jm_program *p, struct jm_err *err)
{
	int code = jm_program_begin(p, err);

	if (!code)
		code = jm_program_micro(p, err);
	return code ? code : jm_program_update(p, err);
}

int jm_served_launch(struct jm_served_model *c, int64_t rows, struct jm_err *err)
{
	struct jm_served_flight *f = flight_of(c, c->launched);
	int size = jm_served_program(c, rows), code;

	if (c->launched - c->awaited == JM_SERVED_AHEAD)
		return jm_err_set(err, JM_EBUG, "%d steps are under way; await one of them.",
			JM_SERVED_AHEAD);
	code = send_inputs(c, size, rows, err);
	if (!code)
		code = jm_event_record(&f->begun, JM_QUEUE_COMPUTE, err);
	if (!code)
		code = queue_program(c->program[size], err);
	if (!code)
		code = jm_device_copy(c->program[size]->device, JM_QUEUE_COMPUTE, f->token,
			c->made->data, c->made->bytes, JM_TO_HOST, err);
	if (!code)
		code = jm_event_record(&f->done, JM_QUEUE_COMPUTE, err);
	c->launched += !code;
	return code;
}

int jm_served_await(struct jm_served_model *c, struct jm_err *err)
{
	struct jm_served_flight *f = flight_of(c, c->awaited);
	int code;

	if (c->awaited == c->launched)
		return jm_err_set(err, JM_EBUG, "No step is under way.");
	code = jm_event_wait(&f->done, err);
	if (code)
		return code;
	memcpy(c->token, f->token, c->made->bytes);
	c->idle_s = NAN;
	if (c->awaited)
		code = jm_event_seconds(
			&flight_of(c, c->awaited - 1)->done, &f->begun, &c->idle_s, err);
	c->awaited++;
	return code;
}

int jm_served_run(struct jm_served_model *c, int64_t rows, struct jm_err *err)
{
	int code = jm_served_launch(c, rows, err);

	return code ? code : jm_served_await(c, err);
}

static void close_flight(struct jm_served_model *c, struct jm_served_flight *f)
{
	if (f->token)
		jm_device_pinned_release(c->program[0]->device, f->token);
	jm_event_drop(&f->begun);
	jm_event_drop(&f->done);
}

void jm_served_close(struct jm_served_model *c)
{
	struct jm_err err = JM_ERR_INIT;

	if (c->launched > c->awaited) /* what it writes is freed below */
		jm_device_sync(c->program[0]->device, &err);
	for (int i = 0; i <= JM_SERVED_AHEAD; i++)
		close_flight(c, &c->flight[i]);
	for (int i = 0; i < c->n_programs; i++)
		jm_staging_close(&c->staging[i]);
	jm_staging_close(&c->table);
	while (c->n_programs) {
		struct jm_program *p = c->program[--c->n_programs];
		struct jm_graph *g = p->graph;

		jm_program_free(p);
		jm_graph_free(g);
	}
	free(c->ids);
	free(c->position);
	free(c->request);
	free(c->page);
	free(c->last);
	free(c->used_pages);
	free(c->token);
	free(c->rule);
	free(c->draw);
	*c = (struct jm_served_model){0};
}
