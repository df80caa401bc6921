/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choices of a program compared with exhaustive search: a backend whose costs are random
 * numbers, on chains and on networks with side paths. Then backends whose offers are given by a
 * table, for special cases: copies, sums, groups that are refused.
 */
#include <stdlib.h>

#include "kit/engine_kit.h"
#include "engine/run/program.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "engine/graph/duplicate_node.h"
#include "kit/test.h"
#include "engine/graph/layer.h"

#define NODES  7
#define ROUNDS 40

extern const struct jm_backend jm_backend_ref;

/* A layout each: plain, and columns first. A reorder between them takes one second. */
static const struct jm_layout layouts[2] = {{0}, {.rank = 2, .order = {1, 0}}};

/* Node i reads the result of node from[i][0] - 1 (0: the input), and of from[i][1] - 1 where that
 * is not negative. A follower leaves its result as its first operand comes, and takes no other. */
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

/* ---- the truth ------------------------------------------------------------------------------- */

/* The cost of a node with these layouts of operands and result. lies: layouts of the input and of
 * the results so far. */
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

/* ---- the backend ----------------------------------------------------------------------------- */

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

/* Every tensor has the layout that its readers and writers were given; every unit has the memory it
 * requested. */
static void check_units(const struct jm_program *p)
{
	for (int i = 0; i < p->n_units; i++) {
		const struct jm_unit *u = p->unit[i];

		assert_in_range(u->scratch ? u->scratch->bytes : 0, u->choice.scratch,
			u->choice.scratch + 3);
		assert_in_range(
			u->saved ? u->saved->bytes : 0, u->choice.saved, u->choice.saved + 3);
	}
	for (int i = 0; i < p->n_units; i++)
		for (int k = 0; k < p->unit[i]->group.n_nodes; k++) {
			const struct jm_node *n = p->unit[i]->group.node[k];
			const struct jm_choice *c = &p->unit[i]->choice;

			for (int j = 0; j < n->n_in; j++)
				assert_true(!n->in[j] || n->in[j]->is_virtual ||
					    jm_layout_equal(&n->in[j]->layout, &c->in[k][j]));
			for (int j = 0; j < n->n_out; j++)
				assert_true(!n->out[j] ||
					    jm_layout_equal(&n->out[j]->layout, &c->out[k][j]));
		}
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
		check_units(p);
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

/* ---- offers from a table --------------------------------------------------------------------- */

/* Layouts by number. A table ends where nothing takes time. */
struct offer {
	enum jm_op op; /* of the first node */
	int n_nodes;
	double seconds;
	int in, weight, out; /* first operand, second, result of the first node */
	int last;	     /* result of the second node */
	bool adds;	     /* to be added to what is there, and only then */
	bool if_plain;	     /* refused where the first operand has another layout */
};

#define ODD_SCRATCH 1000 /* bytes, of a cast into the layout that is not plain */

#define OFFER(of, n, s, ...)                                                                       \
	{                                                                                          \
		.op = JM_OP_##of, .n_nodes = (n), .seconds = (s), __VA_ARGS__                      \
	}

static int table_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	int count = 0;

	(void)err;
	if (n->op == JM_OP_CAST) {
		choice->in[0][0] = n->in[0]->layout;
		choice->out[0][0] = n->out[0]->layout;
		choice->scratch = layout_number(&n->out[0]->layout) ? ODD_SCRATCH : 0;
		return 1;
	}
	for (const struct offer *o = dev; o->n_nodes; o++) {
		if (o->op != n->op || o->n_nodes != group->n_nodes || o->adds != !!n->accumulate ||
			(o->if_plain && layout_number(&n->in[0]->layout)))
			continue;
		choice[count].in[0][0] = layouts[o->in];
		choice[count].in[0][1] = layouts[o->weight];
		choice[count].out[0][0] = choice[count].in[1][0] = layouts[o->out];
		choice[count].out[1][0] = layouts[o->last];
		choice[count++].seconds = o->seconds;
	}
	return count;
}

struct table_case {
	struct jm_backend backend;
	struct jm_device device;
	void *ref_dev;
	struct jm_graph *g;
	struct jm_program *p;
	struct jm_tensor *x, *w; /* 512 bytes each in f32, of which a reorder takes a second */
};

