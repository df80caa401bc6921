/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the transfers between ranks: asynchronously on the third queue of the device, or
 * synchronously in host memory. */
#include "reduce.h"
#include "base/clock.h"
#include "engine/graph/op.h"
#include "engine/plan/bucket.h"
#include "waits.h"

#include <math.h>
#include <stdlib.h>

struct jm_reduction {
	const struct jm_comm *comm; /* NULL = no other rank has the same part of the model */
	struct jm_ranks ranks;
	void *compute; /* the compute queue for ranks of one model; NULL = host memory is used */
	void *stream;  /* of the third queue; NULL = sums are made in host memory */
	struct jm_event ready, done;
	struct jm_event shared;	   /* the newest exchange of `tp` in the third queue has ended */
	struct jm_event *gathered; /* [segments] of a sharded update: its parameters are gathered */
	bool *open; /* [segments] gathered, and computation has not waited for it yet */
	int n_segments;
	struct jm_account account[JM_ACCOUNT_KINDS_N];
	/* with the first wait of each step: for gradients, and for ranks that share a model */
	struct jm_waits *clock, *tp_clock;
	struct jm_waits *steps; /* one of these, or of stages: counts the steps of all waits */
	int first_shared;	/* the unit that waits first for these in a step; -1 = none */
};

const char *jm_reduce_transport(const struct jm_device *d)
{
	if (!d->backend->stream)
		return "local";
	return "nccl";
}

static bool make_room(struct jm_reduction *r, const struct jm_shard *shard)
{
	r->n_segments = shard ? shard->n : 0;
	r->gathered = calloc((size_t)r->n_segments + 1, sizeof(*r->gathered));
	r->open = calloc((size_t)r->n_segments + 1, sizeof(*r->open));
	return r->gathered && r->open;
}

/* The exchange of ranks that share a model which this unit makes, or waits for; NULL = none. */
static const struct jm_node *exchange_of(const struct jm_unit *u)
{
	const struct jm_node *n = u->awaited ? u->awaited : u->group.node[0];

	return jm_reduce_is_shared(n) && n->op != JM_OP_OWN_ROWS ? n : NULL;
}

static enum jm_account_kind account_of(const struct jm_node *exchange)
{
	return exchange->op == JM_OP_SUM_RANKS	? JM_ACCOUNT_TP_SUM
	       : exchange->op == JM_OP_SUM_ROWS ? JM_ACCOUNT_TP_SCATTER
						: JM_ACCOUNT_TP_GATHER;
}

static void count_exchange(struct jm_reduction *r, const struct jm_unit *u, int times,
	struct jm_account_counts *counts)
{
	bool on_device = !r->ranks.tp->transport->host_memory;

	counts->beside += on_device && u->wait ? times : 0;
	counts->waited += on_device && u->awaited ? times : 0;
	counts->alone += on_device && !u->wait && !u->awaited ? times : 0;
	if (r->first_shared < 0 && !(on_device && u->wait) && !(!on_device && u->awaited))
		r->first_shared = u->position;
}

/* What a step has of each kind at most: it waits for its gradients and, with a sharded update, for
 * norms and each segment; and for each exchange of ranks that share a model. */
static void count_transfers(struct jm_program *p, struct jm_account_counts *counts)
{
	struct jm_reduction *r = p->reduction;

	r->first_shared = -1;
	for (int i = 0; i < p->n_units; i++) {
		const struct jm_unit *u = p->unit[i];
		int times = jm_program_times(p, i);

		if (r->ranks.tp && exchange_of(u) && times > 0)
			count_exchange(r, u, times, &counts[account_of(exchange_of(u))]);
		counts[JM_ACCOUNT_SUM].beside += jm_reduce_is_start(u);
		counts[JM_ACCOUNT_GATHER].beside += jm_reduce_is_gather(u);
	}
	counts[JM_ACCOUNT_SUM].waited = 1;
	counts[JM_ACCOUNT_GATHER].waited = r->n_segments + 1;
}

