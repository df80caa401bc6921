/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logits are sums over the K features x of a sample, with weights of standard deviation s: their
 * variance is
 * v = s^2 sum(x^2), which is s^2 K behind a norm. The loss is log(sum(exp(logits))), of which the
 * mean is at most ln(classes) + v/2, less the logit of the target, whose mean over n independent
 * targets has the spread sqrt(v/n). A weighted sum of losses lies between the sums of their bounds.
 */
#include "first_loss.h"

#include <math.h>
#include <stddef.h>

#include "engine/graph/init_rule.h"
#include "engine/graph/tensor.h"

#define SPREADS 5   /* by chance: once in more than a million */
#define ROUNDED 0.1 /* what rounding in 8 and 16 bits may add */
/* Mean square of features that no norm has made, at most: those of ResNets are sums of up to four
 * norms' results, of which ReLU leaves half, averaged over the image. */
#define NO_NORM 4

static const struct jm_node *maker_of(const struct jm_graph *g, const struct jm_tensor *t)
{
	const struct jm_node *n = jm_graph_cell(g, t)->producer;

	while (n && n->op == JM_OP_CAST)
		n = jm_graph_cell(g, n->in[0])->producer;
	return n;
}

/* The parameter that the factor is, or is a copy of; NULL = it is none. */
static const struct jm_cell *parameter_of(const struct jm_graph *g, const struct jm_tensor *w)
{
	const struct jm_cell *c = jm_graph_cell(g, w);

	if (c->origin) /* copies that persist are of class PARAM, too */
		c = jm_graph_cell(g, c->origin);
	return c->t.class == JM_CLASS_PARAM ? c : NULL;
}

/* Of the logits; NAN = unknown. ret_alike: the largest logit of a feature vector that is a row of
 * the weights itself. */
static double variance(const struct jm_graph *g, const struct jm_node *logits, double *ret_alike)
{
	const struct jm_cell *w = parameter_of(g, logits->in[1]);
	const struct jm_node *x = maker_of(g, logits->in[0]);
	double width = (double)jm_tensor_width(logits->in[0]), std;
	bool norm = x && (x->op == JM_OP_LAYERNORM || x->op == JM_OP_RMSNORM);

	if (!w)
		return NAN;
	std = jm_init_std(g, w);
	*ret_alike = w->table ? width * std : 0;
	return width * std * std * (norm ? 1 : NO_NORM) / (1 - g->dropout);
}

/* Adds those of one loss; false: they are unknown. */
static bool add_bounds(const struct jm_graph *g, const struct jm_node *loss, int64_t targets,
	struct jm_first_loss *sum)
{
	const struct jm_node *logits = maker_of(g, loss->in[0]);
	int64_t some = loss->attr.xent.classes;
	double alike = 0, v, guess, chance, weight = loss->attr.xent.weight;

	if (!logits || logits->op != JM_OP_LINEAR)
		return false;
	v = variance(g, logits, &alike);
	if (isnan(v))
		return false;
	sum->classes = some ? some : jm_tensor_width(loss->in[0]);
	guess = log((double)sum->classes);
	chance = SPREADS * sqrt(v / (double)targets) + ROUNDED;
	sum->guess += weight * guess;
	/* where the table of the embedding is that of the logits, the token that is read seems to
	 * follow */
	sum->least += weight * (guess - alike - chance);
	sum->most += weight * (fmax(guess + v / 2, alike) + chance);
	return true;
}

bool jm_first_loss(const struct jm_graph *g, int64_t targets, struct jm_first_loss *ret)
{
	bool known = true;

	*ret = (struct jm_first_loss){0};
	for (int k = 0; k < g->n_nodes && known; k++)
		if (g->node[k]->op == JM_OP_SOFTMAX_XENT)
			known = add_bounds(g, g->node[k], targets, ret);
	return known && ret->classes;
}
