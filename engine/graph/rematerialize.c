/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rematerialize: results that cost at most one pass over memory (of norms and activations,
 * parameters in the compute type) are not kept for the gradients but recomputed directly before
 * their first reader there, from operands that are kept for gradients anyway. recompute.c saves
 * more memory. If time is limited, results are chosen by freed bytes per moved byte; among equal
 * ones the first in the network, whose results live longest; then norms to which something is
 * added, which cost three passes, may be among them. Some are chosen in any case: activations that
 * the kernel of their gradient can recompute, which reads their operand anyway; images that grow,
 * where only gradients of filters read them (group.c), whose operands are kept instead; norms that
 * a convolution with a filter for each channel and its gradient apply; and what is between two
 * layers of few channels, which one kernel each way computes. With more than the usual time also
 * results of attention and products, whose operands are recomputed before them if not kept.
 */
#include "rematerialize.h"
#include "duplicate_node.h"
#include "group.h"
#include "op.h"
#include "tensor.h"

#include <math.h>
#include <stdlib.h>

#define NEAR  4	    /* nodes; results that are read again within this distance are kept */
#define CHAIN 2	    /* at most so many nodes in a row are recomputed before a costly one */
#define ABOVE 1.001 /* the usual share: from here on costly nodes may be recomputed */

/* Of two layers with an activation between, in f32: wider ones cost more time than the traffic. */
#define HIDDEN_FROM  32 /* channels of the first layer's input, at most */
#define HIDDEN_WIDTH 128
#define HIDDEN_TO    8

struct remake {
	struct jm_graph *g;
	int n_cells, n_nodes; /* before the pass */
	int *forward;	      /* [cell]: the last node before the gradients that reads it */
	int *first, *last;    /* [cell]: nodes of gradients that read it; -1 = none */
	bool positions, copies, beside; /* of struct jm_remake */
	bool limited;			/* time is */
	bool costly;			/* attention and products may be recomputed */
	double flop_bytes;		/* that are moved in the time of one */
	struct jm_tensor **twin;	/* [cell]: its values, recomputed; NULL = they are kept */
	bool *needed;			/* [cell]: something that is recomputed reads it */
	struct jm_reads reads;
};

/* What can be recomputed cheaply, and whose results do not enter running sums. */
static bool is_cheap(const struct remake *l, const struct jm_node *n)
{
	switch (n->op) {
	case JM_OP_LAYERNORM:
	case JM_OP_RMSNORM:
	case JM_OP_GELU:
	case JM_OP_GELU_ERF:
	case JM_OP_GELU_QUICK:
	case JM_OP_SILU:
	case JM_OP_SWIGLU:
	case JM_OP_GEGLU:
		return true;
	case JM_OP_BN_APPLY:
		return !n->in[5];
	case JM_OP_CAST:
		if (l->copies)
			return false;
		__attribute__((fallthrough));
	case JM_OP_QUANTIZE:
		return n->out[0]->class == JM_CLASS_COPY && jm_duplicates_copies(l->g);
	default:
		return false;
	}
}

/*
 * Attention; and products that attention, perhaps after rotary positions, or a gated unit reads: no
 * backend joins both in one kernel, so that the product alone has the same bits.
 */
static bool is_costly(const struct remake *l, const struct jm_node *n)
{
	int f = n->out[0] ? l->forward[n->out[0]->id] : -1;
	enum jm_op reader = f > n->id ? l->g->node[f]->op : JM_OP_COUNT;

	if (!l->costly || n->accumulate)
		return false;
	return n->op == JM_OP_ATTENTION || n->op == JM_OP_ROPE ||
	       (n->op == JM_OP_LINEAR && jm_dtype_bytes(n->in[0]->type) > 1 &&
		       (reader == JM_OP_ATTENTION || reader == JM_OP_ROPE ||
			       reader == JM_OP_SWIGLU || reader == JM_OP_GEGLU));
}