static void table_open(struct table_case *c, enum jm_dtype precision)
{
	struct jm_err err = JM_ERR_INIT;

	*c = (struct table_case){.backend = jm_backend_ref};
	assert_ok(jm_device_open("ref", 0, &c->device, &err), err);
	c->ref_dev = c->device.dev;
	c->backend.select = table_select;
	c->device.backend = &c->backend;
	c->device.props.peak_bytes = 2 * 8 * 16 * 4;
	c->g = jm_graph_new(precision);
	c->x = jm_graph_input(c->g, "x", precision, 2, DIMS(8, 16));
	c->w = jm_graph_input(c->g, "w", precision, 2, DIMS(16, 16));
}

static void table_plan(struct table_case *c, struct offer *offers)
{
	struct jm_err err = JM_ERR_INIT;

	assert_int_equal(c->g->err.code, 0);
	c->device.dev = offers;
	assert_ok(jm_program_plan(c->g, &c->device, &c->p, &err), err);
	check_units(c->p);
}

static void table_close(struct table_case *c)
{
	jm_program_free(c->p);
	jm_graph_free(c->g);
	c->device.backend = &jm_backend_ref;
	c->device.dev = c->ref_dev;
	jm_device_close(&c->device);
}

static int count_units(const struct jm_program *p, enum jm_op op, int n_nodes)
{
	int n = 0;

	for (int i = 0; i < p->n_units; i++)
		n += p->unit[i]->group.node[0]->op == op && p->unit[i]->group.n_nodes == n_nodes;
	return n;
}

/* A second node that adds what the op makes of x to t. */
static void add_to(struct table_case *c, enum jm_op op, struct jm_tensor *t)
{
	jm_graph_node(c->g, op, OPS(c->x), &t)->accumulate = 1;
}

static void given_layouts_stay(void **unused)
{
	struct offer offers[] = {OFFER(RELU, 1, 0.6), OFFER(RELU, 1, 0.5, .in = 1), {0}};
	struct table_case c;
	struct jm_tensor *t;

	(void)unused;
	table_open(&c, JM_F32);
	t = jm_graph_tensor(c.g, JM_CLASS_ACT, JM_F32, 2, c.x->dim, "turned");
	t->layout = layouts[1];
	jm_graph_node(c.g, JM_OP_CAST, OPS(c.x), &t);
	jm_graph_relu(c.g, t);
	table_plan(&c, offers);
	assert_int_equal(layout_number(&t->layout), 1);
	assert_int_equal(count_units(c.p, JM_OP_CAST, 1), 1);
	table_close(&c);
}

/* The first reader of a parameter's copy has it made as it likes, for nothing. Who reads the
 * parameter itself gets another. */
static void copies_are_open(void **unused)
{
	struct offer offers[] = {OFFER(LINEAR, 1, 0.5), OFFER(LINEAR, 1, 0.1, .weight = 1),
		OFFER(RELU, 1, 0.1, .in = 1), {0}};
	struct table_case c;
	struct jm_node *direct, *first;
	struct jm_tensor *w;

	(void)unused;
	table_open(&c, JM_BF16);
	w = jm_graph_matrix(c.g, "weight", JM_INIT_OWN, 16, 16);
	first = jm_graph_cell(c.g, jm_graph_linear(c.g, c.x, w, NULL))->producer;
	jm_graph_linear(c.g, c.x, w, NULL);
	direct = jm_graph_cell(c.g, jm_graph_relu(c.g, w))->producer;
	table_plan(&c, offers);
	assert_int_equal(layout_number(&first->in[1]->layout), 1);
	assert_int_equal(direct->in[0]->type, w->type);
	assert_int_equal(count_units(c.p, JM_OP_CAST, 1), 2);
	table_close(&c);
}

/* A parameter in its own type is brought into another layout once, whoever reads it. */
static void reorders_are_shared(void **unused)
{
	struct offer offers[] = {OFFER(LINEAR, 1, 0.1, .weight = 1), {0}};
	struct table_case c;
	struct jm_tensor *w;

	(void)unused;
	table_open(&c, JM_F32);
	w = jm_graph_matrix(c.g, "weight", JM_INIT_OWN, 16, 16);
	for (int i = 0; i < 3; i++)
		jm_graph_linear(c.g, c.x, w, NULL);
	table_plan(&c, offers);
	assert_int_equal(count_units(c.p, JM_OP_CAST, 1), 1);
	table_close(&c);
}

