/* SPDX-License-Identifier: Apache-2.0 */
/* The update: flat slabs of parameters, gradients and moments; global norm and update over them. */
#include "graph.h"

#include <stdio.h>

#include "tensor.h"

#define ALIGN	 16 /* elements: 64 bytes of f32, so that every view is aligned */
#define OPS(...) ((struct jm_tensor *const[]){__VA_ARGS__})

static bool is_trained(const struct jm_cell *c)
{
	return c->t.class == JM_CLASS_PARAM && c->grad;
}

/* Gives each trained parameter that decays (or not) its place; returns the elements so far. */
static int64_t place(struct jm_graph *g, bool decays, int64_t n)
{
	for (int i = 0; i < g->n_cells; i++) {
		struct jm_cell *c = g->cell[i];
		size_t offset = (size_t)n * jm_dtype_bytes(g->vector);

		if (!is_trained(c) || (c->t.rank > 1) != decays)
			continue;
		c->slab_offset = jm_graph_cell(g, c->grad)->slab_offset = offset;
		n += (jm_tensor_count(&c->t) + ALIGN - 1) / ALIGN * ALIGN;
	}
	return n;
}

static void make_views(struct jm_graph *g, struct jm_tensor *params, struct jm_tensor *grads)
{
	for (int i = 0; i < g->n_cells; i++) {
		struct jm_cell *c = g->cell[i];

		if (!is_trained(c))
			continue;
		c->slab = params;
		jm_graph_cell(g, c->grad)->slab = grads;
	}
}

static struct jm_tensor *flat(struct jm_graph *g, enum jm_class class, int64_t n, const char *name)
{
	return jm_graph_tensor(g, class, g->vector, 1, &n, name);
}

const char *const jm_update_names[] = {"adamw", "adam", "sgd", NULL};

static struct jm_tensor *state(
	struct jm_graph *g, enum jm_class class, enum jm_update kind, const char *what, int64_t n)
{
	char name[24];

	snprintf(name, sizeof(name), "%s.%s", jm_update_names[kind], what);
	return flat(g, class, n, name);
}

static void set_sgd(struct jm_node *update, const struct jm_adamw *how, int64_t n_decay)
{
	update->attr.sgd.momentum = how->momentum;
	update->attr.sgd.nesterov = how->nesterov;
	update->attr.sgd.weight_decay = how->weight_decay;
	update->attr.sgd.clip = how->clip;
	update->attr.sgd.n_decay = n_decay;
}

static void set_adamw(struct jm_node *update, const struct jm_adamw *how, int64_t n_decay)
{
	update->attr.adamw.beta1 = how->beta1;
	update->attr.adamw.beta2 = how->beta2;
	update->attr.adamw.eps = how->eps;
	update->attr.adamw.weight_decay = how->weight_decay;
	update->attr.adamw.clip = how->clip;
	update->attr.adamw.n_decay = n_decay;
}

static void append_nodes(struct jm_graph *g, const struct jm_adamw *how, int64_t n, int64_t n_decay)
{
	static const enum jm_op ops[] = {JM_OP_ADAMW, JM_OP_ADAM, JM_OP_SGD};
	bool sgd = how->kind == JM_UPDATE_SGD;
	struct jm_tensor *p = flat(g, JM_CLASS_PARAM, n, "slab.parameters");
	struct jm_tensor *d = flat(g, JM_CLASS_GRAD, n, "slab.gradients");
	struct jm_tensor *m = state(g, JM_CLASS_OPT, how->kind, "m", n);
	struct jm_tensor *v = sgd ? NULL : state(g, JM_CLASS_OPT, how->kind, "v", n);
	struct jm_tensor *now = state(g, JM_CLASS_INPUT, how->kind, "now", sgd ? 1 : 3);
	struct jm_tensor *norm = flat(g, JM_CLASS_SCALAR, 1, "grad.norm");
	struct jm_node *update;

	if (g->err.code)
		return;
	make_views(g, p, d);
	g->n_update = 2;
	jm_graph_node(g, JM_OP_NORM, OPS(d), OPS(norm));
	update = jm_graph_node(g, ops[how->kind], OPS(d, norm, now), OPS(p, m, v));
	if (update && sgd)
		set_sgd(update, how, n_decay);
	else if (update)
		set_adamw(update, how, n_decay);
}

int jm_graph_adamw(struct jm_graph *g, const struct jm_adamw *how, struct jm_err *err)
{
	int64_t n_decay = place(g, true, 0);
	int64_t n = place(g, false, n_decay);

	if (!n)
		return jm_err_set(
			err, JM_EBUG, "There is nothing to train: no parameter has a gradient.");
	append_nodes(g, how, n, n_decay);
	return g->err.code ? jm_err_set(err, g->err.code, "%s", g->err.text) : 0;
}
