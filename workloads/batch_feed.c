/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs: all values are functions of the seed and the number of the sample. */
#include "batch_feed.h"

#include <stdlib.h>

#include "engine/rng.h"
#include "engine/tensor.h"

static size_t larger(size_t n, const struct jm_tensor *t)
{
	return t && t->bytes > n ? t->bytes : n;
}

int jm_batch_feed_open(struct jm_batch_feed *s, struct jm_program *program, struct jm_err *err)
{
	size_t n = 0;

	s->program = program;
	s->ids = jm_graph_find(program->graph, "ids");
	s->image = jm_graph_find(program->graph, "image");
	s->target = jm_graph_find(program->graph, "target");
	s->random = jm_graph_find(program->graph, "random.now");
	n = larger(larger(larger(n, s->ids), s->image), s->target);
	s->room = malloc(n ? n : 1);
	return s->room ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for a batch of inputs.");
}

void jm_batch_feed_close(struct jm_batch_feed *s)
{
	jm_corpus_close(&s->corpus);
	free(s->room);
	s->room = NULL;
}

/* ---- text ---------------------------------------------------------------------------------------------- */

/* Of the text from place `at` on. */
static int check_tokens(const struct jm_batch_feed *s, const int32_t *token, int64_t n, int64_t at,
	struct jm_err *err)
{
	for (int64_t i = 0; i < n; i++)
		if (token[i] < 0 || token[i] >= s->kinds)
			return jm_err_set(err, JM_ERANGE,
				"The text has token %lld at place %lld, and the model knows tokens "
				"0 to %lld only; give a larger --vocab or another --text.",
				(long long)token[i], (long long)(at + i), (long long)s->kinds - 1);
	return 0;
}

/* The windows of text of this micro-step, `shift` tokens further, into the input. */
static int feed_text(struct jm_batch_feed *s, struct jm_tensor *to, int64_t number, int64_t shift,
	struct jm_err *err)
{
	int64_t batch = to->dim[0], seq = to->dim[1];
	uint64_t starts = (uint64_t)(s->corpus.tokens - seq);
	int32_t *room = s->room;
	int code = 0;

	for (int64_t b = 0; b < batch && !code; b++) {
		uint64_t sample = (uint64_t)(number * batch + b);
		int64_t at = (int64_t)(jm_rng(s->seed, sample) % starts) + shift;

		jm_corpus_read(&s->corpus, at, seq, room + b * seq);
		code = check_tokens(s, room + b * seq, seq, at, err);
	}
	return code ? code : jm_program_write(s->program, to, room, err);
}

/* ---- images -------------------------------------------------------------------------------------------- */

static void fill_image(const struct jm_tensor *t, void *room, int64_t at, int64_t n, uint64_t seed)
{
	float pair[2] = {0, 0};

	for (int64_t i = 0; i < n; i++) {
		if (!(i & 1))
			jm_rng_normal_pair(seed, (uint64_t)i / 2, pair);
		jm_element_set(t->type, room, at + i, (double)pair[i & 1]);
	}
}

static int feed_images(struct jm_batch_feed *s, int64_t number, struct jm_err *err)
{
	const struct jm_tensor *t = s->image;
	int64_t batch = t->dim[0], n = jm_tensor_count(t) / batch;
	int32_t *class = s->room;
	int code;

	for (int64_t b = 0; b < batch; b++)
		fill_image(t, s->room, b * n, n, jm_rng(s->seed, (uint64_t)(number * batch + b)));
	code = jm_program_write(s->program, s->image, s->room, err);
	for (int64_t b = 0; b < batch; b++)
		class[b] = (int32_t)(jm_rng(~s->seed, (uint64_t)(number * batch + b)) %
				     (uint64_t)s->kinds);
	return code ? code : jm_program_write(s->program, s->target, class, err);
}

int jm_batch_feed_write(struct jm_batch_feed *s, int64_t number, struct jm_err *err)
{
	int32_t now = (int32_t)number;
	int code = 0;

	if (s->ids)
		code = feed_text(s, s->ids, number, 0, err);
	if (!code && s->ids)
		code = feed_text(s, s->target, number, 1, err);
	if (s->image && (s->fresh || !s->is_fed))
		code = feed_images(s, s->fresh ? number : 0, err);
	s->is_fed = s->is_fed || !code;
	if (!code && s->random)
		code = jm_program_write(s->program, s->random, &now, err);
	return code;
}
