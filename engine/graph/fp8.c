/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp8: the linear layers inside blocks multiply in 8 bits, in e4m3 forward and in e5m2 for
 * gradients (Micikevicius et al., arXiv 2209.05433). Each factor is quantized with a scale from the
 * maxima of the last steps (delayed scaling, as in NVIDIA's Transformer Engine: the maximum of 1024
 * steps, no margin); in the first step its own maximum gives the scale. The classifier, embeddings,
 * norms and attention do not change. For the gradient of the weights the input of a layer is kept
 * in 8 bits only.
 *
 * Serving (by rows): the weights do not change, so their parameters are in 8 bits, with a factor
 * for each row; rows of x belong to different requests, so each has a scale of its own maximum.
 */
#include "fp8.h"
#include "op.h"
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HISTORY	 1024 /* steps */
#define MULTIPLE 16   /* every dimension must be a multiple of this for tensor cores in 8 bits */

#define OPS(...) ((struct jm_tensor *[JM_NODE_IN]){__VA_ARGS__})

/* The rows of a layer in the table of ranges. */
enum { ROW_X, ROW_W, ROW_DY, ROWS };

/* A layer: its three factors in 8 bits, and the inverse scales of their elements. */
struct layer {
	const struct jm_node *node; /* the node linear; NULL: the layer is not computed in 8 bits */
	struct jm_tensor *x, *w, *dy, *xs, *ws, *dys;
	int64_t row; /* the layer's first row in the ranges */
};

struct lowering {
	struct jm_graph *g;
	bool by_rows;
	struct jm_tensor *ranges; /* NULL: by rows */
	struct layer *layer;	  /* [node]: of the linear, before the pass */
	struct jm_node **before;  /* [old node] in the order before the pass */
	struct jm_node **order;	  /* the order after the pass */
	int n_before, n;
	int *readers; /* [cell]: readers of a copy that the pass does not change */
};

static struct jm_tensor *master_of(const struct jm_graph *g, struct jm_tensor *w)
{
	struct jm_tensor *origin = jm_graph_cell(g, w)->origin;

	return origin ? origin : w;
}

static bool is_inner(const struct jm_graph *g, const struct jm_node *n)
{
	struct jm_tensor *w;

	if (n->op != JM_OP_LINEAR || !jm_graph_cell(g, n->out[0])->block)
		return false;
	w = master_of(g, n->in[1]);
	return w->class == JM_CLASS_PARAM && !jm_graph_cell(g, w)->table &&
	       w->dim[0] % MULTIPLE == 0 && w->dim[1] % MULTIPLE == 0;
}

/* ---- quantize -------------------------------------------------------------------------------- */

/* elements: of a vector; 0 = the dims of `like` */
static struct jm_tensor *tensor(struct lowering *l, const struct jm_tensor *like,
	enum jm_class class, enum jm_dtype type, int64_t elements, const char *what)
{
	struct jm_tensor *t = jm_graph_tensor(
		l->g, class, type, elements ? 1 : like->rank, elements ? &elements : like->dim, "");

	if (!t)
		return NULL;
	snprintf(t->name, sizeof(t->name), "%.140s.%s", like->name, what);
	jm_graph_cell(l->g, t)->block = jm_graph_cell(l->g, like)->block;
	return t;
}

static void put(struct lowering *l, struct jm_node *n)
{
	if (n)
		l->order[l->n++] = n;
}

/* Returns x in 8 bits. sums (may be NULL): the sums over its rows. An evaluation does not change
 * the ranges. */
static struct jm_tensor *quantize(struct lowering *l, struct jm_tensor *x, enum jm_class class,
	enum jm_dtype type, int64_t row, struct jm_tensor **ret_inverse, struct jm_tensor *sums)
{
	struct jm_tensor *y = tensor(l, x, class, type, 0, "f8");
	struct jm_tensor *inverse =
		tensor(l, x, class, JM_F32, l->by_rows ? jm_tensor_rows(x) : 1, "f8.inverse");
	struct jm_tensor *kept = l->g->evaluate ? NULL : l->ranges;
	struct jm_node *n =
		jm_graph_node(l->g, JM_OP_QUANTIZE, OPS(x, l->ranges), OPS(y, inverse, kept, sums));