static bool in_host_memory(const struct jm_comm *comm)
{
	return comm && comm->transport->host_memory;
}

void jm_reduce_count_by(struct jm_program *p, struct jm_waits *clock)
{
	struct jm_reduction *r = p->reduction;

	r->steps = clock;
	for (int i = 0; i < JM_ACCOUNT_KINDS_N; i++)
		jm_account_count_by(&r->account[i], clock);
}

static void choose_clocks(struct jm_program *p)
{
	struct jm_reduction *r = p->reduction;
	const struct jm_unit *u = r->first_shared < 0 ? NULL : p->unit[r->first_shared];
	struct jm_account *a = &r->account[JM_ACCOUNT_SUM];

	r->clock = in_host_memory(r->comm) ? a->alone : a->waited;
	a = &r->account[u ? account_of(exchange_of(u)) : JM_ACCOUNT_TP_SUM];
	r->tp_clock = u && u->awaited && !in_host_memory(r->ranks.tp) ? a->waited : a->alone;
	jm_reduce_count_by(p, r->comm ? r->clock : r->tp_clock);
}

static int make_accounts(struct jm_program *p, struct jm_err *err)
{
	struct jm_account_counts counts[JM_ACCOUNT_KINDS_N] = {0};
	int code = 0;

	count_transfers(p, counts);
	for (int i = 0; i < JM_ACCOUNT_KINDS_N && p->reduction->ranks.account && !code; i++)
		code = jm_account_new(p->device, &counts[i], &p->reduction->account[i], err);
	if (!code)
		choose_clocks(p);
	return code;
}

static int make_events(struct jm_reduction *r, const struct jm_device *d, struct jm_err *err)
{
	int code = jm_event_new(d, &r->ready, err);

	if (!code)
		code = jm_event_new(d, &r->done, err);
	if (!code)
		code = jm_event_new(d, &r->shared, err);
	for (int i = 0; i < r->n_segments && !code; i++)
		code = jm_event_new(d, &r->gathered[i], err);
	return code;
}

static int find_stream(const struct jm_device *d, const struct jm_comm *comm, enum jm_queue queue,
	void **ret, struct jm_err *err)
{
	if (!comm || comm->transport->host_memory)
		return 0;
	return d->backend->stream(d->dev, queue, ret, err);
}