static void find_readers(struct remake *l)
{
	for (int i = 0; i < l->n_cells; i++)
		l->forward[i] = l->first[i] = l->last[i] = -1;
	for (int k = 0; k < l->n_nodes; k++)
		for (int i = 0; i < l->g->node[k]->n_in; i++) {
			const struct jm_tensor *t = l->g->node[k]->in[i];

			if (!t || (l->positions && l->g->node[k]->op == JM_OP_MAXPOOL_GRAD && i))
				continue;
			if (k < l->g->n_forward) {
				l->forward[t->id] = k;
				continue;
			}
			if (l->first[t->id] < 0)
				l->first[t->id] = k;
			l->last[t->id] = k;
		}
}

/* Operand i of n if it is gone at node k of the gradients, because it does not persist and none
 * reads it at k or later; NULL = it is there, or is the operand before. */
static const struct jm_tensor *gone(const struct remake *l, const struct jm_node *n, int i, int k)
{
	const struct jm_tensor *t = n->in[i];

	return t && t->class == JM_CLASS_ACT && l->last[t->id] < k && !(i && t == n->in[i - 1])
		       ? t
		       : NULL;
}

static bool operands_there(const struct remake *l, const struct jm_node *n, int k)
{
	for (int i = 0; i < n->n_in; i++)
		if (gone(l, n, i, k))
			return false;
	return true;
}

/* The node that has to be recomputed before n, because it makes operand i, which is gone; NULL =
 * there is none. */
static const struct jm_node *maker_of(const struct remake *l, const struct jm_node *n, int i, int k)
{
	const struct jm_tensor *t = gone(l, n, i, k);

	return t && !l->twin[t->id] ? jm_graph_cell(l->g, t)->producer : NULL;
}

/* True if n can be recomputed for node k of the gradients after at most `most` nodes in a row,
 * which make what is gone. */
static bool can_follow(const struct remake *l, const struct jm_node *n, int k, int most)
{
	for (int i = 0; i < n->n_in; i++) {
		const struct jm_tensor *t = gone(l, n, i, k);
		const struct jm_node *maker = t ? jm_graph_cell(l->g, t)->producer : NULL;

		if (t && (!maker || !most || maker->id >= l->g->n_forward || maker->out[0] != t ||
				 !(is_cheap(l, maker) || is_costly(l, maker)) ||
				 !can_follow(l, maker, k, most - 1)))
			return false;
	}
	return true;
}

/* An operand that is computed again itself may be available too late. */
static bool operands_kept(const struct remake *l, const struct jm_node *n)
{
	for (int i = 0; i < n->n_in; i++) {
		const struct jm_node *maker =
			n->in[i] ? jm_graph_cell(l->g, n->in[i])->producer : NULL;

		if (maker && maker->id < l->g->n_forward && is_cheap(l, maker) &&
			maker->out[0] == n->in[i])
			return false;
	}
	return true;
}

/* Gradients and what is recomputed read `to` in place of `from`. */
static void rename_reads(struct remake *l, const struct jm_tensor *from, struct jm_tensor *to)
{
	l->twin[from->id] = to;
	jm_reads_rename(&l->reads, l->g, from, to);
}

/*
 * True if only one gradient, a linear-wgrad, or of a norm a conv-wgrad, reads the result of the
 * activation n, and the gradient of n comes later: there the activation costs no pass of its own.
 */
static bool runs_beside(const struct remake *l, const struct jm_node *n)
{
	int k = l->first[n->out[0]->id];
	const struct jm_node *wgrad = k >= 0 ? l->g->node[k] : NULL;
	enum jm_op grad = jm_group_gradient(n->op);
	bool norm = n->op == JM_OP_BN_APPLY;

	if (!l->beside || grad == JM_OP_COUNT || !wgrad ||
		wgrad->op != (norm ? JM_OP_CONV_WGRAD : JM_OP_LINEAR_WGRAD) ||
		wgrad->in[1] != n->out[0] || l->last[n->out[0]->id] != k ||
		(norm && (!n->attr.bn.relu || wgrad->attr.conv.groups > 1)))
		return false;
	for (k++; k < l->n_nodes; k++)
		if (l->g->node[k]->op == grad && l->g->node[k]->in[1] == n->in[0])
			return true;
	return false;
}

/* True if only one gradient, a conv-wgrad, reads the result of the upsample n, whose operand, a
 * quarter of it or less, is kept in its place. */
