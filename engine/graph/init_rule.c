/* SPDX-License-Identifier: Apache-2.0 */
/* The rules for start values, and the standard deviations that they give by shape. */
#include "init_rule.h"
#include "tensor.h"
#include "tensor_parallel.h"

#include <math.h>
#include <string.h>

#define STD 0.02 /* of rules that have one value for all shapes */

static const struct {
	const char *name, *source;
} rules[] = {
	[JM_INIT_OWN] = {"model", "the model's own"},
	[JM_INIT_ZERO] = {"zeros", ""},
	[JM_INIT_ONE] = {"ones", ""},
	[JM_INIT_NORMAL] = {"normal", ""},
	[JM_INIT_GPT2] = {"gpt2", "Radford et al. 2019"},
	[JM_INIT_HE_NORMAL] = {"he-normal", "He et al., arXiv 1502.01852, by fan-out"},
	[JM_INIT_LECUN_NORMAL] = {"lecun-normal", "LeCun et al. 1998, by fan-in"},
	[JM_INIT_TRUNC_NORMAL] = {"trunc-normal", "Touvron et al., arXiv 2012.12877"},
	[JM_INIT_XAVIER_UNIFORM] = {"xavier-uniform", "Glorot and Bengio 2010"},
	[JM_INIT_UNIFORM] = {"uniform", "from 0 to 1"},
};

const char *const jm_init_names[] = {"model", "gpt2", "he-normal", "lecun-normal", "normal",
	"trunc-normal", "xavier-uniform", NULL};

enum jm_init jm_init_find(const char *name)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
		if (!strcmp(rules[i].name, name))
			return (enum jm_init)i;
	return JM_INIT_OWN;
}

const char *jm_init_name(enum jm_init rule)
{
	return rules[rule].name;
}

const char *jm_init_source(enum jm_init rule)
{
	return rules[rule].source;
}

/* The fan of weights [to, from] or of a filter [to, from, rows, columns]; rows and columns count on
 * both sides. */
static double fan(const struct jm_graph *g, const struct jm_cell *c, int side)
{
	const struct jm_tensor *t = &c->t;
	double window = t->rank == 4 ? (double)(t->dim[2] * t->dim[3]) : 1;

	return (double)jm_cell_dim(g, c, side) * window;
}

/* The number of terms in GPT-2's residual stream, two per layer, whose root divides the
 * deviation. */
static double parts(const struct jm_graph *g)
{
	int n = 0;

	for (int i = 0; i < g->n_cells; i++)
		n += g->cell[i]->ends_block && g->cell[i]->t.rank > 1;
	return n ? n : 1;
}

double jm_init_std(const struct jm_graph *g, const struct jm_cell *c)
{
	double std = c->init_std > 0 ? c->init_std : STD;

	switch (c->init) {
	case JM_INIT_NORMAL:
		return std;
	case JM_INIT_TRUNC_NORMAL:
		return std * JM_INIT_CUT_STD;
	case JM_INIT_GPT2:
		return c->ends_block ? std / sqrt(parts(g)) : std;
	case JM_INIT_HE_NORMAL:
		return sqrt(2 / fan(g, c, 0));
	case JM_INIT_LECUN_NORMAL:
		return sqrt(1 / fan(g, c, 1));
	case JM_INIT_XAVIER_UNIFORM:
		return sqrt(2 / (fan(g, c, 0) + fan(g, c, 1)));
	case JM_INIT_UNIFORM:
		return sqrt(1.0 / 12);
	case JM_INIT_OWN:
	case JM_INIT_ZERO:
	case JM_INIT_ONE:
	case JM_INIT_COUNT:
		break;
	}
	return 0;
}

void jm_init_replace(struct jm_graph *g, enum jm_init rule)
{
	for (int i = 0; i < g->n_cells; i++) {
		struct jm_cell *c = g->cell[i];

		if (c->t.class != JM_CLASS_PARAM || c->t.rank < 2 || c->table)
			continue;
		c->init = rule;
		c->init_std = 0;
	}
}

int jm_init_zero_gamma(struct jm_graph *g, struct jm_err *err)
{
	int n = 0;

	for (int i = 0; i < g->n_cells; i++) {
		struct jm_cell *c = g->cell[i];

		if (!c->ends_block || c->t.rank > 1)
			continue;
		c->init = JM_INIT_ZERO;
		n++;
	}
	if (n)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--zero-gamma applies to networks whose residual blocks end in a batch norm, which "
		"this one does not have; omit it.");
}
