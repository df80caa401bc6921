/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline.h"
#include "reduce.h"
#include "waits.h"
#include "units.h"

#include <math.h>
#include <stdlib.h>

/* The nodes of a chunk's parts with the addresses of a slot. */
struct copy {
	struct jm_tensor *t;	/* [cells] */
	struct jm_node *node;	/* [nodes] */
	struct jm_group *group; /* [units] */
};

struct jm_pipeline {
	struct copy *copy; /* of each slot of each chunk */
	int n_copies;
	int slots; /* the most of a chunk */
	/* [slots][units], [slots][stretches]: NULL = a chunk has fewer slots, or the engine runs
	 * it */
	void **exec, **captured;
	const struct jm_comm *comm;
	int apart;   /* ranks from a stage to the next */
	bool begins; /* no exchange of this step has begun */
};

static int most_slots(const struct jm_program *p)
{
	int most = 1;

	for (int i = 0; i < p->stage.pipe.chunks; i++)
		if (p->stage.chunk[i].slots > most)
			most = p->stage.chunk[i].slots;
	return most;
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Parts are numbered as in struct jm_stage. */
static int number_of(const struct jm_program *p, const struct jm_pipe_part *part)
{
	return part->backward ? 2 * p->stage.pipe.chunks - 1 - part->chunk : part->chunk;
}

static int first_unit(const struct jm_program *p, int part)
{
	return part ? p->stage.end[part - 1] : p->n_once;
}

static char *place_in(const struct jm_program *p, const struct jm_cell *c, int chunk, int slot)
{
	return p->arena +
	       (c->offset + (size_t)slot * p->stage.chunk[chunk].bytes - p->persistent_bytes);
}

/* Does the tensor have a place in each slot of the chunk? */
static bool is_kept(const struct jm_program *p, const struct jm_cell *c, int chunk)
{
	const struct jm_stage_slots *k = &p->stage.chunk[chunk];

	return c->first >= 0 && c->offset >= k->from && c->offset < k->from + k->bytes;
}

/* Gives the tensors that the chunk keeps their places in the slot. */
static void set_places(const struct jm_program *p, int chunk, int slot)
{
	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (is_kept(p, c, chunk))
			c->t.data = place_in(p, c, chunk, slot);
	}
}

/* Moves the execs of the units of a part from the program into the slot, or back. */
static void exchange_execs(struct jm_program *p, int part, int slot, bool keep)
{
	void **exec = p->pipeline->exec + (size_t)slot * (size_t)p->n_units;
	void **captured = p->pipeline->captured + (size_t)slot * (size_t)p->n_stretches;
	int from = first_unit(p, part), to = p->stage.end[part];

	for (int i = from; i < to; i++) {
		if (keep)
			exec[i] = p->unit[i]->exec;
		p->unit[i]->exec = keep ? NULL : exec[i];
	}
	for (int i = 0; i < p->n_stretches; i++) {
		struct jm_stretch *s = &p->stretch[i];

		if (s->from < from || s->from >= to)
			continue;
		if (keep)
			captured[i] = s->captured;
		s->captured = keep ? NULL : captured[i];
	}
}

static void take_slot(struct jm_program *p, int chunk, int slot)
{
	set_places(p, chunk, slot); /* for the nodes that the engine runs itself */
	exchange_execs(p, chunk, slot, false);
	exchange_execs(p, 2 * p->stage.pipe.chunks - 1 - chunk, slot, false);
}

/* ---- copies of the units, whose addresses stay ----------------------------------------------- */

static bool make_room(const struct jm_program *p, struct copy *c)
{
	c->t = calloc((size_t)p->graph->n_cells + 1, sizeof(*c->t));
	c->node = calloc((size_t)p->graph->n_nodes + 1, sizeof(*c->node));
	c->group = calloc((size_t)p->n_units + 1, sizeof(*c->group));
	return c->t && c->node && c->group;
}

static void free_copy(struct copy *c)
{
	free(c->t);
	free(c->node);
	free(c->group);
}

/* The tensor, or its copy if it has a place of its own in the slot. */
static struct jm_tensor *tensor_of(
	const struct jm_program *p, struct copy *c, int chunk, struct jm_tensor *t)
{
	if (!t || !is_kept(p, jm_graph_cell(p->graph, t), chunk))
		return t;
	c->t[t->id] = *t;
	return &c->t[t->id];
}