static bool grows_again(const struct remake *l, const struct jm_node *n)
{
	int k = l->first[n->out[0]->id];

	return l->beside && n->op == JM_OP_UPSAMPLE && k >= 0 && l->last[n->out[0]->id] == k &&
	       l->g->node[k]->op == JM_OP_CONV_WGRAD && 4 * n->in[0]->bytes <= n->out[0]->bytes;
}

/* True if the gradients read y, the result of a ReLU, for the gradient of a filter, and as the mask
 * of its own gradient. The operand has the same mask, and is kept in place of y. */
static bool is_mask_too(const struct remake *l, const struct jm_tensor *y)
{
	int readers = 0;

	for (int k = l->first[y->id]; k <= l->last[y->id]; k++)
		readers += jm_node_reads(l->g->node[k], y);
	return readers == 2 && l->g->node[l->last[y->id]]->op == JM_OP_RELU_GRAD;
}

/*
 * True if only a convolution with a filter for each channel reads the result of n, a norm with ReLU
 * or a ReLU of what is no convolution, and of the gradients only that of its filter: both may norm
 * the image as they read it, so that it is never stored.
 */
static bool is_normed_again(const struct remake *l, const struct jm_node *n)
{
	const struct jm_tensor *y = n->out[0];
	int f = l->forward[y->id], k = l->first[y->id];
	const struct jm_node *conv = f > n->id ? l->g->node[f] : NULL,
			     *maker = n->in[0] ? jm_graph_cell(l->g, n->in[0])->producer : NULL;
	bool norm = n->op == JM_OP_BN_APPLY && n->attr.bn.relu && !n->in[5];
	bool relu = n->op == JM_OP_RELU && maker && maker->op != JM_OP_CONV;

	if (!l->beside || (!norm && !relu) || jm_dtype_bytes(y->type) != 2 || k < 0 ||
		(norm ? l->last[y->id] != k : !is_mask_too(l, y)) || !conv ||
		conv->op != JM_OP_CONV || conv->in[0] != y || conv->attr.conv.groups != y->dim[1] ||
		conv->attr.conv.stride[0] > 1 || l->g->node[k]->op != JM_OP_CONV_WGRAD)
		return false;
	for (int i = n->id + 1; i < f; i++)
		if (jm_node_reads(l->g->node[i], y))
			return false;
	return true;
}

/* True if only node `by` of the forward pass reads the result of n, and of the gradients only one,
 * whose op it is. */
static bool has_readers(
	const struct remake *l, const struct jm_node *n, const struct jm_node *by, enum jm_op grad)
{
	int id = n->out[0]->id;

	for (int i = n->id + 1; i < by->id; i++)
		if (jm_node_reads(l->g->node[i], n->out[0]))
			return false;
	return l->forward[id] == by->id && l->first[id] >= 0 && l->first[id] == l->last[id] &&
	       l->g->node[l->first[id]]->op == grad;
}

/* The first of two narrow layers in f32 if n is the activation between them, and the gradients of
 * all three follow each other, so that they become a group with both computed again (group.c);
 * NULL = n is not such an activation. */
static const struct jm_node *hidden_first(const struct remake *l, const struct jm_node *n)
{
	const struct jm_node *first, *second, *const *grad;
	int f, k;

	if (!l->beside || n->op != JM_OP_GELU_ERF || n->out[0]->type != JM_F32)
		return NULL;
	first = jm_graph_cell(l->g, n->in[0])->producer;
	f = l->forward[n->out[0]->id];
	k = l->first[n->out[0]->id];
	if (!first || first->op != JM_OP_LINEAR || first->math != JM_MATH_F32 || f <= n->id ||
		k < 0 || k + 4 >= l->n_nodes)
		return NULL;
	second = l->g->node[f];
	if (second->op != JM_OP_LINEAR || jm_tensor_width(first->in[0]) > HIDDEN_FROM ||
		jm_tensor_width(n->out[0]) > HIDDEN_WIDTH ||
		jm_tensor_width(second->out[0]) > HIDDEN_TO ||
		!has_readers(l, first, n, JM_OP_GELU_ERF_GRAD) ||
		!has_readers(l, n, second, JM_OP_LINEAR_WGRAD))
		return NULL;
	grad = (const struct jm_node *const *)l->g->node + k;
	return grad[1]->op == JM_OP_LINEAR_DGRAD && grad[2]->op == JM_OP_GELU_ERF_GRAD &&
			       grad[3]->op == JM_OP_LINEAR_WGRAD &&
			       grad[3]->in[1] == first->in[0] && grad[4]->op == JM_OP_LINEAR_DGRAD
		       ? first
		       : NULL;
}

