/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the sums over ranks: asynchronously on the third queue of the device, or synchronously in
 * host memory. */
#include "reduce.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"

#define SLOTS 3 /* steps; all events of older steps are reached */

/* Events on the compute queue before and after the wait of a step. */
struct gap {
	struct jm_event before, behind;
	bool open; /* recorded, but not read yet */
};

struct jm_reduction {
	const struct jm_comm *comm;
	void *stream; /* of the third queue; NULL = sums are made in host memory */
	struct jm_event ready, done;
	struct gap gap[SLOTS];
	int now;	/* the gap of the next step */
	double seconds; /* of the steps read so far */
	long steps;
};

const char *jm_reduce_transport(const struct jm_device *d)
{
	if (!d->backend->stream)
		return "local";
	return "nccl";
}

static int make_events(struct jm_reduction *r, const struct jm_device *d, struct jm_err *err)
{
	int code = jm_event_new(d, &r->ready, err);

	if (!code)
		code = jm_event_new(d, &r->done, err);
	for (int i = 0; i < SLOTS && !code; i++) {
		code = jm_event_new(d, &r->gap[i].before, err);
		if (!code)
			code = jm_event_new(d, &r->gap[i].behind, err);
	}
	return code;
}

int jm_reduce_open(struct jm_program *p, const struct jm_comm *comm, struct jm_err *err)
{
	const struct jm_device *d = p->device;
	int code;

	p->reduction = calloc(1, sizeof(*p->reduction));
	if (!p->reduction)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for sums over ranks.");
	p->reduction->comm = comm;
	code = make_events(p->reduction, d, err);
	if (!code && !comm->transport->host_memory)
		code = d->backend->stream(d->dev, JM_QUEUE_COMM, &p->reduction->stream, err);
	if (code)
		jm_reduce_close(p);
	return code;
}

void jm_reduce_close(struct jm_program *p)
{
	struct jm_reduction *r = p->reduction;

	if (!r)
		return;
	jm_event_drop(&r->ready);
	jm_event_drop(&r->done);
	for (int i = 0; i < SLOTS; i++) {
		jm_event_drop(&r->gap[i].before);
		jm_event_drop(&r->gap[i].behind);
	}
	free(r);
	p->reduction = NULL;
}

/* ---- a step ---------------------------------------------------------------------------------------------- */

static int read_gap(struct jm_reduction *r, struct gap *gap, struct jm_err *err)
{
	double seconds;
	int code;

	if (!gap->open)
		return 0;
	gap->open = false;
	code = jm_event_seconds(&gap->before, &gap->behind, &seconds, err);
	if (code)
		return code;
	r->seconds += seconds;
	r->steps++;
	return 0;
}

/* Sums in host memory, in this call, so it first waits for the device to finish the gradients. */
static int start_on_host(struct jm_reduction *r, const struct jm_transfer *t, struct jm_err *err)
{
	int code = jm_event_record(&r->ready, JM_QUEUE_COMPUTE, err);
	int64_t from;

	if (!code)
		code = jm_event_wait(&r->ready, err);
	from = jm_clock_now(jm_clock_real());
	if (!code)
		code = jm_comm_run(r->comm, t, err);
	r->seconds += 1e-9 * (double)(jm_clock_now(jm_clock_real()) - from);
	return code;
}

static int start_on_device(struct jm_reduction *r, struct jm_transfer *t, struct jm_err *err)
{
	int code = jm_event_record(&r->ready, JM_QUEUE_COMPUTE, err);

	if (!code)
		code = jm_event_follow(&r->ready, JM_QUEUE_COMM, err);
	t->stream = r->stream;
	return code ? code : r->comm->transport->start(r->comm->state, t, err);
}

static int start(struct jm_program *p, const struct jm_tensor *t, struct jm_err *err)
{
	struct jm_reduction *r = p->reduction;
	bool wide = t->type == JM_F64;
	struct jm_transfer sum = {.kind = JM_ALL_REDUCE,
		.type = wide ? JM_COMM_F64 : JM_COMM_F32,
		.from = t->data,
		.to = t->data,
		.count = t->bytes / (wide ? sizeof(double) : sizeof(float))};

	if (r->comm->transport->host_memory)
		return start_on_host(r, &sum, err);
	return start_on_device(r, &sum, err);
}

/* Makes the compute queue wait for the third queue, between two events that measure the wait. */
static int wait_on_device(struct jm_reduction *r, struct gap *gap, struct jm_err *err)
{
	int code = jm_event_record(&gap->before, JM_QUEUE_COMPUTE, err);

	if (!code)
		code = jm_event_record(&r->done, JM_QUEUE_COMM, err);
	if (!code)
		code = jm_event_follow(&r->done, JM_QUEUE_COMPUTE, err);
	if (!code)
		code = jm_event_record(&gap->behind, JM_QUEUE_COMPUTE, err);
	gap->open = !code;
	return code;
}

static int wait_for_sums(struct jm_reduction *r, struct jm_err *err)
{
	struct gap *gap = &r->gap[r->now];
	int code;

	if (r->comm->transport->host_memory) {
		r->steps++;
		return 0;
	}
	code = read_gap(r, gap, err);
	r->now = (r->now + 1) % SLOTS;
	return code ? code : wait_on_device(r, gap, err);
}

int jm_reduce_run(struct jm_program *p, const struct jm_unit *u, struct jm_err *err)
{
	if (!p->reduction)
		return jm_err_set(
			err, JM_EBUG, "A program of several ranks runs without a communicator.");
	if (!jm_reduce_is_start(u))
		return wait_for_sums(p->reduction, err);
	/* gradients of several micro-steps are summed before the sum over ranks */
	if (p->micro_now < jm_program_micro_steps(p))
		return 0;
	return start(p, u->group.node[0]->out[0], err);
}

int jm_program_run_unit(struct jm_program *p, int unit, struct jm_err *err)
{
	if (jm_reduce_is_node(p->unit[unit]))
		return jm_reduce_run(p, p->unit[unit], err);
	return jm_device_run(p->device, p->unit[unit]->exec, err);
}

/* ---- cost ------------------------------------------------------------------------------------ */

struct jm_reduce_cost jm_reduce_cost(struct jm_program *p)
{
	struct jm_reduction *r = p->reduction;
	struct jm_reduce_cost cost = {.exposed = NAN};

	for (int i = 0; i < p->n_units; i++)
		if (jm_reduce_is_start(p->unit[i])) {
			cost.buckets++;
			cost.bytes += (double)p->unit[i]->group.node[0]->out[0]->bytes;
		}
	if (!r || jm_device_sync(p->device, NULL))
		return cost;
	for (int i = 0; i < SLOTS; i++)
		read_gap(r, &r->gap[i], NULL);
	if (r->steps)
		cost.exposed = r->seconds / (double)r->steps;
	return cost;
}

void jm_reduce_reset(struct jm_program *p)
{
	struct jm_reduction *r = p->reduction;

	if (!r)
		return;
	for (int i = 0; i < SLOTS; i++)
		r->gap[i].open = false;
	r->seconds = 0;
	r->steps = 0;
}