static void copy_node(
	const struct jm_program *p, struct copy *c, int chunk, const struct jm_node *n)
{
	struct jm_node *to = &c->node[n->id];

	*to = *n;
	for (int i = 0; i < n->n_in; i++)
		to->in[i] = tensor_of(p, c, chunk, n->in[i]);
	for (int i = 0; i < n->n_out; i++)
		to->out[i] = tensor_of(p, c, chunk, n->out[i]);
}

/* The places of the tensors are those of the slot. */
static void copy_units(const struct jm_program *p, struct copy *c, int chunk, int from, int to)
{
	for (int i = from; i < to; i++) {
		const struct jm_unit *u = p->unit[i], *fwd = (const struct jm_unit *)u->group.fwd;
		struct jm_group *g = &c->group[i];

		*g = u->group;
		for (int k = 0; k < g->n_nodes; k++) {
			copy_node(p, c, chunk, g->node[k]);
			g->node[k] = &c->node[g->node[k]->id];
		}
		g->fwd = fwd ? &c->group[fwd->position] : NULL;
		g->saved = u->saved ? u->saved->data : NULL;
	}
}

/* The execs that were built are kept, also if one has failed. */
static int build_slot(struct jm_program *p, int chunk, int slot, struct jm_err *err)
{
	int part[2] = {chunk, 2 * p->stage.pipe.chunks - 1 - chunk}, code = 0;
	struct copy *c = &p->pipeline->copy[p->pipeline->n_copies++];

	if (!make_room(p, c))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a pipeline.");
	set_places(p, chunk, slot);
	for (int i = 0; i < 2 && !code; i++) {
		copy_units(p, c, chunk, first_unit(p, part[i]), p->stage.end[part[i]]);
		code = jm_units_build(
			p, c->group, first_unit(p, part[i]), p->stage.end[part[i]], err);
		exchange_execs(p, part[i], slot, true);
	}
	return code;
}

int jm_pipeline_build(struct jm_program *p, struct jm_err *err)
{
	struct jm_pipeline *l = p->pipeline = calloc(1, sizeof(*l));
	int code = 0, chunks = p->stage.pipe.chunks;

	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a pipeline.");
	l->slots = most_slots(p);
	l->copy = calloc((size_t)chunks * (size_t)l->slots, sizeof(*l->copy));
	l->exec = calloc((size_t)l->slots * (size_t)p->n_units + 1, sizeof(void *));
	l->captured = calloc((size_t)l->slots * (size_t)p->n_stretches + 1, sizeof(void *));
	if (!l->copy || !l->exec || !l->captured)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a pipeline.");
	for (int i = 0; i < chunks && !code; i++)
		for (int slot = 0; slot < p->stage.chunk[i].slots && !code; slot++)
			code = build_slot(p, i, slot, err);
	if (!code)
		code = jm_units_build(p, NULL, 0, p->n_once, err);
	return code ? code : jm_units_build(p, NULL, p->n_micro, p->n_units, err);
}

void jm_pipeline_free(struct jm_program *p)
{
	struct jm_pipeline *l = p->pipeline;
	size_t slots = l ? (size_t)l->slots : 0;

	if (!l)
		return;
	for (int part = 0; part < 2 * p->stage.pipe.chunks && l->exec && l->captured; part++) {
		exchange_execs(p, part, 0, false);
		exchange_execs(p, part, 0, true);
	}
	for (size_t i = 0; l->captured && i < slots * (size_t)p->n_stretches; i++)
		p->device->backend->drop(p->device->dev, l->captured[i]);
	for (size_t i = 0; l->exec && i < slots * (size_t)p->n_units; i++)
		p->device->backend->drop(p->device->dev, l->exec[i]);
	jm_waits_free(p->stage_waits);
	p->stage_waits = NULL;
	for (int i = 0; i < l->n_copies; i++)
		free_copy(&l->copy[i]);
	free(l->copy);
	free(l->exec);
	free(l->captured);
	free(l);
	p->pipeline = NULL;
}

int jm_pipeline_open(
	struct jm_program *p, const struct jm_comm *comm, int apart, struct jm_err *err)
{
	struct jm_pipeline *l = p->pipeline;
	int code;