/* True if n makes the input of the first of two such layers: it is kept for their gradients. */
static bool feeds_hidden(const struct remake *l, const struct jm_node *n)
{
	int f = l->forward[n->out[0]->id];

	for (int i = n->id + 1; i < f; i++)
		if (jm_node_reads(l->g->node[i], n->out[0]))
			return false;
	return f > n->id && f + 1 < l->g->n_forward && l->g->node[f]->op == JM_OP_LINEAR &&
	       hidden_first(l, l->g->node[f + 1]) == l->g->node[f];
}

/* True for an activation that is chosen whatever the budget. */
static bool is_wanted(const struct remake *l, const struct jm_node *n)
{
	return n->op != JM_OP_BN_APPLY && runs_beside(l, n);
}

/* True for what is chosen whatever the budget. */
static bool is_free(const struct remake *l, const struct jm_node *n)
{
	return is_wanted(l, n) || grows_again(l, n) || is_normed_again(l, n) || hidden_first(l, n);
}

/* True for a norm to which something is added: as the result of the one before it is added to each
 * in a residual network, only some of them can be recomputed. */
static bool is_sum(const struct remake *l, const struct jm_node *n)
{
	return l->limited && n->op == JM_OP_BN_APPLY && n->in[5];
}

/* False if what is chosen already needs the result, or recomputes an operand, which would be
 * available too late. */
static bool is_left(const struct remake *l, const struct jm_node *n)
{
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i] && l->twin[n->in[i]->id])
			return false;
	return !l->needed[n->out[0]->id];
}

/* A duplicate with separate results and without running state, which is updated only once. */
static struct jm_node *duplicate(struct remake *l, const struct jm_node *n)
{
	struct jm_tensor *out[JM_NODE_OUT] = {0};
	struct jm_node *again;

	for (int i = 0; i < n->n_out; i++)
		if (n->out[i] && n->out[i]->class != JM_CLASS_STATE)
			out[i] = jm_duplicate_tensor(l->g, n->out[i]);
	again = jm_duplicate_node(l->g, n, out);
	for (int i = 0; again && i < n->n_in; i++) {
		if (!n->in[i])
			continue;
		l->needed[n->in[i]->id] = true;
		if (l->twin[n->in[i]->id])
			again->in[i] = l->twin[n->in[i]->id];
	}
	return again;
}

/* Duplicates a costly node for node k of the gradients, and before it those whose results it reads
 * and that are gone by then. */
static void duplicate_chain(struct remake *l, const struct jm_node *n, int k)
{
	struct jm_node *again;

	for (int i = 0; i < n->n_in; i++) {
		const struct jm_node *maker = maker_of(l, n, i, k);

		if (maker)
			duplicate_chain(l, maker, k);
	}
	again = duplicate(l, n);
	for (int i = 0; again && i < n->n_out; i++)
		if (again->out[i])
			rename_reads(l, n->out[i], again->out[i]);
}

/* The cheap node whose result n quantizes, if no gradient reads that result: both are computed
 * again.
 * NULL = n is not such a node. */
static const struct jm_node *first_of_two(const struct remake *l, const struct jm_node *n)
{
	const struct jm_node *maker = jm_graph_cell(l->g, n->in[0])->producer;

	if (n->op != JM_OP_QUANTIZE || n->out[0]->class != JM_CLASS_ACT || !maker ||
		maker->id >= l->g->n_forward || !is_cheap(l, maker) || l->first[n->in[0]->id] >= 0)
		return NULL;
	return maker;
}

