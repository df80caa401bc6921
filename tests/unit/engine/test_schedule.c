/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of execution: every node reads the same values as in the declared order; the peak is
 * never higher, and lower where branches can run one after the other; the results have the same
 * bits.
 */
#include <stdlib.h>

#include "kit/engine_kit.h"
#include "engine/graph/model.h"
#include "engine/run/program.h"
#include "engine/graph/rng.h"
#include "kit/test.h"
#include "engine/graph/layer.h"
#include "engine/plan/arena.h"
#include "engine/plan/schedule.h"

/* ---- is it the same program? ----------------------------------------------------------------- */

/* Units as declared: nodes of a graph that select adds nothing to are numbered so. */
static int by_node(const void *a, const void *b)
{
	const struct jm_unit *x = *(struct jm_unit *const *)a, *y = *(struct jm_unit *const *)b;

	return x->group.node[0]->id - y->group.node[0]->id;
}

/* How often each operand of each node was written before the node reads or writes it, summed with
 * weights that distinguish nodes and operands; [node] */
static void versions(
	const struct jm_graph *g, struct jm_unit *const *unit, int n_units, uint64_t *ret)
{
	int *writes = calloc((size_t)g->n_cells + 1, sizeof(*writes));

	for (int u = 0; u < n_units; u++)
		for (int k = 0; k < unit[u]->group.n_nodes; k++) {
			const struct jm_node *n = unit[u]->group.node[k];
			uint64_t sum = 0;

			for (int i = 0; i < n->n_in; i++)
				if (n->in[i])
					sum += jm_rng((uint64_t)i, (uint64_t)writes[n->in[i]->id]);
			for (int i = 0; i < n->n_out; i++)
				if (n->out[i])
					sum += jm_rng((uint64_t)i + 10,
						(uint64_t)writes[n->out[i]->id]++);
			ret[n->id] = sum;
		}
	free(writes);
}

/* Also sets the declared order; returns how many bytes it needs more. */
static size_t compare_with_declared(struct jm_program *p)
{
	size_t n = (size_t)p->n_units, nodes = (size_t)p->graph->n_nodes, peak = p->peak_bytes;
	uint64_t *chosen = calloc(nodes, sizeof(*chosen)),
		 *declared = calloc(nodes, sizeof(*declared));
	struct jm_err err = JM_ERR_INIT;

	versions(p->graph, p->unit, p->n_units, chosen);
	for (int i = 0; i < p->n_units; i++)
		assert_int_equal(p->unit[i]->position, i);
	qsort(p->unit, n, sizeof(struct jm_unit *), by_node);
	versions(p->graph, p->unit, p->n_units, declared);
	assert_memory_equal(chosen, declared, nodes * sizeof(*chosen));
	assert_ok(jm_program_places(p, &err), err);
	assert_true(peak <= p->peak_bytes);
	free(chosen);
	free(declared);
	return p->peak_bytes - peak;
}

/* ---- random networks ------------------------------------------------------------------------- */

#define NODES 40

/* Number i of the seed, below n. */
static int draw(int seed, int i, int n)
{
	return (int)(jm_rng((uint64_t)seed, (uint64_t)i) % (uint64_t)n);
}

/* Sums and products of earlier results, 8 x (16 to 256); some sums join what is there. */
static struct jm_graph *random_graph(int seed)
{
	struct jm_graph *g = jm_graph_new(JM_F32);
	struct jm_tensor *t[NODES + 1];