	if (n)
		n->attr.quantize.row = row;
	put(l, n);
	*ret_inverse = inverse;
	return y;
}

/* ---- the three products ---------------------------------------------------------------------- */

/* The parameter itself is in 8 bits from now on; returns the factors of its rows. */
static struct jm_tensor *narrow_param(struct lowering *l, struct jm_tensor *w)
{
	struct jm_cell *c = jm_graph_cell(l->g, w);

	if (c->scale)
		return c->scale;
	c->scale = tensor(l, w, JM_CLASS_PARAM, JM_F32, w->dim[0], "scale");
	if (!c->scale)
		return NULL;
	jm_graph_cell(l->g, c->scale)->origin = w;
	w->type = JM_F8E4M3;
	w->bytes = jm_layout_bytes(w, &w->layout);
	return c->scale;
}

static void lower_linear(struct lowering *l, struct jm_node *n, struct layer *layer)
{
	struct jm_tensor *w = master_of(l->g, n->in[1]);

	layer->x = quantize(
		l, n->in[0], JM_CLASS_ACT, JM_F8E4M3, layer->row + ROW_X, &layer->xs, NULL);
	if (l->by_rows) {
		layer->w = w;
		layer->ws = narrow_param(l, w);
	} else {
		layer->w = quantize(
			l, w, JM_CLASS_COPY, JM_F8E4M3, layer->row + ROW_W, &layer->ws, NULL);
	}
	n->in[0] = layer->x;
	n->in[1] = layer->w;
	n->in[3] = layer->xs;
	n->in[4] = layer->ws;
}

/* The gradient of a bias is the sum of the values before they are rounded to 8 bits. */
static void lower_gradient(struct lowering *l, struct jm_node *n, struct layer *layer)
{
	bool weights = n->op == JM_OP_LINEAR_WGRAD;
	struct jm_tensor *sums = weights ? n->out[1] : NULL;

	if (!layer->dy) {
		layer->dy = quantize(l, n->in[0], JM_CLASS_ACT, JM_F8E5M2, layer->row + ROW_DY,
			&layer->dys, sums);
		if (sums && !l->g->err.code) {
			struct jm_node *q = l->order[l->n - 1];

			q->accumulate = (jm_node_adds(n, 1)) << 3;
			jm_graph_cell(l->g, sums)->producer = q;
		}
		sums = NULL;
	}
	if (weights) {
		n->out[1] = sums;
		n->accumulate &= sums ? 3U : 1U;
	}
	n->in[0] = layer->dy;
	n->in[1] = weights ? layer->x : layer->w;
	n->in[2] = layer->dys;
	n->in[3] = weights ? layer->xs : layer->ws;
}

/* The layer of a product; NULL = the product is not computed in 8 bits. */
static struct layer *layer_of(struct lowering *l, const struct jm_node *n)
{
	const struct jm_node *linear = n->op == JM_OP_LINEAR ? n : n->fwd;

	if (n->op != JM_OP_LINEAR && n->op != JM_OP_LINEAR_WGRAD && n->op != JM_OP_LINEAR_DGRAD)
		return NULL;
	return linear && l->layer[linear->id].node ? &l->layer[linear->id] : NULL;
}

/* True if only products in 8 bits read what the node makes: a copy in the compute type, or rows of
 * all ranks that are gathered again for a gradient. */
static bool is_idle(const struct lowering *l, const struct jm_node *n)
{
	bool copies = n->op == JM_OP_CAST && n->out[0]->class == JM_CLASS_COPY;

	return (copies || n->again) && !l->readers[n->out[0]->id];
}

static void lower_node(struct lowering *l, struct jm_node *n)
{
	struct layer *layer = layer_of(l, n);

	if (is_idle(l, n)) {
		if (n->op == JM_OP_CAST)
			jm_graph_cell(l->g, n->in[0])->copy = NULL;
		jm_graph_cell(l->g, n->out[0])->producer = NULL;
		free(n);
		return;
	}
	if (layer && n->op == JM_OP_LINEAR)
		lower_linear(l, n, layer);
	else if (layer)
		lower_gradient(l, n, layer);
	put(l, n);
}