int jm_reduce_open(struct jm_program *p, const struct jm_ranks *ranks, struct jm_err *err)
{
	const struct jm_device *d = p->device;
	const struct jm_comm *comm = ranks->models;
	int code;

	p->reduction = calloc(1, sizeof(*p->reduction));
	if (!p->reduction)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for sums over ranks.");
	p->reduction->comm = comm;
	p->reduction->ranks = *ranks;
	if (make_room(p->reduction, p->graph->shard))
		code = make_accounts(p, err);
	else
		code = jm_err_set(err, JM_ENOMEM, "Out of memory for sums over ranks.");
	if (!code)
		code = make_events(p->reduction, d, err);
	if (!code)
		code = find_stream(
			d, comm ? comm : ranks->tp, JM_QUEUE_COMM, &p->reduction->stream, err);
	if (!code)
		code = find_stream(d, ranks->all, JM_QUEUE_COMPUTE, &p->reduction->compute, err);
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
	jm_event_drop(&r->shared);
	for (int i = 0; r->gathered && i < r->n_segments; i++)
		jm_event_drop(&r->gathered[i]);
	for (int i = 0; i < JM_ACCOUNT_KINDS_N; i++)
		jm_account_free(&r->account[i]);
	free(r->gathered);
	free(r->open);
	free(r);
	p->reduction = NULL;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Waits until the device has made what is sent. */
static int wait_for_device(struct jm_reduction *r, struct jm_err *err)
{
	int code = jm_event_record(&r->ready, JM_QUEUE_COMPUTE, err);

	return code ? code : jm_event_wait(&r->ready, err);
}

/* Transfers in host memory, in this call. */
static int run_on_host(struct jm_reduction *r, const struct jm_comm *comm,
	const struct jm_transfer *t, enum jm_account_kind kind, struct jm_err *err)
{
	int code = wait_for_device(r, err);
	int64_t from = jm_clock_now(jm_clock_real());

	if (!code)
		code = jm_comm_run(comm, t, err);
	jm_waits_add(r->account[kind].alone, 1e-9 * (double)(jm_clock_now(jm_clock_real()) - from));
	return code;
}

static int follow_compute(struct jm_reduction *r, struct jm_err *err)
{
	int code = jm_event_record(&r->ready, JM_QUEUE_COMPUTE, err);

	return code ? code : jm_event_follow(&r->ready, JM_QUEUE_COMM, err);
}

/* Behind what the compute queue has now; computation goes on beside it. */
static int start_beside(struct jm_reduction *r, const struct jm_comm *comm, struct jm_transfer *t,
	enum jm_account_kind kind, struct jm_err *err)
{
	struct jm_waits *busy = r->account[kind].beside;
	int code = follow_compute(r, err);

	if (!code)
		code = jm_waits_begin(busy, false, err);
	t->stream = r->stream;
	if (!code)
		code = comm->transport->start(comm->state, t, err);
	return code ? code : jm_waits_end(busy, err);
}

static int start(
	struct jm_program *p, struct jm_transfer *t, enum jm_account_kind kind, struct jm_err *err)
{
	struct jm_reduction *r = p->reduction;

	if (r->comm->transport->host_memory)
		return run_on_host(r, r->comm, t, kind, err);
	return start_beside(r, r->comm, t, kind, err);
}

static const enum jm_comm_type comm_types[JM_DTYPE_COUNT] = {[JM_F32] = JM_COMM_F32,
	[JM_BF16] = JM_COMM_BF16,
	[JM_F16] = JM_COMM_F16,
	[JM_F64] = JM_COMM_F64};

static int start_sum(struct jm_program *p, const struct jm_node *n, struct jm_err *err)
{
	const struct jm_tensor *to = n->out[0];
	enum jm_comm_type type = comm_types[to->type];
	bool scatter = n->op == JM_OP_REDUCE_SCATTER_START;
	struct jm_transfer sum = {.kind = scatter ? JM_REDUCE_SCATTER : JM_ALL_REDUCE,
		.type = type,
		.rounds = p->graph->rounds_sums,
		.from = n->in[0]->data,
		.to = to->data,
		.count = to->bytes / jm_comm_type_bytes(type)};

	return start(p, &sum, JM_ACCOUNT_SUM, err);
}

static int start_gather(struct jm_program *p, const struct jm_tensor *from,
	const struct jm_tensor *to, struct jm_err *err)
{
	bool rounds = p->graph->rounds_sums && to->class == JM_CLASS_GRAD;
	enum jm_comm_type type = rounds ? JM_COMM_F32 : JM_COMM_BYTE;
	struct jm_transfer gather = {.kind = JM_ALL_GATHER,
		.type = type,
		.rounds = rounds,
		.from = from->data,
		.to = to->data,
		.count = from->bytes / jm_comm_type_bytes(type)};

	return start(p, &gather, JM_ACCOUNT_GATHER, err);
}

/* The segment of a sharded update with these parameters; -1 = none. */
static int segment_of(const struct jm_program *p, const struct jm_tensor *whole)
{
	const struct jm_shard *s = p->graph->shard;

	for (int i = 0; s && i < s->n; i++)
		if (s->segment[i].whole == whole)
			return i;
	return -1;
}

/* Gathers shares, and marks the end if they are those of a segment. */
static int run_gather(struct jm_program *p, const struct jm_node *n, struct jm_err *err)
{
	struct jm_reduction *r = p->reduction;
	int segment = segment_of(p, n->out[0]), code = start_gather(p, n->in[0], n->out[0], err);

	if (code || segment < 0 || r->comm->transport->host_memory)
		return code;
	r->open[segment] = true;
	return jm_event_record(&r->gathered[segment], JM_QUEUE_COMM, err);
}

/* Makes the compute queue wait for the event. first: it is the first wait of its step. */
static int wait_on_device(
	struct jm_waits *w, const struct jm_event *e, bool first, struct jm_err *err)
{
	int code = jm_waits_begin(w, first, err);

	if (!code)
		code = jm_event_follow(e, JM_QUEUE_COMPUTE, err);
	return code ? code : jm_waits_end(w, err);
}

/* Waits for all transfers that were started: of gradients, or of their norms. */
static int wait_for_all(struct jm_reduction *r, bool first, struct jm_err *err)
{
	enum jm_account_kind kind = first ? JM_ACCOUNT_SUM : JM_ACCOUNT_GATHER;
	int code = jm_event_record(&r->done, JM_QUEUE_COMM, err);

	return code ? code : wait_on_device(r->account[kind].waited, &r->done, first, err);
}

static int wait_for_transfers(struct jm_program *p, const struct jm_tensor *t, struct jm_err *err)
{
	struct jm_reduction *r = p->reduction;
	int segment = segment_of(p, t);
	bool first = t->class == JM_CLASS_GRAD;

	if (r->comm->transport->host_memory) {
		if (first) /* the transfers of the step have ended */
			jm_waits_step(r->clock);
		return 0;
	}
	if (segment < 0)
		return wait_for_all(r, first, err);
	if (!r->open[segment])
		return 0; /* before the first update, and in the next micro-steps of a step */
	r->open[segment] = false;
	return wait_on_device(
		r->account[JM_ACCOUNT_GATHER].waited, &r->gathered[segment], false, err);
}

/* ---- ranks that share a model ---------------------------------------------------------------- */

static enum jm_transfer_kind kind_of(enum jm_op op)
{
	return op == JM_OP_SUM_RANKS	? JM_ALL_REDUCE
	       : op == JM_OP_SUM_ROWS	? JM_REDUCE_SCATTER
	       : op == JM_OP_FROM_FIRST ? JM_BROADCAST
					: JM_ALL_GATHER;
}

/* The rows are the same on all ranks. */
static int copy_own_rows(struct jm_program *p, const struct jm_node *n, struct jm_err *err)
{
	size_t bytes = n->out[0]->bytes;
	const char *from = (const char *)n->in[0]->data + (size_t)p->graph->tp_rank * bytes;

	return jm_device_copy(
		p->device, JM_QUEUE_COMPUTE, n->out[0]->data, from, bytes, JM_ON_DEVICE, err);
}

static int exchange_beside(struct jm_reduction *r, struct jm_transfer *t, enum jm_account_kind kind,
	struct jm_err *err)
{
	int code = start_beside(r, r->ranks.tp, t, kind, err);

	return code ? code : jm_event_record(&r->shared, JM_QUEUE_COMM, err);
}

/* In memory of the device, also by transport host, which has queues of its own. */
static int start_in_order(
	struct jm_program *p, const struct jm_comm *comm, struct jm_transfer *t, struct jm_err *err)
{
	struct jm_reduction *r = p->reduction;
	int code;

	t->stream = p->graph->by_host ? r->stream : r->compute;
	if (!p->graph->by_host)
		return comm->transport->start(comm->state, t, err);
	code = follow_compute(r, err);
	if (!code)
		code = comm->transport->start(comm->state, t, err);
	if (!code)
		code = jm_event_record(&r->done, JM_QUEUE_COMM, err);
	return code ? code : jm_event_follow(&r->done, JM_QUEUE_COMPUTE, err);
}

static int run_on_host_in_order(
	struct jm_program *p, const struct jm_comm *comm, struct jm_transfer *t, struct jm_err *err)
{
	int code = wait_for_device(p->reduction, err);

	return code ? code : jm_comm_run(comm, t, err);
}

int jm_reduce_run_in_order(struct jm_program *p, const struct jm_comm *comm, struct jm_transfer *t,
	struct jm_waits *waits, bool first, struct jm_err *err)
{
	int code = jm_waits_begin(waits, first, err);

	if (!code)
		code = comm->transport->host_memory ? run_on_host_in_order(p, comm, t, err)
						    : start_in_order(p, comm, t, err);
	return code ? code : jm_waits_end(waits, err);
}

static bool begins_step(const struct jm_program *p, const struct jm_unit *u)
{
	const struct jm_reduction *r = p->reduction;

	return r->first_shared >= 0 && p->unit[r->first_shared] == u && p->micro_now <= 1;
}

static int run_shared(struct jm_program *p, const struct jm_unit *u, struct jm_err *err)
{
	struct jm_reduction *r = p->reduction;
	const struct jm_node *n = u->group.node[0];
	const struct jm_tensor *counted = n->op == JM_OP_SUM_ROWS ? n->out[0] : n->in[0];
	enum jm_comm_type type = comm_types[n->in[0]->type];
	enum jm_account_kind kind;
	struct jm_transfer t = {.kind = kind_of(n->op),
		.type = type,
		.from = n->in[0]->data,
		.to = n->out[0]->data,
		.count = counted->bytes / jm_comm_type_bytes(type)};

	if (n->op == JM_OP_OWN_ROWS)
		return copy_own_rows(p, n, err);
	kind = account_of(n);
	if (r->ranks.tp->transport->host_memory) {
		if (begins_step(p, u))
			jm_waits_step(r->tp_clock);
		return run_on_host(r, r->ranks.tp, &t, kind, err);
	}
	if (u->wait)
		return exchange_beside(r, &t, kind, err);
	return jm_reduce_run_in_order(
		p, r->ranks.tp, &t, r->account[kind].alone, begins_step(p, u), err);
}

/* Between the first and the last stage, or of all ranks of the model. */
static int run_between_stages(struct jm_program *p, const struct jm_node *n, struct jm_err *err)
{
	const struct jm_ranks *r = &p->reduction->ranks;
	const struct jm_graph *g = p->graph;
	bool swap = n->op == JM_OP_STAGE_SWAP;
	int other = r->all->rank + (g->stage ? -1 : 1) * (g->pp - 1) * r->apart;
	struct jm_transfer t = {.kind = swap ? JM_SEND_RECEIVE : JM_ALL_GATHER,
		.type = JM_COMM_BYTE,
		.from = n->in[0]->data,
		.to = n->out[0]->data,
		.count = n->in[0]->bytes,
		.to_rank = other,
		.from_rank = other};

	return jm_reduce_run_in_order(p, swap ? r->all : r->model, &t, p->stage_waits, false, err);
}

/* Of an evaluation, whose stages follow each other: what the last part made, or what the next one
 * needs. The loss goes nowhere. */
static int run_border(struct jm_program *p, const struct jm_node *n, struct jm_err *err)
{
	const struct jm_ranks *r = &p->reduction->ranks;
	int stages = p->graph->pp, stage = p->graph->stage;
	bool in = n->op == JM_OP_STAGE_IN;
	const struct jm_tensor *t = in ? n->out[0] : n->in[0];
	int other = in ? (stage + stages - 1) % stages : (stage + 1) % stages;
	int rank = r->all->rank + (other - stage) * r->apart;
	struct jm_transfer move = {.kind = JM_SEND_RECEIVE,
		.type = JM_COMM_BYTE,
		.from = t->data,
		.to = t->data,
		.count = t->bytes,
		.to_rank = in ? -1 : rank,
		.from_rank = in ? rank : -1};

	return t->class == JM_CLASS_SCALAR
		       ? 0
		       : jm_reduce_run_in_order(p, r->all, &move, NULL, false, err);
}

static int wait_for_shared(struct jm_program *p, const struct jm_unit *u, struct jm_err *err)
{
	struct jm_reduction *r = p->reduction;
	enum jm_account_kind kind = account_of(u->awaited);

	if (r->ranks.tp->transport->host_memory)
		return 0;
	return wait_on_device(r->account[kind].waited, &r->shared, begins_step(p, u), err);
}

/* A unit for which jm_reduce_is_node holds. */
static int run_node(struct jm_program *p, const struct jm_unit *u, struct jm_err *err)
{
	const struct jm_node *n = u->group.node[0];

	if (jm_op_is_border(n->op) && !p->graph->evaluate) /* pipeline.h */
		return 0;
	if (!p->reduction)
		return jm_err_set(
			err, JM_EBUG, "A program of several ranks runs without a communicator.");
	if (jm_op_is_border(n->op))
		return run_border(p, n, err);
	if (jm_reduce_is_shared(n))
		return run_shared(p, u, err);
	if (u->awaited)
		return wait_for_shared(p, u, err);
	if (n->op == JM_OP_STAGE_NORMS || n->op == JM_OP_STAGE_SWAP)
		return run_between_stages(p, n, err);
	if (!jm_reduce_is_start(u) && !jm_reduce_is_gather(u))
		return wait_for_transfers(p, n->out[0], err);
	/* gradients of several micro-steps are summed before the sum over ranks */
	if (u->position < p->n_micro && p->micro_now < jm_program_micro_steps(p))
		return 0;
	return jm_reduce_is_gather(u) ? run_gather(p, n, err) : start_sum(p, n, err);
}

int jm_reduce_gather(struct jm_program *p, struct jm_err *err)
{
	const struct jm_shard *s = p->graph->shard;
	int code = 0;

	for (int i = 0; s && i < s->n && !code; i++)
		if (s->segment[i].masters != s->segment[i].updated)
			code = start_gather(p, s->segment[i].masters, s->segment[i].params, err);
	return code ? code : jm_device_sync(p->device, err);
}

int jm_program_run_unit(struct jm_program *p, int unit, struct jm_err *err)
{
	if (jm_reduce_is_node(p->unit[unit]))
		return run_node(p, p->unit[unit], err);
	return jm_device_run(p->device, p->unit[unit]->exec, err);
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* The sum over kinds from `from` on; NAN = there were none. */
static double exposed_from(
	const struct jm_reduce_cost *cost, enum jm_account_kind from, enum jm_account_kind to)
{
	double sum = NAN;

	for (enum jm_account_kind k = from; k <= to; k++)
		if (!isnan(cost->kind[k].exposed))
			sum = (isnan(sum) ? 0 : sum) + cost->kind[k].exposed;
	return sum;
}

static void read_accounts(struct jm_reduction *r, struct jm_reduce_cost *cost)
{
	double waited;

	jm_waits_means(r->steps, &waited, &cost->step);
	for (int k = 0; k < JM_ACCOUNT_KINDS_N; k++)
		cost->kind[k] = jm_account_time(&r->account[k], jm_waits_steps(r->steps));
	cost->exposed = exposed_from(cost, JM_ACCOUNT_SUM, JM_ACCOUNT_GATHER);
	cost->exposed_tp = exposed_from(cost, JM_ACCOUNT_TP_SUM, JM_ACCOUNT_TP_GATHER);
}

struct jm_reduce_cost jm_reduce_cost(struct jm_program *p)
{
	struct jm_reduction *r = p->reduction;
	struct jm_reduce_cost cost = {
		.sent = jm_reduce_bytes(p), .exposed = NAN, .step = NAN, .exposed_tp = NAN};

	for (int k = 0; k < JM_ACCOUNT_KINDS_N; k++)
		cost.kind[k] = (struct jm_account_time){NAN, NAN};
	if (r && !jm_device_sync(p->device, NULL))
		read_accounts(r, &cost);
	return cost;
}

void jm_reduce_reset(struct jm_program *p)
{
	struct jm_reduction *r = p->reduction;

	for (int k = 0; r && k < JM_ACCOUNT_KINDS_N; k++)
		jm_account_reset(&r->account[k]);
}