/* Duplicates the node; only its first result is read, unless the node is costly. */
static void make_duplicate(struct remake *l, const struct jm_node *n)
{
	const struct jm_node *hidden = hidden_first(l, n),
			     *first = hidden ? hidden : first_of_two(l, n);
	struct jm_node *before, *again;
	bool normed;

	if (is_costly(l, n)) {
		duplicate_chain(l, n, l->first[n->out[0]->id]);
		return;
	}
	before = first ? duplicate(l, first) : NULL;
	again = duplicate(l, n);
	if (!again || (first && !before))
		return;
	normed = is_normed_again(l, n);
	again->beside = !hidden && runs_beside(l, n);
	/* the same elements, whether or not they are stored */
	if (grows_again(l, n) || normed || hidden)
		jm_graph_cell(l->g, n->out[0])->kept = false;
	if (hidden) {
		jm_graph_cell(l->g, first->out[0])->kept = false;
		rename_reads(l, first->out[0], before->out[0]);
	}
	if (normed)
		again->beside = l->g->node[n->id]->beside = true;
	if (normed && n->op == JM_OP_RELU)
		l->g->node[l->last[n->out[0]->id]]->in[1] = n->in[0];
	if (before)
		again->in[0] = before->out[0];
	rename_reads(l, n->out[0], again->out[0]);
}

static bool pays(const struct remake *l, const struct jm_node *n)
{
	const struct jm_node *first = first_of_two(l, n);
	int id = n->out[0]->id, k = l->first[id];
	bool kept = n->op == JM_OP_QUANTIZE && n->in[0]->class == JM_CLASS_ACT &&
		    l->last[n->in[0]->id] >= k;

	if (hidden_first(l, n))
		return true;
	if (k < 0 || k - l->forward[id] <= NEAR || feeds_hidden(l, n))
		return false;
	if (first)
		return operands_there(l, first, k) && operands_kept(l, first);
	if (grows_again(l, n) || (n->op == JM_OP_RELU && is_normed_again(l, n)))
		return operands_kept(l, n);
	if (is_costly(l, n))
		return can_follow(l, n, k, CHAIN);
	return (kept || is_cheap(l, n) || is_sum(l, n)) && operands_there(l, n, k) &&
	       operands_kept(l, n);
}

/* ---- selection ------------------------------------------------------------------------------- */

/* The bytes that could be moved in the time of the node and of those before it that are recomputed
 * with it for node k of the gradients. */
static double bytes_of_chain(const struct remake *l, const struct jm_node *n, int k)
{
	double bytes = fmax(n->bytes, n->flops_executed * l->flop_bytes);

	for (int i = 0; i < n->n_in; i++) {
		const struct jm_node *maker = maker_of(l, n, i, k);

		if (maker)
			bytes += bytes_of_chain(l, maker, k);
	}
	return bytes;
}

/* The bytes moved to recompute the node. */
static double bytes_of(const struct remake *l, const struct jm_node *n)
{
	const struct jm_node *first = first_of_two(l, n);

	if (is_costly(l, n))
		return bytes_of_chain(l, n, l->first[n->out[0]->id]);
	if (runs_beside(l, n))
		return (double)n->out[0]->bytes;
	return n->bytes + (first ? first->bytes : 0);
}

/* The time by the roofline: the longer of memory traffic and products. */
static double seconds_of(const struct jm_remake *how, const struct jm_node *n)
{
	bool narrow = n->in[0] && jm_dtype_bytes(n->in[0]->type) == 1 && how->flops_f8 > 0;

	return fmax(
		n->flops_executed / (narrow ? how->flops_f8 : how->flops), n->bytes / how->bytes);
}

/* A trained ResNet (its norms add residual images) or U-Net (group norms) would need more than 0.8
 * of PyTorch's memory with less (docs/gpu-kernels.md, Memory). */
double jm_remake_usual(const struct jm_graph *g)
{
	for (int k = 0; k < g->n_nodes; k++) {
		const struct jm_node *n = g->node[k];
		bool sum = n->op == JM_OP_BN_APPLY && n->in[5];

		if ((sum || n->op == JM_OP_GROUPNORM) && jm_graph_cell(g, n->out[0])->needs_grad)
			return sum ? 0.035 : 0.016;
	}
	return jm_graph_residual(g) ? 0.01 / 16 : 0.01;
}

