/* SPDX-License-Identifier: Apache-2.0 */
#include "hide_sums.h"
#include "arena.h"
#include "bucket.h"
#include "schedule.h"

#include <stdlib.h>

static bool is_beside(const struct jm_unit *u)
{
	const struct jm_node *n = u->group.node[0];

	return jm_reduce_is_shared(n) && n->op != JM_OP_OWN_ROWS;
}

static bool makes_gradients(const struct jm_unit *u)
{
	const struct jm_node *n = u->group.node[0];

	if (u->group.n_nodes > 1 || u->saved || jm_reduce_is_node(u))
		return false;
	for (int i = 0; i < n->n_out; i++)
		if (n->out[i] && n->out[i]->class != JM_CLASS_GRAD)
			return false;
	return true;
}

/* The first unit behind `at` that uses what the exchange `at` writes, or is an exchange, too: ranks
 * must start those in the same order; n_micro = none. */
static int find_end(const struct jm_program *p, int at)
{
	const struct jm_node *sum = p->unit[at]->group.node[0];
	int i = at + 1;

	while (i < p->n_micro && !jm_reduce_is_node(p->unit[i]) &&
		jm_unit_may_swap(p->unit[i], sum))
		i++;
	return i;
}

/* Puts units before the exchange `at` behind it, until what is there takes as long as the exchange.
 */
static void put_behind(struct jm_program *p, int at)
{
	double needed = jm_reduce_shared_seconds(p->graph, p->unit[at]->group.node[0]), there = 0;

	for (int i = at + 1; i < find_end(p, at); i++)
		there += jm_reduce_product_seconds(p->graph, p->device, p->unit[i]->group.node[0]);
	for (int i = at - 1; i >= p->n_once && there < needed && !jm_reduce_is_node(p->unit[i]);
		i--) {
		double seconds =
			jm_reduce_product_seconds(p->graph, p->device, p->unit[i]->group.node[0]);

		if (!makes_gradients(p->unit[i]) || !jm_unit_put_behind(p, i, at))
			continue;
		there += seconds;
		at--;
	}
}

static struct jm_unit *new_wait(struct jm_graph *g, struct jm_unit *sum)
{
	struct jm_tensor *t = sum->group.node[0]->out[0];
	struct jm_node *node = jm_graph_node(g, JM_OP_ALL_REDUCE_WAIT, &t, &t);

	sum->wait = node ? calloc(1, sizeof(*sum->wait)) : NULL;
	if (!sum->wait)
		return NULL;
	sum->wait->group.n_nodes = 1;
	sum->wait->group.node[0] = node;
	sum->wait->awaited = sum->group.node[0];
	return sum->wait;
}

/* order: room for twice as many units. Waits are put before unit i in the order of their sums. */
static bool insert_waits(struct jm_program *p, struct jm_unit **order)
{
	int n = 0, n_micro = p->n_micro;
	bool good = true;

	for (int i = 0; i <= p->n_units; i++) {
		for (int k = p->n_once; i <= n_micro && k < i - 1; k++) {
			if (!is_beside(p->unit[k]) || find_end(p, k) != i)
				continue;
			order[n] = new_wait(p->graph, p->unit[k]);
			good = good && order[n];
			n += order[n] != NULL;
		}
		if (i == n_micro)
			p->n_micro = n;
		if (i < p->n_units)
			order[n++] = p->unit[i];
	}
	p->n_units = n;
	return good;
}

int jm_program_hide_sums(struct jm_program *p, struct jm_err *err)
{
	struct jm_unit **order;
	bool good;

	if (jm_graph_tp(p->graph) == 1 || jm_graph_ranks(p->graph) > 1)
		return 0;
	for (int i = p->n_once; i < p->n_micro; i++)
		if (is_beside(p->unit[i]))
			put_behind(p, i);
	order = calloc(2 * (size_t)p->n_units + 1, sizeof(*order));
	good = order && insert_waits(p, order);
	if (order) {
		free(p->unit);
		p->unit = order;
		p->cap_units = p->n_units;
	}
	for (int i = 0; i < p->n_units; i++)
		p->unit[i]->position = i;
	return good ? jm_program_places(p, err)
		    : jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
}
