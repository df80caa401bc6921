/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline_parallel.h"
#include "op.h"

#include <stdlib.h>
#include <string.h>

#define ANY (-1) /* the part of a node that makes a compute copy: that of its readers */

struct cut {
	struct jm_graph *g;
	int parts;		/* of the network */
	int n;			/* nodes of the network */
	int *part;		/* [n] */
	struct jm_node **order; /* the nodes of this stage */
	int n_order;
};

/* Of a block, counted from 0. Those before the last part are divided evenly, and where they do not
 * divide, the first parts have one more. */
static int part_of(const struct cut *c, int block)
{
	int n = c->g->n_blocks, last = c->g->last_blocks;
	int each = (n - last) / (c->parts - 1), more = (n - last) % (c->parts - 1);

	if (block >= n - last)
		return c->parts - 1;
	return block < more * (each + 1) ? block / (each + 1) : (block - more) / each;
}

/* What is before the first block is in its part, what is behind the last in that one's. */
static void find_parts(const struct cut *c)
{
	int now = 0;

	for (int k = 0; k < c->n; k++) {
		const struct jm_tensor *y = c->g->node[k]->out[0];
		int block = jm_graph_cell(c->g, y)->block;

		now = block ? part_of(c, block - 1) : now;
		c->part[k] = y->class == JM_CLASS_COPY ? ANY : now;
	}
}

/* Divides the network so that the last part has so many blocks. Returns the FLOPs of the stage that
 * has most. stage: [pp] room. */
static double most_flops(const struct cut *c, int last, double *stage)
{
	double most = 0;

	c->g->last_blocks = last;
	find_parts(c);
	memset(stage, 0, (size_t)c->g->pp * sizeof(*stage));
	for (int k = 0; k < c->n; k++) {
		double *now = c->part[k] == ANY ? NULL : &stage[c->part[k] % c->g->pp];

		if (now)
			*now += c->g->node[k]->flops_executed;
		most = now && *now > most ? *now : most;
	}
	return most;
}

/*
 * The last part computes the loss, too: it has so many blocks that the stage which computes most
 * computes least, at most as many as the other parts. Counted in FLOPs of the forward pass, of
 * which gradients have twice as many in each part.
 */
static int choose_last(const struct cut *c, struct jm_err *err)
{
	int even = c->g->n_blocks / c->parts, best = even;
	double *stage = calloc((size_t)c->g->pp, sizeof(*stage)), least, flops;

	if (!stage)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the stages of a model.");
	least = most_flops(c, even, stage);
	for (int last = even - 1; last > 0; last--) {
		flops = most_flops(c, last, stage);
		if (flops < least) {
			least = flops;
			best = last;
		}
	}
	c->g->last_blocks = best;
	free(stage);
	return 0;
}

static int refuse(const struct cut *c, const char *name, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"--pp %d cannot divide this model: %s is needed by stages that do not follow each "
		"other.",
		c->g->pp, name);
}

/* The tensor that enters a part. */
static int find_border(const struct cut *c, int part, struct jm_tensor **ret, struct jm_err *err)
{
	*ret = NULL;
	for (int k = 0; k < c->n; k++) {
		const struct jm_node *n = c->g->node[k];

		for (int i = 0; i < n->n_in && c->part[k] == part; i++) {
			struct jm_tensor *t = n->in[i];
			const struct jm_node *maker = t ? jm_graph_cell(c->g, t)->producer : NULL;

			if (!maker || t->class != JM_CLASS_ACT || c->part[maker->id] == part)
				continue;
			if ((*ret && *ret != t) || c->part[maker->id] != part - 1)
				return refuse(c, t->name, err);
			*ret = t;
		}
	}
	return *ret ? 0
		    : jm_err_set(err, JM_EBUG, "Part %d of the model reads no other one.", part);
}

/* Marks parameters that the first and the last part read. */
static int find_tied(const struct cut *c, struct jm_err *err)
{
	int *first = calloc((size_t)c->g->n_cells + 1, sizeof(*first)), code = 0;

	if (!first)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the stages of a model.");
	for (int k = 0; k < c->n; k++)
		for (int i = 0; i < c->g->node[k]->n_in && c->part[k] != ANY && !code; i++) {
			const struct jm_tensor *t = c->g->node[k]->in[i];
			struct jm_cell *p = t ? jm_graph_cell(c->g, t) : NULL;

			if (p && p->origin)
				p = jm_graph_cell(c->g, p->origin);
			if (!p || p->t.class != JM_CLASS_PARAM)
				continue;
			if (!first[p->t.id])
				first[p->t.id] = c->part[k] + 1;
			if (first[p->t.id] == c->part[k] + 1)
				continue;
			p->tied = true;
			if (first[p->t.id] != 1 || c->part[k] != c->parts - 1)
				code = refuse(c, p->t.name, err);
		}
	free(first);
	return code;
}