	t[0] = jm_graph_input(g, "x", JM_F32, 2, DIMS(8, 64));
	for (int i = 0; i < NODES; i++) {
		struct jm_tensor *a = t[draw(seed, 3 * i, i + 1)];
		struct jm_tensor *b = t[draw(seed, 3 * i + 2, i + 1)];
		int64_t width = (int64_t)16 << draw(seed, 3 * i + 1, 5);

		t[i + 1] = a;
		if (b != a && b->dim[1] == a->dim[1] && a != t[0] && draw(seed, 1000 + i, 2))
			jm_graph_node(g, JM_OP_ADD, OPS(a, b), &a);
		else if (b != a && b->dim[1] == a->dim[1])
			t[i + 1] = jm_graph_add(g, a, b);
		else
			t[i + 1] = jm_graph_linear(
				g, a, jm_graph_matrix(g, "w", 1, width, a->dim[1]), NULL);
	}
	assert_int_equal(g->err.code, 0);
	return g;
}

static void random_networks(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;
	int better = 0;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &d, &err), err);
	for (int seed = 0; seed < 100; seed++) {
		struct jm_graph *g = random_graph(seed);
		struct jm_program *p;

		assert_ok(jm_program_plan(g, &d, &p, &err), err);
		better += compare_with_declared(p) > 0;
		jm_program_free(p);
		jm_graph_free(g);
	}
	assert_true(better > 10);
	jm_device_close(&d);
}

static void models(void **unused)
{
	static const char *const names[] = {"gpt-117m", "resnet50", "vit-b16", "llama2-7b"};
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;

	(void)unused;
	assert_ok(jm_device_open("ref", 0, &d, &err), err);
	for (int i = 0; i < 12; i++) {
		struct jm_training t = {.batch = 2,
			.recompute = i % 3 == 1,
			.keep_all = i % 3 == 2,
			.precision = i % 2 ? JM_BF16 : JM_F32};
		const struct jm_preset *preset;
		struct jm_program *p;
		struct jm_values v;
		struct jm_graph *g;

		assert_ok(jm_model_find(names[i / 3], &t.model, &preset, &err), err);
		assert_ok(jm_model_dims(t.model, preset, NULL, &v, &err), err);
		t.dims = &v;
		assert_ok(jm_model_train(&t, &g, &err), err);
		assert_ok(jm_program_plan(g, &d, &p, &err), err);
		compare_with_declared(p);
		jm_program_free(p);
		jm_graph_free(g);
		jm_values_done(&v);
	}
	jm_device_close(&d);
}

/* ---- branches -------------------------------------------------------------------------------- */

#define BRANCHES 5
#define ROWS	 64
#define WIDE	 512

/* Each makes something wide and then something narrow of it. one_by_one: so it is declared. */
static double *branches(bool one_by_one, size_t *ret_arena)
{
	struct jm_tensor *x, *in[BRANCHES], *out[BRANCHES], *wide[BRANCHES], *narrow[BRANCHES];
	struct jm_err err = JM_ERR_INIT;
	struct kit k;
	double *values;

	kit_init(&k, "ref", JM_F32);
	x = kit_normal(&k, JM_F32, 0, 1, 2, DIMS(ROWS, 16));
	for (int i = 0; i < BRANCHES; i++) {
		in[i] = kit_param(&k, 2, DIMS(WIDE, 16));
		out[i] = kit_param(&k, 2, DIMS(16, WIDE));
	}
	for (int i = 0; i < BRANCHES; i++) {
		wide[i] = jm_graph_linear(k.graph, x, in[i], NULL);
		if (one_by_one)
			narrow[i] = jm_graph_linear(k.graph, wide[i], out[i], NULL);
	}
	for (int i = 0; i < BRANCHES && !one_by_one; i++)
		narrow[i] = jm_graph_linear(k.graph, wide[i], out[i], NULL);
	for (int i = 1; i < BRANCHES; i++)
		narrow[0] = jm_graph_add(k.graph, narrow[0], narrow[i]);
	kit_read(&k, narrow[0]);
	assert_ok(kit_run(&k, &err), err);
	*ret_arena = k.program->arena_bytes;
	values = kit_values(&k, k.result[0]);
	kit_done(&k);
	return values;
}

