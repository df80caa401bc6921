/* SPDX-License-Identifier: Apache-2.0 */
/* Losses and norms; they arrive one step late if the device is asynchronous. */
#include "train_results.h"

#include "engine/graph/tensor.h"

#define PLACE 8 /* bytes, of the widest type of a scalar */

int jm_results_open(struct jm_results *r, struct jm_program *p, struct jm_err *err)
{
	const struct jm_tensor *loss = jm_graph_find(p->graph, "loss");
	int code = 0;

	*r = (struct jm_results){.program = p,
		.loss = loss && loss->data ? loss : NULL, /* of another stage */
		.norm = jm_graph_find(p->graph, "grad.norm"),
		.n_losses = jm_program_micro_steps(p)};
	for (int i = 0; i < JM_STEPS_UNDER_WAY && !code; i++) {
		struct jm_result_slot *slot = &r->slot[i];

		slot->host = jm_device_pinned_alloc(p->device, PLACE * (size_t)(r->n_losses + 2));
		code = slot->host
			       ? jm_event_new(p->device, &slot->done, err)
			       : jm_err_set(err, JM_ENOMEM, "Out of memory for results of steps.");
	}
	if (code)
		jm_results_close(r);
	return code;
}

void jm_results_close(struct jm_results *r)
{
	for (int i = 0; i < JM_STEPS_UNDER_WAY && r->program; i++) {
		jm_event_drop(&r->slot[i].done);
		jm_device_pinned_release(r->program->device, r->slot[i].host);
	}
	*r = (struct jm_results){0};
}

int jm_results_again(const struct jm_results *r)
{
	bool all = r->program->stage.pipe.stages || r->n_losses < JM_MICRO_AGAIN;

	return all ? r->n_losses : JM_MICRO_AGAIN;
}

static struct jm_result_slot *slot_of(struct jm_results *r, int i)
{
	return &r->slot[(r->first + i) % JM_STEPS_UNDER_WAY];
}

static uint64_t *stamp_of(const struct jm_results *r, const struct jm_result_slot *slot)
{
	return (uint64_t *)(void *)(slot->host + PLACE * (size_t)(r->n_losses + 1));
}

/* Into place i of the slot of the step that is being queued. */
static int fetch(struct jm_results *r, const struct jm_tensor *t, int i, struct jm_err *err)
{
	return jm_device_copy(r->program->device, JM_QUEUE_COMPUTE,
		slot_of(r, r->n)->host + PLACE * (size_t)i, t->data, t->bytes, JM_TO_HOST, err);
}

int jm_results_loss(struct jm_results *r, int i, struct jm_err *err)
{
	return fetch(r, r->loss, i, err);
}

int jm_results_end(struct jm_results *r, long step, double scale, struct jm_err *err)
{
	struct jm_result_slot *slot = slot_of(r, r->n);
	int code = fetch(r, r->norm, r->n_losses, err);

	if (!code && jm_device_has_clock(r->program->device))
		code = jm_device_stamp(r->program->device, stamp_of(r, slot), err);
	if (!code)
		code = jm_event_record(&slot->done, JM_QUEUE_COMPUTE, err);
	slot->result = (struct jm_result){.step = step, .scale = scale};
	r->n += !code;
	return code;
}

static double place(const struct jm_result_slot *slot, const struct jm_tensor *t, int i)
{
	return jm_element_get(t->type, slot->host + PLACE * (size_t)i, 0);
}

/* The mean over the first n micro-steps. */
static double mean_loss(const struct jm_results *r, const struct jm_result_slot *slot, int n)
{
	double sum = 0;

	for (int i = 0; i < n && r->loss; i++)
		sum += place(slot, r->loss, i);
	return sum / n;
}

int jm_results_take(struct jm_results *r, bool wait, struct jm_result *ret, struct jm_err *err)
{
	struct jm_result_slot *slot = slot_of(r, 0);
	int code;

	if (!r->n)
		return 0;
	code = wait ? jm_event_wait(&slot->done, err) : jm_event_query(&slot->done, err);
	if (code < 0 || (!wait && !code))
		return code;
	*ret = slot->result;
	ret->loss = mean_loss(r, slot, r->n_losses);
	ret->loss_begin = mean_loss(r, slot, jm_results_again(r));
	ret->norm = place(slot, r->norm, r->n_losses);
	ret->host_ns = jm_event_host_ns(&slot->done);
	if (jm_device_has_clock(r->program->device))
		ret->device_ns = (int64_t)*stamp_of(r, slot);
	r->first = (r->first + 1) % JM_STEPS_UNDER_WAY;
	r->n--;
	return 1;
}