static double budget_of(const struct jm_graph *g, const struct jm_remake *how)
{
	double sum = 0;

	for (int k = 0; k < g->n_nodes; k++)
		sum += seconds_of(how, g->node[k]);
	return how->share > 0 ? how->share * sum : INFINITY;
}

struct found {
	const struct jm_node *node;
	double gain; /* freed bytes per moved byte */
};

static int better(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return x->gain != y->gain ? (x->gain < y->gain) - (x->gain > y->gain)
				  : x->node->id - y->node->id;
}

/* found: memory for all forward nodes. Returns the number of candidates. */
static int find_all(const struct remake *l, struct found *found)
{
	int n = 0;

	for (int f = 0; f < l->g->n_forward; f++) {
		const struct jm_node *node = l->g->node[f];

		if (!jm_op_is_border(node->op) && pays(l, node))
			found[n++] = (struct found){
				node, (double)node->out[0]->bytes / bytes_of(l, node)};
	}
	return n;
}

/* The seconds left for other nodes: at most half of the budget goes to activations that the kernels
 * of their gradients recompute, which are chosen in any case. */
static double left_for_others(
	const struct remake *l, const struct found *found, int n, const struct jm_remake *how)
{
	double budget = budget_of(l->g, how), beside = 0;

	for (int i = 0; i < n; i++)
		if (is_wanted(l, found[i].node))
			beside += bytes_of(l, found[i].node) / how->bytes;
	return how->share > 0 ? budget - fmin(beside, budget / 2) : budget;
}

static void make_duplicates(struct remake *l, struct found *found, const struct jm_remake *how)
{
	int n = find_all(l, found);
	double left = left_for_others(l, found, n, how);

	if (how->share > 0)
		qsort(found, (size_t)n, sizeof(*found), better);
	for (int i = 0; i < n && !l->g->err.code; i++) {
		const struct jm_node *node = found[i].node;
		bool counts = how->share > 0 && !is_free(l, node);
		double seconds = counts ? bytes_of(l, node) / how->bytes : 0;

		/* a costly node before it in `found` may have recomputed it already */
		if (l->twin[node->out[0]->id] || seconds > left ||
			(is_sum(l, node) && !is_left(l, node)))
			continue;
		left -= seconds;
		make_duplicate(l, node);
	}
}

int jm_graph_rematerialize(struct jm_graph *g, const struct jm_remake *how, struct jm_err *err)
{
	struct jm_remake usual = *how;
	struct found *found = calloc((size_t)g->n_forward + 1, sizeof(*found));
	size_t cells = (size_t)g->n_cells + 1;
	struct remake l = {.g = g,
		.n_cells = g->n_cells,
		.n_nodes = g->n_nodes,
		.positions = how->positions,
		.copies = how->copies,
		.beside = how->beside,
		.flop_bytes = how->flops > 0 ? how->bytes / how->flops : 0,
		.twin = calloc(cells, sizeof(struct jm_tensor *)),
		.needed = calloc(cells, sizeof(bool)),
		.forward = calloc(cells, sizeof(int)),
		.first = calloc(cells, sizeof(int)),
		.last = calloc(cells, sizeof(int))};

	if (isnan(usual.share))
		usual.share = jm_remake_usual(g);
	l.limited = usual.share > 0;
	l.costly = usual.share > ABOVE * jm_remake_usual(g);
	if (found && l.forward && l.first && l.last && l.twin && l.needed &&
		jm_reads_find(&l.reads, g)) {
		find_readers(&l);
		make_duplicates(&l, found, &usual);
	} else {
		jm_err_set(&g->err, JM_ENOMEM, "Out of memory for a graph that recomputes values.");
	}
	free(found);
	free(l.twin);
	free(l.needed);
	free(l.forward);
	free(l.first);
	free(l.last);
	jm_reads_free(&l.reads);
	return g->err.code ? jm_err_set(err, g->err.code, "%s", g->err.text) : 0;
}
