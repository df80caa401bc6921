/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation during training. */
#include "train_eval.h"

#include <math.h>

#include "engine/graph/tensor.h"

#define PLACE 8 /* bytes, of the widest type of a scalar */

int jm_evaluation_plan(struct jm_evaluation *e, const struct jm_training *t,
	const struct jm_program *training, struct jm_err *err)
{
	int code = jm_model_evaluate(t, &e->graph, err);

	if (!code)
		code = jm_program_plan_beside(e->graph, training, &e->program, err);
	return code;
}

void jm_evaluation_drop(struct jm_evaluation *e)
{
	jm_program_free(e->program);
	jm_graph_free(e->graph);
	e->program = NULL;
	e->graph = NULL;
}

size_t jm_evaluation_peak(const struct jm_evaluation *e, const struct jm_program *training,
	const struct jm_batch_feed *feed)
{
	size_t staged = jm_batch_feed_bytes(feed, training);

	if (!e->program)
		return training->peak_bytes + staged;
	return jm_program_peak_beside(training, e->program) + staged +
	       jm_batch_feed_bytes(&e->feed, e->program);
}

int jm_evaluation_build(struct jm_evaluation *e, struct jm_err *err)
{
	const struct jm_device *d = e->program->device;
	int code = jm_program_build(e->program, err);

	e->loss = jm_graph_find(e->graph, "loss");
	e->top1 = jm_graph_find(e->graph, "top1");
	if (!code)
		code = jm_event_new(d, &e->began, err);
	if (!code)
		code = jm_event_new(d, &e->done, err);
	if (code)
		return code;
	e->host = jm_device_pinned_alloc(d, 2 * PLACE * (size_t)e->batches);
	if (!e->host)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for results of evaluations.");
	return jm_batch_feed_open(&e->feed, e->program, err);
}

void jm_evaluation_close(struct jm_evaluation *e)
{
	if (e->program) {
		jm_batch_feed_close(&e->feed);
		jm_event_drop(&e->began);
		jm_event_drop(&e->done);
		jm_device_pinned_release(e->program->device, e->host);
	}
	jm_evaluation_drop(e);
	*e = (struct jm_evaluation){0};
}

/* Result k (0 or 1) of batch i. */
static char *place(const struct jm_evaluation *e, int i, int k)
{
	return e->host + PLACE * (2 * (size_t)i + (size_t)k);
}

static int queue_batch(struct jm_evaluation *e, int i, struct jm_err *err)
{
	const struct jm_tensor *result[] = {e->loss, e->top1};
	int code = jm_batch_feed_write(&e->feed, i, err);

	if (!code)
		code = jm_program_micro(e->program, err);
	for (int k = 0; k < 2 && !code; k++)
		if (result[k] && result[k]->data) /* else another stage has it */
			code = jm_device_copy(e->program->device, JM_QUEUE_COMPUTE, place(e, i, k),
				result[k]->data, result[k]->bytes, JM_TO_HOST, err);
	return code;
}

static double mean(const struct jm_evaluation *e, const struct jm_tensor *t, int k)
{
	double sum = 0;

	for (int i = 0; i < e->batches && t && t->data; i++)
		sum += jm_element_get(t->type, place(e, i, k), 0);
	return t && t->data ? sum / e->batches : (double)NAN;
}

/*
 * Over all pictures, each once: the places that others fill (jm_loader_way.batches) hold the
 * picture of the last batch, whose means are its loss and answer.
 */
static void count_pictures(struct jm_evaluation *e, int64_t fillers, struct jm_evaluated *ret)
{
	int64_t batch = e->feed.input[0].t->dim[0], n = e->batches - 1, all = n * batch;
	double one[2] = {jm_element_get(e->loss->type, place(e, (int)n, 0), 0),
		jm_element_get(e->top1->type, place(e, (int)n, 1), 0)};
	double extra = (double)(fillers - batch); /* without the last batch */
	double sum[2] = {ret->loss * e->batches - one[0], ret->top1 * e->batches - one[1]};

	ret->total = all - (fillers - batch);
	ret->right = llround(sum[1] * (double)batch - extra * one[1]);
	ret->top1 = (double)ret->right / (double)ret->total;
	ret->loss = (sum[0] * (double)batch - extra * one[0]) / (double)ret->total;
}

static int64_t fillers(const struct jm_evaluation *e)
{
	return e->feed.pictures ? jm_picture_loader_cost(e->feed.pictures).fillers : 0;
}

int jm_evaluation_run(struct jm_evaluation *e, struct jm_evaluated *ret, struct jm_err *err)
{
	int code = jm_event_record(&e->began, JM_QUEUE_COMPUTE, err);
	int64_t before = fillers(e);

	for (int i = 0; i < e->batches && !code; i++)
		code = queue_batch(e, i, err);
	if (!code)
		code = jm_event_record(&e->done, JM_QUEUE_COMPUTE, err);
	if (!code)
		code = jm_device_sync(e->program->device, err);
	if (!code)
		code = jm_event_seconds(&e->began, &e->done, &ret->seconds, err);
	if (code)
		return code;
	ret->loss = mean(e, e->loss, 0);
	ret->top1 = mean(e, e->top1, 1);
	ret->right = ret->total = 0;
	if (e->feed.pictures && e->top1)
		count_pictures(e, fillers(e) - before, ret);
	return 0;
}