	l->comm = comm;
	l->apart = apart;
	/* of a turn two at most, then the table's gradient and the norms */
	code = jm_waits_new(
		p->device, JM_QUEUE_COMPUTE, 2 * p->stage.n_turns + 2, &p->stage_waits, err);
	if (!code)
		jm_reduce_count_by(p, p->stage_waits);
	return code;
}

void jm_pipeline_reset(struct jm_program *p)
{
	if (p->stage_waits)
		jm_waits_reset(p->stage_waits);
}

double jm_pipeline_waited(struct jm_program *p)
{
	double waited = NAN, step;

	if (p->stage_waits && !jm_device_sync(p->device, NULL))
		jm_waits_means(p->stage_waits, &waited, &step);
	return waited;
}

double jm_pipeline_sent(const struct jm_program *p)
{
	double sum = 0;

	for (int i = 0; i < p->stage.n_turns; i++) {
		const struct jm_pipe_turn *t = &p->stage.turn[i];

		if (t->send[0].stage >= 0 || t->send[1].stage >= 0)
			sum += (double)p->stage.out[number_of(p, &t->part)]->bytes;
	}
	for (int i = p->n_micro; i < p->n_units; i++)
		if (p->unit[i]->group.node[0]->op == JM_OP_STAGE_SWAP)
			sum += (double)p->unit[i]->group.node[0]->in[0]->bytes;
	return sum;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static int run_part(struct jm_program *p, const struct jm_pipe_part *part,
	const struct jm_pipeline_hooks *hooks, struct jm_err *err)
{
	const struct jm_stage *s = &p->stage;
	int k = number_of(p, part), code;

	take_slot(p, part->chunk, part->micro % s->chunk[part->chunk].slots);
	p->micro_now = part->micro + 1;
	code = hooks->before(hooks->arg, part->micro, err);
	if (!code)
		code = jm_units_run(p, first_unit(p, k), s->end[k], err);
	if (!code && k == s->pipe.chunks - 1 && p->graph->stage == s->pipe.stages - 1)
		code = hooks->loss(hooks->arg, part->micro, err);
	return code;
}

static int rank_of(const struct jm_program *p, const struct jm_pipe_move *m)
{
	const struct jm_pipeline *l = p->pipeline;

	return m->stage < 0 ? -1 : l->comm->rank + (m->stage - p->graph->stage) * l->apart;
}

/* The two transfers at once. */
static int transfer(struct jm_program *p, const struct jm_pipe_part *ran,
	const struct jm_pipe_move *send, const struct jm_pipe_move *receive, struct jm_err *err)
{
	struct jm_pipeline *l = p->pipeline;
	const struct jm_stage *s = &p->stage;
	const struct jm_pipe_part *to = &receive->part;
	const struct jm_tensor *from = send->stage < 0 ? NULL : s->out[number_of(p, ran)];
	const struct jm_tensor *in = receive->stage < 0 ? NULL : s->in[number_of(p, to)];
	struct jm_transfer t = {.kind = JM_SEND_RECEIVE,
		.type = JM_COMM_BYTE,
		.to_rank = rank_of(p, send),
		.from_rank = rank_of(p, receive),
		.from = from ? from->data : NULL,
		.count = from ? from->bytes
			 : in ? in->bytes
			      : 0};
	bool first = l->begins;

	if (!from && !in)
		return 0;
	if (in)
		t.to = place_in(p, jm_graph_cell(p->graph, in), to->chunk,
			to->micro % s->chunk[to->chunk].slots);
	l->begins = false;
	return jm_reduce_run_in_order(p, l->comm, &t, p->stage_waits, first, err);
}

static int run_turn(struct jm_program *p, const struct jm_pipe_turn *t,
	const struct jm_pipeline_hooks *hooks, struct jm_err *err)
{
	int code = t->runs ? run_part(p, &t->part, hooks, err) : 0;

	if (t->at_once)
		return code ? code
			    : transfer(p, &t->part, &t->send[t->send[0].stage < 0],
				      &t->receive[t->receive[0].stage < 0], err);
	for (int i = 0; i < 2 && !code; i++)
		code = transfer(p, &t->part, &t->send[i], &t->receive[i], err);
	return code;
}

int jm_pipeline_run(struct jm_program *p, const struct jm_pipeline_hooks *hooks, struct jm_err *err)
{
	int code = 0;

	p->pipeline->begins = true;
	for (int i = 0; i < p->stage.n_turns && !code; i++)
		code = run_turn(p, &p->stage.turn[i], hooks, err);
	return code;
}
