/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs: all values are functions of the seed and the number of the sample. */
#include "batch_feed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/process/parallel_for.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "heat_equation.h"

void jm_batch_feed_choose(
	struct jm_batch_feed *s, const struct jm_model *model, const struct jm_values *dims)
{
	s->n = 0;
	for (const struct jm_input *row = model->inputs; row->name && s->n < JM_INPUTS_MAX; row++)
		s->input[s->n++] = (struct jm_feed_input){
			.row = row, .below = row->below ? jm_dim(dims, row->below) : 0};
}

int64_t jm_batch_feed_vocabulary(const struct jm_batch_feed *s)
{
	for (int i = 0; i < s->n; i++)
		if (s->input[i].row->fill == JM_FILL_TEXT)
			return s->input[i].below;
	return 0;
}

/* True if the input is sent only once, apart from the batches. */
static bool stays(const struct jm_batch_feed *s, const struct jm_feed_input *input)
{
	return !s->fresh && input->row->fill != JM_FILL_TEXT;
}

/* True if the tensor is sent only once. */
static bool is_sent_once(const struct jm_batch_feed *s, const struct jm_tensor *t)
{
	for (int i = 0; i < s->n; i++)
		if (stays(s, &s->input[i]) && !strcmp(s->input[i].row->name, t->name))
			return true;
	return false;
}

size_t jm_batch_feed_bytes(const struct jm_batch_feed *s, const struct jm_program *program)
{
	size_t bytes = 0;

	for (int i = 0; i < program->graph->n_cells; i++) {
		const struct jm_tensor *t = &program->graph->cell[i]->t;

		if (t->class == JM_CLASS_INPUT && program->graph->cell[i]->first >= 0 &&
			!is_sent_once(s, t))
			bytes += jm_staging_bytes(program->device, t);
	}
	return bytes;
}

/* Random numbers of input i. */
static uint64_t seed_of(const struct jm_batch_feed *s, int i)
{
	if (i < 2)
		return i ? ~s->seed : s->seed;
	return jm_rng(s->seed, ~(uint64_t)i);
}

int64_t jm_batch_feed_places(const struct jm_graph *g)
{
	for (int i = 0; i < g->n_nodes; i++)
		if (g->node[i]->op == JM_OP_PUT_ROWS)
			return g->node[i]->attr.put.places;
	return 0;
}

int jm_batch_feed_open(struct jm_batch_feed *s, struct jm_program *program, struct jm_err *err)
{
	struct jm_tensor *staged[JM_INPUTS_MAX + 1];
	int n = 0;

	s->program = program;
	s->places = jm_batch_feed_places(program->graph);
	s->random = jm_graph_find(program->graph, "random.now");
	for (int i = 0; i < s->n; i++) {
		struct jm_feed_input *input = &s->input[i];

		input->t = jm_graph_find(program->graph, input->row->name);
		input->seed = seed_of(s, i);
		if (!input->t)
			return jm_err_set(err, JM_EBUG,
				"The model declares no input '%s', which its table has.",
				input->row->name);
		if (!input->t->data) /* of another stage */
			input->t = NULL;
		else if (!stays(s, input))
			staged[n++] = input->t;
	}
	if (s->random && !s->random->data)
		s->random = NULL;
	staged[n++] = s->random;
	return jm_staging_open(&s->staging, program, staged, n, err);
}