/* A compute copy that nodes of the part read belongs to the first of such parts. */
static void claim_copies(const struct cut *c, int part)
{
	for (int k = 0; k < c->n; k++)
		for (int r = k + 1; r < c->n && c->part[k] == ANY; r++)
			if (c->part[r] == part &&
				jm_node_reads(c->g->node[r], c->g->node[k]->out[0]))
				c->part[k] = part;
}

/* Appends a border to the graph, and to the order. */
static int add_border(struct cut *c, enum jm_op op, struct jm_tensor *t, struct jm_err *err)
{
	bool in = op == JM_OP_STAGE_IN;
	struct jm_node *n = jm_graph_node(c->g, op, in ? NULL : &t, in ? &t : NULL);

	if (!n)
		return jm_err_set(err, c->g->err.code, "%s", c->g->err.text);
	c->order[c->n_order++] = n;
	return 0;
}

/* The own nodes of a chunk between its borders. */
static int add_chunk(struct cut *c, int part, struct jm_tensor *loss, struct jm_err *err)
{
	struct jm_tensor *in = NULL, *out = loss;
	int code = part ? find_border(c, part, &in, err) : 0;

	if (!code && part + 1 < c->parts)
		code = find_border(c, part + 1, &out, err);
	if (!code && in)
		code = add_border(c, JM_OP_STAGE_IN, in, err);
	claim_copies(c, part);
	for (int k = 0; k < c->n && !code; k++)
		if (c->part[k] == part)
			c->order[c->n_order++] = c->g->node[k];
	return code ? code : add_border(c, JM_OP_STAGE_OUT, out, err);
}

/* Frees the nodes of other stages; what they computed has no producer here, or stage-in. */
static void take_order(struct cut *c)
{
	struct jm_graph *g = c->g;

	for (int i = 0; i < g->n_cells; i++)
		g->cell[i]->producer = NULL;
	for (int i = 0; i < c->n_order; i++) {
		struct jm_node *n = c->order[i];

		if (n->id < c->n)
			g->node[n->id] = NULL;
		for (int o = 0; o < n->n_out; o++)
			if (n->out[o] && !jm_graph_cell(g, n->out[o])->producer)
				jm_graph_cell(g, n->out[o])->producer = n;
		n->id = i;
	}
	for (int k = 0; k < c->n; k++)
		free(g->node[k]);
	memcpy(g->node, c->order, (size_t)c->n_order * sizeof(struct jm_node *));
	g->n_nodes = c->n_order;
}

static int keep_stage(struct cut *c, struct jm_tensor *loss, struct jm_err *err)
{
	int code = c->g->last_blocks ? 0 : choose_last(c, err);

	if (code)
		return code;
	find_parts(c);
	code = find_tied(c, err);
	for (int i = 0; i < jm_graph_chunks(c->g) && !code; i++)
		code = add_chunk(c, i * c->g->pp + c->g->stage, loss, err);
	if (!code)
		take_order(c);
	return code;
}

static int check_blocks(const struct cut *c, struct jm_err *err)
{
	const struct jm_graph *g = c->g;
	const char *with = jm_graph_chunks(g) > 1 ? " with --pp-chunks" : "";

	if (!g->n_blocks)
		return jm_err_set(err, JM_ERANGE,
			"--pp %d cannot divide this model, which has no blocks.", g->pp);
	if (g->last_blocks >= g->n_blocks)
		return jm_err_set(err, JM_ERANGE,
			"--pp-last %d leaves none of the %d blocks of the model to the other "
			"%s of --pp %d%s; give fewer.",
			g->last_blocks, g->n_blocks, c->parts > 2 ? "parts" : "part", g->pp, with);
	if (g->last_blocks && g->n_blocks - g->last_blocks < c->parts - 1)
		return jm_err_set(err, JM_ERANGE,
			"--pp-last %d leaves %d of the %d blocks of the model to the other %d "
			"parts of --pp %d%s; give fewer.",
			g->last_blocks, g->n_blocks - g->last_blocks, g->n_blocks, c->parts - 1,
			g->pp, with);
	if (g->n_blocks < c->parts)
		return jm_err_set(err, JM_ERANGE,
			"--pp %d%s makes %d parts, and the model has %d blocks; give fewer.", g->pp,
			with, c->parts, g->n_blocks);
	return 0;
}

int jm_graph_keep_stage(struct jm_graph *g, struct jm_tensor *loss, struct jm_err *err)
{
	int chunks = jm_graph_chunks(g), code;
	struct cut c = {.g = g, .parts = g->pp * chunks, .n = g->n_nodes};

	if (g->pp < 2)
		return 0;
	code = check_blocks(&c, err);
	if (code)
		return code;
	c.part = calloc((size_t)g->n_nodes + 1, sizeof(*c.part));
	c.order = calloc((size_t)(g->n_nodes + 2 * chunks) + 1, sizeof(struct jm_node *));
	code = c.part && c.order
		       ? keep_stage(&c, loss, err)
		       : jm_err_set(err, JM_ENOMEM, "Out of memory for the stages of a model.");
	free(c.part);
	free(c.order);
	return code;
}