static void count_readers(struct lowering *l)
{
	for (int k = 0; k < l->n_before; k++) {
		const struct jm_node *n = l->before[k];

		for (int i = 0; i < n->n_in; i++)
			if (n->in[i] && !layer_of(l, n))
				l->readers[n->in[i]->id]++;
	}
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* Returns the number of layers. */
static int64_t find_layers(struct lowering *l)
{
	int64_t n = 0;

	for (int k = 0; k < l->n_before; k++) {
		const struct jm_node *linear = l->before[k];

		if (!is_inner(l->g, linear))
			continue;
		if (!l->by_rows && jm_tensor_rows(linear->in[0]) % MULTIPLE)
			return jm_err_set(&l->g->err, JM_EUSAGE,
				"Products in fp8 need a multiple of %d rows, and %s has %lld; "
				"change "
				"--batch or --seq.",
				MULTIPLE, linear->out[0]->name,
				(long long)jm_tensor_rows(linear->in[0]));
		l->layer[k] = (struct layer){.node = linear, .row = ROWS * n++};
	}
	if (n)
		return n;
	return jm_err_set(&l->g->err, JM_EUSAGE,
		"This network has no linear layer inside a block whose widths are multiples of %d, "
		"so nothing would be computed in fp8; use --precision bf16.",
		MULTIPLE);
}

/* Replaces the graph's nodes by the new order, which includes the nodes that jm_graph_node
 * appended. */
static void reorder(struct lowering *l, int n_forward)
{
	struct jm_graph *g = l->g;

	for (int k = 0; k < l->n_before; k++) {
		if (k == n_forward)
			g->n_forward = l->n;
		lower_node(l, l->before[k]);
	}
	if (n_forward >= l->n_before)
		g->n_forward = l->n;
	g->n_nodes = l->n;
	for (int k = 0; k < l->n; k++) {
		g->node[k] = l->order[k];
		g->node[k]->id = k;
		jm_node_cost(g->node[k]);
	}
}

static void lower(struct lowering *l)
{
	struct jm_graph *g = l->g;
	int64_t layers;

	memcpy(l->before, g->node, (size_t)l->n_before * sizeof(*l->before));
	layers = find_layers(l);
	if (layers < 0)
		return;
	if (!l->by_rows)
		l->ranges = jm_graph_tensor(g, JM_CLASS_STATE, JM_F32, 2,
			(const int64_t[]){ROWS * layers, 2 + HISTORY}, JM_FP8_RANGES);
	count_readers(l);
	if (!g->err.code)
		reorder(l, g->n_forward);
}

static int lower_all(struct jm_graph *g, bool by_rows, struct jm_err *err)
{
	size_t nodes = (size_t)g->n_nodes + 1, cells = (size_t)g->n_cells + 1;
	struct lowering l = {.g = g,
		.by_rows = by_rows,
		.n_before = g->n_nodes,
		.layer = calloc(nodes, sizeof(struct layer)),
		.before = calloc(nodes, sizeof(struct jm_node *)),
		.order = calloc(4 * nodes, sizeof(struct jm_node *)),
		.readers = calloc(cells, sizeof(int))};

	if (l.layer && l.before && l.order && l.readers)
		lower(&l);
	else
		jm_err_set(&g->err, JM_ENOMEM, "Out of memory for products in fp8.");
	free(l.layer);
	free(l.before);
	free(l.order);
	free(l.readers);
	return g->err.code ? jm_err_set(err, g->err.code, "%s", g->err.text) : 0;
}

int jm_graph_fp8(struct jm_graph *g, struct jm_err *err)
{
	return lower_all(g, false, err);
}

int jm_graph_fp8_rows(struct jm_graph *g, struct jm_err *err)
{
	return lower_all(g, true, err);
}

int jm_graph_rescale(struct jm_graph *g, struct jm_err *err)
{
	struct jm_tensor *ranges = jm_graph_find(g, JM_FP8_RANGES);

	if (ranges && jm_graph_node(g, JM_OP_RESCALE, &ranges, &ranges))
		g->n_update++;
	return g->err.code ? jm_err_set(err, g->err.code, "%s", g->err.text) : 0;
}