/* A later reader gets the existing layout: the layout for the pair costs another second. */
static void copies_are_open_once(void **unused)
{
	struct offer offers[] = {OFFER(LINEAR, 1, 0.1), OFFER(LINEAR, 2, 1),
		OFFER(LINEAR, 2, 0.5, .weight = 1), {0}};
	struct table_case c;
	struct jm_tensor *w;

	(void)unused;
	table_open(&c, JM_BF16);
	w = jm_graph_matrix(c.g, "weight", JM_INIT_OWN, 16, 16);
	jm_graph_linear(c.g, c.x, w, NULL);
	jm_graph_gelu(c.g, jm_graph_linear(c.g, c.x, w, NULL));
	table_plan(&c, offers);
	assert_int_equal(count_units(c.p, JM_OP_LINEAR, 2), 1);
	assert_int_equal(count_units(c.p, JM_OP_CAST, 1), 1);
	table_close(&c);
}

static void refusals_cost(void **unused)
{
	struct offer offers[] = {OFFER(RELU, 1, 1), OFFER(RELU, 1, 0.5, .out = 1),
		OFFER(LINEAR, 2, 4, .if_plain = true), OFFER(LINEAR, 1, 3),
		OFFER(LINEAR, 1, 3, .in = 1), OFFER(GELU, 1, 3), {0}};
	struct table_case c;
	struct jm_tensor *y;

	(void)unused;
	table_open(&c, JM_F32);
	y = jm_graph_linear(c.g, jm_graph_relu(c.g, c.x), c.w, NULL);
	jm_graph_gelu(c.g, y);
	table_plan(&c, offers);
	assert_int_equal(count_units(c.p, JM_OP_LINEAR, 2), 1);
	assert_true(y->is_virtual);
	table_close(&c);
}

/* Neighbours of which the second does not read the first are no group. */
static void groups_read_each_other(void **unused)
{
	struct offer offers[] = {
		OFFER(LINEAR, 2, 0.1), OFFER(LINEAR, 1, 1), OFFER(GELU, 1, 1), {0}};
	struct table_case c;

	(void)unused;
	table_open(&c, JM_F32);
	jm_graph_linear(c.g, c.x, c.w, NULL);
	jm_graph_gelu(c.g, c.x);
	table_plan(&c, offers);
	assert_int_equal(c.p->n_units, 2);
	table_close(&c);
}

/* What runs a second time must leave the same bits: nothing of it may stay inside a group. */
static void what_runs_twice_is_written(void **unused)
{
	struct offer offers[] = {OFFER(LINEAR, 2, 1), {0}};

	(void)unused;
	for (int twice = 0; twice < 2; twice++) {
		struct table_case c;
		struct jm_tensor *y;

		table_open(&c, JM_F32);
		y = jm_graph_linear(c.g, c.x, c.w, NULL);
		jm_graph_gelu(c.g, y);
		if (twice)
			jm_duplicate_tensor(c.g, y);
		table_plan(&c, offers);
		assert_int_equal(y->is_virtual, !twice);
		table_close(&c);
	}
}

/* 1.5 s of it: three times the bytes of the sum. */
static void adds_cost(void **unused)
{
	struct offer offers[] = {OFFER(RELU, 1, 1), OFFER(RELU, 1, 1.5, .out = 1),
		OFFER(RELU, 1, 1, .out = 1, .adds = true), OFFER(ADD, 1, 0.1), {0}};
	struct table_case c;

	(void)unused;
	table_open(&c, JM_F32);
	add_to(&c, JM_OP_RELU, jm_graph_relu(c.g, c.x));
	table_plan(&c, offers);
	assert_int_equal(count_units(c.p, JM_OP_ADD, 1), 0);
	table_close(&c);
}

static struct jm_tensor *alias_of(const struct table_case *c, const struct jm_tensor *t)
{
	return jm_graph_cell(c->g, t)->alias;
}

/* A result takes the memory of its first operand where this is not read again: not if it is read
 * twice, nor if the result existed before, nor in groups, which do not support it. */
