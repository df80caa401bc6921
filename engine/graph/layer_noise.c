/* SPDX-License-Identifier: Apache-2.0 */
/* Functions by which models declare ops on noise. */
#include "layer_noise.h"
#include "layer_private.h"

struct jm_tensor *jm_graph_add_noise(struct jm_graph *g, struct jm_tensor *x,
	struct jm_tensor *noise, struct jm_tensor *at, const struct jm_noise *how,
	struct jm_tensor **ret_target)
{
	struct jm_tensor *y, *target;
	struct jm_node *n;

	if (g->err.code ||
		!jm_layer_fits(
			g, jm_tensor_count(noise) == jm_tensor_count(x), "add-noise", noise) ||
		!jm_layer_fits(g, jm_tensor_count(at) == x->dim[0], "add-noise", at))
		return NULL;
	y = jm_graph_tensor(g, JM_CLASS_ACT, x->type, x->rank, x->dim, "noisy");
	target = jm_graph_tensor(g, JM_CLASS_ACT, g->vector, x->rank, x->dim, "goal");
	n = jm_graph_node(g, JM_OP_ADD_NOISE, OPS(x, noise, at), OPS(y, target));
	if (!n)
		return NULL;
	n->attr.noise.steps = how->steps;
	n->attr.noise.first = how->first;
	n->attr.noise.last = how->last;
	n->attr.noise.velocity = how->velocity;
	*ret_target = target;
	return y;
}

struct jm_tensor *jm_graph_draw_moments(
	struct jm_graph *g, struct jm_tensor *moments, struct jm_tensor *noise, double factor)
{
	struct jm_tensor *y;
	struct jm_node *n;

	if (g->err.code ||
		!jm_layer_fits(g, jm_tensor_count(moments) == 2 * jm_tensor_count(noise),
			"draw-moments", moments) ||
		!jm_layer_fits(g, !jm_graph_cell(g, moments)->needs_grad, "draw-moments", moments))
		return NULL;
	y = jm_graph_tensor(g, JM_CLASS_ACT, moments->type, noise->rank, noise->dim, "drawn");
	n = jm_graph_node(g, JM_OP_DRAW_MOMENTS, OPS(moments, noise), OPS(y));
	if (n)
		n->attr.draw.factor = factor;
	return y;
}

struct jm_tensor *jm_graph_step_waves(struct jm_graph *g, struct jm_tensor *at, int64_t width)
{
	struct jm_tensor *y;

	if (g->err.code || !jm_layer_fits(g, at->rank == 1 && width % 2 == 0, "step-waves", at))
		return NULL;
	y = jm_graph_tensor(g, JM_CLASS_ACT, g->compute, 4, DIMS(at->dim[0], width, 1, 1), "waves");
	jm_graph_node(g, JM_OP_STEP_WAVES, OPS(at), OPS(y));
	return y;
}
