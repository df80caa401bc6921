/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/files/output.h"
#include "engine/run/reduce.h"
#include "engine/run/start_values.h"
#include "workloads/parts/weights_save.h"

static struct jm_network network_of(const struct train *s)
{
	return (struct jm_network){s->training.model, s->training.dims};
}

int jm_train_weights_open(struct train *s, struct jm_err *err)
{
	const char *from = jm_values_text(s->work->options, "from");
	int code = from ? jm_safetensors_open(from, &s->weights.from, err) : 0;

	s->weights.save = jm_values_text(s->work->options, "save");
	if (!code && s->weights.save && !s->work->rank)
		code = jm_output_try(s->weights.save, err);
	return code;
}

static void add_note(struct jm_work *work, const char *text)
{
	size_t n = strlen(work->note);

	if (*text)
		snprintf(work->note + n, sizeof(work->note) - n, "%s%s", n ? " " : "", text);
}

/* The log and the record say what the run begins with. */
static void tell_start(const struct train *s)
{
	const struct jm_train_weights *w = &s->weights;

	jm_log(s->work->ctx, JM_INFO, "Start values from %s: %s.", w->from.path, w->found.what);
	add_note(s->work, w->found.anew);
	if (s->work->more)
		json_object_set_new(s->work->more, "weights",
			json_pack("{s:s, s:b}", "from", w->from.path, "new_top",
				*w->found.anew != '\0'));
}

int jm_train_weights_start(struct train *s, struct jm_err *err)
{
	struct jm_train_weights *w = &s->weights;
	int code = jm_program_init(s->program, s->work->seed, err);

	if (code || !w->from.path)
		return code;
	code = jm_weights_load(s->program, network_of(s), &w->from, &w->found, err);
	if (!code)
		tell_start(s);
	return code;
}

/* Each micro-step of a training is a batch for the running statistics. */
static int64_t batches(const struct train *s)
{
	return s->weights.found.batches + (int64_t)s->begun * jm_program_micro_steps(s->program);
}

int jm_train_weights_finish(struct train *s, struct jm_err *err)
{
	struct jm_train_weights *w = &s->weights;
	const struct jm_weights_source source = {
		.batches = batches(s), .from = w->from.path ? &w->from : NULL, .found = &w->found};
	int code = 0;

	if (!w->save)
		return 0;
	if (s->graph->shard)
		code = jm_reduce_gather(s->program, err);
	if (code || s->work->rank)
		return code; /* one rank writes for all: their parameters are the same */
	code = jm_weights_save(s->program, network_of(s), &source, w->save, err);
	if (!code)
		jm_log(s->work->ctx, JM_INFO, "The weights after step %ld are in %s.", s->begun,
			w->save);
	return code;
}

void jm_train_weights_close(struct jm_train_weights *w)
{
	jm_safetensors_close(&w->from);
}