static void what_is_in_place(void **unused)
{
	struct offer offers[] = {OFFER(RELU, 1, 1), OFFER(RELU, 1, 1, .adds = true),
		OFFER(ADD, 1, 1), OFFER(ADD, 2, 1), {0}};
	struct jm_tensor *before, *after, *twice, *sum, *part, *joined;
	struct table_case c;

	(void)unused;
	table_open(&c, JM_F32);
	before = jm_graph_relu(c.g, c.x);
	after = jm_graph_relu(c.g, before);
	twice = jm_graph_add(c.g, after, after);
	part = jm_graph_relu(c.g, c.x);
	joined = jm_graph_relu(c.g, c.x);
	jm_graph_node(c.g, JM_OP_RELU, OPS(joined), &part)->accumulate = 1;
	sum = jm_graph_add(c.g, part, twice);
	jm_graph_rmsnorm(c.g, sum, jm_graph_vector(c.g, "gamma", JM_INIT_ONE, 16), 1e-5);
	jm_graph_relu(c.g, sum);
	table_plan(&c, offers);
	assert_int_equal(count_units(c.p, JM_OP_ADD, 2), 1);
	assert_ptr_equal(alias_of(&c, after), before);
	assert_null(alias_of(&c, twice));
	assert_null(alias_of(&c, part));
	assert_null(alias_of(&c, sum));
	table_close(&c);
}

/* An addend must have the layout of the sum, or is converted, which costs a second. */
static void parts_cost(void **unused)
{
	struct offer offers[] = {OFFER(RELU, 1, 0.1), OFFER(SILU, 1, 0.5, .out = 1),
		OFFER(SILU, 1, 1), OFFER(ADD, 1, 0.1), {0}};
	struct table_case c;

	(void)unused;
	table_open(&c, JM_F32);
	add_to(&c, JM_OP_SILU, jm_graph_relu(c.g, c.x));
	table_plan(&c, offers);
	assert_int_equal(count_units(c.p, JM_OP_ADD, 1), 1);
	assert_int_equal(count_units(c.p, JM_OP_CAST, 1), 0);
	table_close(&c);
}

/* Of a group whose first node adds, the second's result is as new as any. */
static void sums_are_of_one_node(void **unused)
{
	struct offer offers[] = {OFFER(RELU, 1, 1), OFFER(RELU, 1, 0.2, .in = 1),
		OFFER(LINEAR, 2, 0.5, .last = 1, .adds = true), {0}};
	struct table_case c;
	struct jm_tensor *y, *z;

	(void)unused;
	table_open(&c, JM_F32);
	y = jm_graph_relu(c.g, c.x);
	z = jm_graph_tensor(c.g, JM_CLASS_ACT, JM_F32, 2, y->dim, "z");
	jm_graph_node(c.g, JM_OP_LINEAR, OPS(c.x, c.w), &y)->accumulate = 1;
	jm_graph_node(c.g, JM_OP_GELU, &y, &z);
	jm_graph_relu(c.g, z);
	table_plan(&c, offers);
	assert_int_equal(count_units(c.p, JM_OP_LINEAR, 2), 1);
	assert_int_equal(count_units(c.p, JM_OP_CAST, 1), 0);
	table_close(&c);
}

/* What wrote the sum first knows nothing of a layout that a later add likes better. */
static void sums_stay_where_they_are(void **unused)
{
	struct offer offers[] = {
		OFFER(RELU, 1, 1), OFFER(ADD, 1, 0.1, .out = 1), OFFER(ADD, 1, 0.5), {0}};
	struct table_case c;
	struct jm_tensor *t;

	(void)unused;
	table_open(&c, JM_F32);
	t = jm_graph_relu(c.g, c.x);
	add_to(&c, JM_OP_RELU, t);
	table_plan(&c, offers);
	assert_int_equal(count_units(c.p, JM_OP_ADD, 1), 1);
	assert_int_equal(layout_number(&t->layout), 0);
	table_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(least_along_chains),
		cmocka_unit_test(least_with_side_paths),
		cmocka_unit_test(given_layouts_stay),
		cmocka_unit_test(copies_are_open),
		cmocka_unit_test(reorders_are_shared),
		cmocka_unit_test(copies_are_open_once),
		cmocka_unit_test(refusals_cost),
		cmocka_unit_test(groups_read_each_other),
		cmocka_unit_test(what_runs_twice_is_written),
		cmocka_unit_test(adds_cost),
		cmocka_unit_test(what_is_in_place),
		cmocka_unit_test(parts_cost),
		cmocka_unit_test(sums_are_of_one_node),
		cmocka_unit_test(sums_stay_where_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
