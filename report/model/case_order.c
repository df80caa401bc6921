/* SPDX-License-Identifier: Apache-2.0 */
#include "case_order.h"
#include "base/stat/stat.h"
#include "base/text/json.h"
#include "base/text/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The x of a number follows from its key. least: of each word of a series; takes: it becomes the x
 * of all. */
static int place_word(json_t *least, struct jm_group_case *c, int dim, bool takes)
{
	struct jm_group_value *v = &c->value[dim];
	double number, known;
	char *name;
	int rc = 0;

	if (jm_number_real(v->key, &number))
		return 0;
	if (asprintf(&name, "%d %d %s", c->series, dim, v->key) < 0)
		return -1;
	known = jm_json_real_of(least, name);
	if (takes)
		v->x = known;
	else if (!isnan(v->x) && !(known <= v->x))
		rc = json_object_set_new_nocheck(least, name, json_real(v->x));
	free(name);
	return rc;
}

static int place_words(struct jm_grouping *g)
{
	json_t *least = json_object();
	int rc = least ? 0 : -1;

	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < g->n_cases; i++)
			for (int k = 0; k < g->n_dims && !rc; k++)
				rc = place_word(least, &g->c[i], k, pass == 1);
	json_decref(least);
	return rc;
}

/* 0 = a run does not have this option. */
static int rank_of(const struct jm_group_value *v)
{
	if (!isnan(v->x))
		return 1;
	return strcmp(v->key, "-") ? 2 : 0;
}

static int by_value(const struct jm_group_value *a, const struct jm_group_value *b)
{
	int by_key = strcmp(a->key, b->key), by_rank = rank_of(a) - rank_of(b),
	    by_x = jm_stat_by_value(&a->x, &b->x);

	if (!by_key)
		return 0;
	return by_rank ? by_rank : by_x ? by_x : by_key;
}

static int repeat_of(const struct jm_group_case *c)
{
	const json_t *of_case = json_object_get(c->record, "case");

	return (int)json_integer_value(json_object_get(of_case, "repeat"));
}

static int compare(const void *pa, const void *pb)
{
	const struct jm_group_case *a = pa, *b = pb;

	if (a->series != b->series)
		return a->series - b->series;
	if (a->reference != b->reference)
		return b->reference - a->reference;
	for (int i = 0; i < JM_GROUP_MAX_DIMS && a->value[i].key; i++) {
		int order = by_value(&a->value[i], &b->value[i]);

		if (order)
			return order;
	}
	if (a->machine != b->machine)
		return a->machine - b->machine;
	if (a->block != b->block)
		return a->block - b->block;
	return repeat_of(a) - repeat_of(b);
}

int jm_cases_sort(struct jm_grouping *g)
{
	int rc = place_words(g);

	qsort(g->c, (size_t)g->n_cases, sizeof(*g->c), compare);
	return rc;
}
