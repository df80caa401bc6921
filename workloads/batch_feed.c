/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs: all values are functions of the seed and the number of the sample. */
#include "batch_feed.h"

#include <stdlib.h>

#include "engine/rng.h"
#include "engine/tensor.h"

int jm_batch_feed_open(struct jm_batch_feed *s, struct jm_program *program, struct jm_err *err)
{
	s->program = program;
	s->ids = jm_graph_find(program->graph, "ids");
	s->image = jm_graph_find(program->graph, "image");
	s->target = jm_graph_find(program->graph, "target");
	s->random = jm_graph_find(program->graph, "random.now");
	/* images that stay are sent once, by themselves */
	return jm_staging_open(&s->staging, program,
		(struct jm_tensor *const[]){s->ids, s->image && s->fresh ? s->image : NULL,
			s->image && !s->fresh ? NULL : s->target, s->random},
		4, err);
}

void jm_batch_feed_close(struct jm_batch_feed *s)
{
	jm_corpus_close(&s->corpus);
	jm_staging_close(&s->staging);
}

/* ---- text ---------------------------------------------------------------------------------------------- */

/* Of the text from place `at` on. */
static int check_tokens(const struct jm_batch_feed *s, const int32_t *token, int64_t n, int64_t at,
	struct jm_err *err)
{
	for (int64_t i = 0; i < n; i++)
		if (token[i] < 0 || token[i] >= s->kinds)
			return jm_err_set(err, JM_ERANGE,
				"The text has token %lld at position %lld, but the vocabulary of "
				"the model has tokens 0 to %lld only; give a larger --vocab or "
				"another --text.",
				(long long)token[i], (long long)(at + i), (long long)s->kinds - 1);
	return 0;
}

/* The windows of text of this micro-step, `shift` tokens further. */
static int make_text(const struct jm_batch_feed *s, const struct jm_tensor *to, int64_t number,
	int64_t shift, struct jm_err *err)
{
	int64_t batch = to->dim[0], seq = to->dim[1];
	uint64_t starts = (uint64_t)((s->tokens ? s->tokens : s->corpus.tokens) - seq);
	int32_t *room = jm_staging_room(&s->staging, to);
	int code = 0;

	for (int64_t b = 0; b < batch && !code; b++) {
		uint64_t sample = (uint64_t)(number * batch + b);
		int64_t at = s->from + (int64_t)(jm_rng(s->seed, sample) % starts) + shift;

		jm_corpus_read(&s->corpus, at, seq, room + b * seq);
		code = check_tokens(s, room + b * seq, seq, at, err);
	}
	return code;
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

static void make_images(
	const struct jm_batch_feed *s, int64_t number, void *ret_image, int32_t *ret_class)
{
	const struct jm_tensor *t = s->image;
	int64_t batch = t->dim[0], n = jm_tensor_count(t) / batch;

	for (int64_t b = 0; b < batch; b++) {
		uint64_t sample = (uint64_t)(number * batch + b);

		fill_image(t, ret_image, b * n, n, jm_rng(s->seed, sample));
		ret_class[b] = (int32_t)(jm_rng(~s->seed, sample) % (uint64_t)s->kinds);
	}
}

/* The images that stay. */
static int write_images(struct jm_batch_feed *s, struct jm_err *err)
{
	void *image = malloc(s->image->bytes), *class = malloc(s->target->bytes);
	int code;

	if (image && class) {
		make_images(s, 0, image, class);
		code = jm_program_write(s->program, s->image, image, err);
		if (!code)
			code = jm_program_write(s->program, s->target, class, err);
	} else {
		code = jm_err_set(err, JM_ENOMEM, "Out of memory for a batch of images.");
	}
	free(image);
	free(class);
	s->is_fed = !code;
	return code;
}

/* ---- both ---------------------------------------------------------------------------------------------- */

static int make(struct jm_batch_feed *s, int64_t number, struct jm_err *err)
{
	const struct jm_staging *room = &s->staging;
	int code = 0;

	if (s->ids)
		code = make_text(s, s->ids, number, 0, err);
	if (s->ids && !code)
		code = make_text(s, s->target, number, 1, err);
	if (s->image && s->fresh)
		make_images(s, number, jm_staging_room(room, s->image),
			jm_staging_room(room, s->target));
	if (s->random)
		*(int32_t *)jm_staging_room(room, s->random) = (int32_t)number;
	return code;
}

int jm_batch_feed_write(struct jm_batch_feed *s, int64_t number, struct jm_err *err)
{
	int code = s->image && !s->fresh && !s->is_fed ? write_images(s, err) : 0;

	if (!code)
		code = jm_staging_begin(&s->staging, err);
	if (!code)
		code = make(s, number, err);
	return code ? code : jm_staging_end(&s->staging, err);
}