void jm_batch_feed_close(struct jm_batch_feed *s)
{
	jm_corpus_close(&s->corpus);
	jm_staging_close(&s->staging);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Checks n tokens of the text from place `at` on. */
static int check_tokens(const struct jm_feed_input *input, const int32_t *token, int64_t n,
	int64_t at, struct jm_err *err)
{
	for (int64_t i = 0; i < n; i++)
		if (token[i] < 0 || token[i] >= input->below)
			return jm_err_set(err, JM_ERANGE,
				"The text has token %lld at position %lld, but the vocabulary of "
				"the model has tokens 0 to %lld only; give a larger --vocab or "
				"another --text.",
				(long long)token[i], (long long)(at + i),
				(long long)input->below - 1);
	return 0;
}

/* Every input of text begins its windows at the same places, but for its shift. */
static int make_text(const struct jm_batch_feed *s, const struct jm_feed_input *input,
	int64_t number, void *room, struct jm_err *err)
{
	int64_t batch = input->t->dim[0], seq = input->t->dim[1];
	uint64_t starts = (uint64_t)((s->tokens ? s->tokens : s->corpus.tokens) - seq);
	int32_t *token = room;
	int code = 0;

	for (int64_t b = 0; b < batch && !code; b++, token += seq) {
		uint64_t sample = (uint64_t)(number * batch + b);
		int64_t at = s->from + (int64_t)(jm_rng(s->seed, sample) % starts);

		code = jm_corpus_read(&s->corpus, at + input->row->shift, seq, token, err);
		if (!code)
			code = check_tokens(input, token, seq, at + input->row->shift, err);
		/* a picture is at the start: only its last place has a target */
		for (int64_t k = 0; input->row->shift && k + 1 < s->places; k++)
			token[k] = JM_TALK_IGNORED;
	}
	return code;
}

/* ---- random values --------------------------------------------------------------------------- */

#define DRAWN 512 /* values at once */

static void fill_normal(const struct jm_tensor *t, void *room, int64_t at, int64_t n, uint64_t seed)
{
	float drawn[DRAWN];
	int64_t k;

	for (int64_t i = 0; i < n; i += k) {
		k = MIN(n - i, DRAWN);
		jm_rng_normals(seed, (uint64_t)i / 2, (k + 1) / 2, drawn);
		jm_elements_set(t->type, room, at + i, drawn, k);
	}
}

/* A batch of random samples. */
struct samples {
	const struct jm_feed_input *input;
	int64_t number; /* of the batch */
	void *room;
};

static void fill_samples(void *arg, int share, int64_t first, int64_t count)
{
	const struct samples *s = arg;
	int64_t batch = s->input->t->dim[0], n = jm_tensor_count(s->input->t) / batch;

	(void)share;
	for (int64_t b = first; b < first + count; b++)
		fill_normal(s->input->t, s->room, b * n, n,
			jm_rng(s->input->seed, (uint64_t)(s->number * batch + b)));
}

static int make_normal(const struct jm_batch_feed *s, const struct jm_feed_input *input,
	int64_t number, void *room, struct jm_err *err)
{
	int64_t batch = input->t->dim[0];

	(void)s;
	(void)err;
	jm_shares_run(&(struct jm_shares){.count = batch,
		.weight = jm_tensor_count(input->t) / batch,
		.unit = 1,
		.most = JM_SHARES_MOST,
		.fn = fill_samples,
		.arg = &(struct samples){input, number, room}});
	return 0;
}

static int make_classes(const struct jm_batch_feed *s, const struct jm_feed_input *input,
	int64_t number, void *room, struct jm_err *err)
{
	int64_t batch = jm_tensor_count(input->t);
	int32_t *class = room;

	(void)s;
	(void)err;
	for (int64_t b = 0; b < batch; b++)
		class[b] = (int32_t)(jm_rng(input->seed, (uint64_t)(number * batch + b)) %
				     (uint64_t)input->below);
	return 0;
}

static int make_rows(const struct jm_batch_feed *s, const struct jm_feed_input *input,
	int64_t number, void *room, struct jm_err *err)
{
	int32_t *row = room;

	(void)s;
	(void)number;
	(void)err;
	for (int64_t b = 0; b < jm_tensor_count(input->t); b++)
		row[b] = (int32_t)b;
	return 0;
}

static int make_zeros(const struct jm_batch_feed *s, const struct jm_feed_input *input,
	int64_t number, void *room, struct jm_err *err)
{
	(void)s;
	(void)number;
	(void)err;
	memset(room, 0, input->t->bytes);
	return 0;
}

/* Both ends of a time step, which are two inputs, belong to the same fields. */
static int make_heat(const struct jm_batch_feed *s, const struct jm_feed_input *input,
	int64_t number, void *room, struct jm_err *err)
{
	int64_t batch = input->t->dim[0];
	int code = 0;

	for (int64_t b = 0; b < batch && !code; b++)
		code = jm_heat_fill(input->t, b, jm_rng(s->seed, (uint64_t)(number * batch + b)),
			input->row->shift, room, err);
	return code;
}

/* ---- all ------------------------------------------------------------------------------------- */

typedef int make_fn(const struct jm_batch_feed *s, const struct jm_feed_input *input,
	int64_t number, void *room, struct jm_err *err);

static make_fn *const makers[] = {
	[JM_FILL_TEXT] = make_text,
	[JM_FILL_NORMAL] = make_normal,
	[JM_FILL_CLASS] = make_classes,
	[JM_FILL_ROW] = make_rows,
	[JM_FILL_ZERO] = make_zeros,
	[JM_FILL_HEAT] = make_heat,
};

/* Of the micro-steps of all ranks. */
static int64_t number_of(const struct jm_batch_feed *s, int64_t own)
{
	return s->world > 1 ? own * s->world + s->rank : own;
}

static int write_once(
	struct jm_batch_feed *s, const struct jm_feed_input *input, struct jm_err *err)
{
	void *room = malloc(input->t->bytes);
	int code;

	if (!room)
		return jm_err_set(
			err, JM_ENOMEM, "Out of memory for the input '%s'.", input->row->name);
	code = makers[input->row->fill](s, input, number_of(s, 0), room, err);
	if (!code)
		code = jm_program_write(s->program, input->t, room, err);
	free(room);
	return code;
}

/* Writes the inputs that stay the same in all micro-steps. */
static int write_all_once(struct jm_batch_feed *s, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < s->n && !code; i++)
		if (s->input[i].t && stays(s, &s->input[i]))
			code = write_once(s, &s->input[i], err);
	s->is_fed = !code;
	return code;
}

/* Is it a field of a data set? */
static bool is_loaded(const struct jm_batch_feed *s, const struct jm_feed_input *input)
{
	return s->pictures && input->row->field;
}

static int take_pictures(struct jm_batch_feed *s, int64_t number, struct jm_err *err)
{
	void *to[JM_INPUTS_MAX];
	int n = 0;

	for (int i = 0; i < s->n; i++)
		if (is_loaded(s, &s->input[i]))
			to[n++] = jm_staging_room(&s->staging, s->input[i].t);
	return jm_picture_loader_take(s->pictures, number, to, err);
}

static int make(struct jm_batch_feed *s, int64_t number, struct jm_err *err)
{
	int code = s->pictures ? take_pictures(s, number, err) : 0;

	for (int i = 0; i < s->n && !code; i++) {
		const struct jm_feed_input *input = &s->input[i];

		if (input->t && !stays(s, input) && !is_loaded(s, input))
			code = makers[input->row->fill](
				s, input, number, jm_staging_room(&s->staging, input->t), err);
	}
	if (s->random)
		*(int32_t *)jm_staging_room(&s->staging, s->random) = (int32_t)number;
	return code;
}

int jm_batch_feed_write(struct jm_batch_feed *s, int64_t number, struct jm_err *err)
{
	int code = s->is_fed ? 0 : write_all_once(s, err);

	if (!code)
		code = jm_staging_begin(&s->staging, err);
	if (!code)
		code = make(s, number_of(s, number), err);
	return code ? code : jm_staging_end(&s->staging, err);
}
