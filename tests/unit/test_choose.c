/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choices of a program against all there are: a backend whose costs are random numbers, on chains and
 * on networks with side paths, where trying everything tells what the least cost is.
 */
#include <stdlib.h>

#include "engine/kit.h"
#include "engine/program.h"
#include "engine/rng.h"
#include "unit/test.h"

#define NODES  7
#define ROUNDS 40

extern const struct jm_backend jm_backend_ref;

/* A layout each: plain, and columns first. A reorder between them takes one second. */
static const struct jm_layout layouts[2] = {{0}, {.rank = 2, .order = {1, 0}}};

/* Node i reads the result of node from[i][0] - 1 (0: the input), and of from[i][1] - 1 where that is not
 * negative. A follower leaves its result as its first operand comes, and takes no other. */
struct world {
	int from[NODES][2];
	bool follows[NODES];
	double seconds[NODES][2][2]; /* [layout of operands][of the result] */
};

static int layout_number(const struct jm_layout *l)
{
	return l->rank ? 1 : 0;
}

static double number(uint64_t seed, int i)
{
	return (double)(jm_rng(seed, (uint64_t)i) % 1000) / 500;
}

static void make_world(struct world *w, int seed, bool side_paths)
{
	uint64_t key = (uint64_t)seed + (side_paths ? 1000 : 0);

	for (int i = 0; i < NODES; i++) {
		w->from[i][0] = i;
		w->from[i][1] = -1;
		if (side_paths && i > 1 && number(key, 100 + i) < 1)
			w->from[i][1] = i - (i > 2 && number(key, 200 + i) < 1 ? 2 : 1);
		w->follows[i] = number(key, 300 + i) < 0.5;
		for (int k = 0; k < 4; k++)
			w->seconds[i][k / 2][k % 2] = number(key, 4 * i + k);
	}
}

/* ---- the truth ------------------------------------------------------------------------------------------ */

/* lies: of the input and of the results so far. What a node costs with operands and result so. */
static double node_cost(const struct world *w, const int *lies, int i, int in, int out)
{
	double cost = w->seconds[i][in][out];

	for (int k = 0; k < 2; k++)
		if (w->from[i][k] >= 0)
			cost += lies[w->from[i][k]] != in;
	return cost;
}

static bool is_offered(const struct world *w, const int *lies, int i, int in, int out)
{
	return !w->follows[i] || (in == out && in == lies[w->from[i][0]]);
}

/* Of all choices from node i on; greedy: only of the cheapest at each. */
static double least_cost(const struct world *w, int *lies, int i, bool greedy)
{
	double best = INFINITY, first = INFINITY;

	for (int k = 0; k < 4 && i < NODES; k++) {
		int in = k / 2, out = k % 2;
		double cost = node_cost(w, lies, i, in, out);

		if (!is_offered(w, lies, i, in, out) || (greedy && !(cost < first)))
			continue;
		first = cost;
		lies[i + 1] = out;
		cost += least_cost(w, lies, i + 1, greedy);
		if (greedy || cost < best)
			best = cost;
	}
	return i < NODES ? best : 0;
}

/* ---- the backend ---------------------------------------------------------------------------------------- */

struct fake {
	const struct world *world;
	const struct jm_graph *graph;
	int asked;
};

static int fake_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	struct fake *f = dev;
	const struct jm_node *n = group->node[0];
	int arrives = layout_number(&n->in[0]->layout), count = 0;

	(void)err;
	f->asked++;
	if (n->op == JM_OP_CAST || n->id >= NODES) {
		choice->in[0][0] = n->in[0]->layout;
		choice->out[0][0] = n->out[0]->layout;
		choice->seconds = 0;
		return 1;
	}
	for (int k = 0; k < 4; k++) {
		int in = k / 2, out = k % 2;

		if (f->world->follows[n->id] && (in != out || in != arrives))
			continue;
		for (int i = 0; i < n->n_in; i++)
			choice[count].in[0][i] = layouts[in];
		choice[count].out[0][0] = layouts[out];
		choice[count++].seconds = f->world->seconds[n->id][in][out];
	}
	return count;
}

static double planned_cost(const struct jm_program *p)
{
	double cost = 0;

	for (int i = 0; i < p->n_units; i++) {
		const struct jm_node *n = p->unit[i]->group.node[0];

		cost += n->op == JM_OP_CAST ? 1 : p->unit[i]->choice.seconds;
	}
	return cost;
}

static struct jm_graph *graph_of(const struct world *w)
{
	struct jm_graph *g = jm_graph_new(JM_F32);
	struct jm_tensor *t[NODES + 1];

	t[0] = jm_graph_input(g, "x", JM_F32, 2, DIMS(8, 16));
	for (int i = 0; i < NODES; i++) {
		struct jm_tensor *a = t[w->from[i][0]];

		t[i + 1] = w->from[i][1] < 0 ? jm_graph_relu(g, a)
					     : jm_graph_add(g, a, t[w->from[i][1]]);
	}
	assert_int_equal(g->err.code, 0);
	return g;
}

/* Returns how many times the greedy way costs more. */
static int compare(bool side_paths)
{
	struct jm_backend backend = jm_backend_ref;
	int worse = 0;

	backend.select = fake_select;
	for (int round = 0; round < ROUNDS; round++) {
		int lies[NODES + 1] = {0};
		struct jm_err err = JM_ERR_INIT;
		struct jm_program *p;
		struct jm_device d;
		struct world w;
		struct fake fake = {.world = &w};
		double least, greedy;
		void *ref_dev;

		make_world(&w, round, side_paths);
		assert_ok(jm_device_open("ref", 0, &d, &err), err);
		ref_dev = d.dev;
		d.backend = &backend;
		d.dev = &fake;
		d.props.peak_bytes = 2 * 8 * 16 * 4;
		fake.graph = graph_of(&w);
		assert_ok(jm_program_plan((struct jm_graph *)fake.graph, &d, &p, &err), err);
		least = least_cost(&w, lies, 0, false);
		greedy = least_cost(&w, lies, 0, true);
		assert_near(planned_cost(p), least, 1e-9);
		assert_true(greedy > least - 1e-9);
		worse += greedy > least + 1e-9;
		assert_true(fake.asked < 20 * NODES);
		jm_program_free(p);
		jm_graph_free((struct jm_graph *)fake.graph);
		d.backend = &jm_backend_ref;
		d.dev = ref_dev;
		jm_device_close(&d);
	}
	return worse;
}

static void least_along_chains(void **unused)
{
	(void)unused;
	assert_true(compare(false) > ROUNDS / 4);
}

static void least_with_side_paths(void **unused)
{
	(void)unused;
	assert_true(compare(true) > ROUNDS / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(least_along_chains),
		cmocka_unit_test(least_with_side_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
