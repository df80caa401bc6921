/* SPDX-License-Identifier: Apache-2.0 */
#include "pareto.h"

static bool beats(const struct jm_group_point *a, const struct jm_group_point *b)
{
	double speed = a->stat[JM_M_THROUGHPUT].mean - b->stat[JM_M_THROUGHPUT].mean;
	double efficiency = a->stat[JM_M_ITEMS_JOULE].mean - b->stat[JM_M_ITEMS_JOULE].mean;

	return a->eligible && speed >= 0 && efficiency >= 0 && (speed > 0 || efficiency > 0);
}

void jm_pareto_mark(struct jm_grouping *g, const struct jm_group_series *s)
{
	struct jm_group_point *first = &g->point[s->first_point];

	for (int i = 0; i < s->n_points; i++) {
		first[i].pareto = first[i].eligible && first[i].stat[JM_M_THROUGHPUT].n &&
				  first[i].stat[JM_M_ITEMS_JOULE].n;
		for (int k = 0; k < s->n_points && first[i].pareto; k++)
			first[i].pareto = !beats(&first[k], &first[i]);
	}
}