static void one_branch_after_the_other(void **unused)
{
	size_t good, bad;
	double *a = branches(true, &good), *b = branches(false, &bad);

	(void)unused;
	assert_memory_equal(a, b, sizeof(double) * ROWS * 16);
	/* all the wide ones at a time would be more */
	assert_true(bad < BRANCHES * sizeof(float) * ROWS * WIDE);
	assert_true(bad <= good);
	free(a);
	free(b);
}

/* ---- a linear-wgrad that waits for the gradient of the activation it reads ------------------- */

enum between { NOTHING, WRITES_DY, READS_DW, ADDS_TO_DW, WRITES_U, OTHERS };

/* dw = dy^T gelu(u), where gelu(u) is recomputed; then another node; then du = gelu'(u) da. True if
 * dw is computed after du. */
static bool waits(enum between between)
{
	struct jm_graph *g = jm_graph_new(JM_F32);
	struct jm_tensor *u = jm_graph_input(g, "u", JM_F32, 2, DIMS(8, 64));
	struct jm_tensor *da = jm_graph_input(g, "da", JM_F32, 2, DIMS(8, 64));
	struct jm_tensor *dy = jm_graph_input(g, "dy", JM_F32, 2, DIMS(8, 16));
	struct jm_tensor *more = jm_graph_input(g, "more", JM_F32, 2, DIMS(8, 16));
	struct jm_tensor *a = jm_graph_tensor(g, JM_CLASS_ACT, JM_F32, 2, DIMS(8, 64), "a");
	struct jm_tensor *du = jm_graph_tensor(g, JM_CLASS_ACT, JM_F32, 2, DIMS(8, 64), "du");
	struct jm_tensor *dw = jm_graph_tensor(g, JM_CLASS_ACT, JM_F32, 2, DIMS(16, 64), "dw");
	struct jm_tensor *sum = jm_graph_tensor(g, JM_CLASS_ACT, JM_F32, 2, DIMS(16, 64), "sum");
	struct jm_node *wgrad = jm_graph_node(g, JM_OP_LINEAR_WGRAD, OPS(dy, a), OPS(dw, NULL));
	struct jm_node *grad, *other = NULL, *again;
	struct jm_err err = JM_ERR_INIT;
	bool ret;

	if (between == WRITES_DY || between == OTHERS)
		other = jm_graph_node(g, JM_OP_CAST, &more, between == OTHERS ? &more : &dy);
	else if (between == READS_DW)
		other = jm_graph_node(g, JM_OP_CAST, &dw, &sum);
	else if (between == ADDS_TO_DW)
		other = jm_graph_node(g, JM_OP_CAST, &sum, &dw);
	else if (between == WRITES_U)
		other = jm_graph_node(g, JM_OP_CAST, &da, &u);
	if (other)
		other->accumulate = between != READS_DW;
	grad = jm_graph_node(g, JM_OP_GELU_ERF_GRAD, OPS(da, u), OPS(du));
	again = jm_graph_node(g, JM_OP_GELU_ERF, &u, &a);
	again->again = true;
	assert_int_equal(g->err.code, 0);
	assert_ok(jm_graph_schedule(g, &err), err);
	assert_int_equal(wgrad->id, again->id + 1);
	ret = wgrad->id > grad->id;
	if (other && !ret)
		assert_true(wgrad->id < other->id);
	jm_graph_free(g);
	return ret;
}

static void a_gradient_of_weights_waits_only_where_it_may(void **unused)
{
	(void)unused;
	assert_true(waits(NOTHING));
	assert_true(waits(OTHERS));
	assert_false(waits(WRITES_DY));
	assert_false(waits(READS_DW));
	assert_false(waits(ADDS_TO_DW));
	assert_false(waits(WRITES_U));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_networks),
		cmocka_unit_test(models),
		cmocka_unit_test(one_branch_after_the_other),
		cmocka_unit_test(a_gradient_of_weights_waits_only_where_it_may),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
