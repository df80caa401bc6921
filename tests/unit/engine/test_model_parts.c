/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that have parts of a model. Sums over ranks run beside the gradients of parameters: those
 * of a block's matrix lie between the sum and its wait, and nothing there uses the memory of the
 * sum. The table that the first and the last stage have lies at the same place in both.
 */
#include "engine/graph/model.h"
#include "engine/plan/bucket.h"
#include "engine/run/program.h"
#include "kit/test.h"

enum { BLOCKS = 12 };

static struct jm_graph *part_of_gpt(struct jm_training t, const char *precision)
{
	struct jm_err err = JM_ERR_INIT;
	const struct jm_preset *preset;
	struct jm_graph *g = NULL;
	struct jm_values dims;

	assert_int_equal(jm_model_find("gpt-117m", &t.model, &preset, &err), 0);
	assert_int_equal(jm_model_dims(t.model, preset, NULL, &dims, &err), 0);
	t.dims = &dims;
	t.batch = 1;
	t.keep_all = true;
	t.adamw = (struct jm_adamw){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1};
	assert_int_equal(jm_precision_set(&t, precision, &err), 0);
	assert_ok(jm_model_train(&t, &g, &err), err);
	jm_values_done(&dims);
	return g;
}

static bool overlap(
	const struct jm_program *p, const struct jm_tensor *a, const struct jm_tensor *b)
{
	const struct jm_cell *x = jm_graph_cell(p->graph, a), *y = jm_graph_cell(p->graph, b);

	return x->offset < y->offset + y->t.bytes && y->offset < x->offset + x->t.bytes;
}

/* Returns the number of gradients of matrices between unit `sum` and its wait. */
static int look_between(const struct jm_program *p, int sum)
{
	const struct jm_node *own = p->unit[sum]->group.node[0];
	int found = 0;

	for (int i = sum + 1; i < p->unit[sum]->wait->position; i++) {
		const struct jm_node *n = p->unit[i]->group.node[0];

		assert_false(jm_reduce_is_node(p->unit[i]));
		found += n->op == JM_OP_LINEAR_WGRAD;
		for (int k = 0; k < n->n_out; k++)
			if (n->out[k]) {
				assert_false(overlap(p, n->out[k], own->in[0]));
				assert_false(overlap(p, n->out[k], own->out[0]));
			}
		if (p->unit[i]->scratch)
			assert_false(overlap(p, p->unit[i]->scratch, own->in[0]));
	}
	return found;
}

static void gradients_of_parameters_hide_sums(void **state)
{
	struct jm_graph *g = part_of_gpt((struct jm_training){.tp = 2}, "f32");
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;
	struct jm_program *p;
	int hidden = 0, sums = 0;

	(void)state;
	assert_int_equal(jm_device_open("ref", 1, &d, &err), 0);
	assert_ok(jm_program_plan(g, &d, &p, &err), err);
	for (int i = p->n_once; i < p->n_micro; i++) {
		if (!jm_reduce_is_shared(p->unit[i]->group.node[0]))
			continue;
		sums++;
		if (!p->unit[i]->wait)
			continue;
		hidden++;
		assert_ptr_equal(p->unit[p->unit[i]->wait->position], p->unit[i]->wait);
		assert_in_range(look_between(p, i), 1, 2);
	}
	assert_int_equal(sums, 4 * BLOCKS);
	assert_int_equal(hidden, 2 * BLOCKS);
	jm_program_free(p);
	jm_device_close(&d);
	jm_graph_free(g);
}

static const struct jm_cell *tied_table(const struct jm_graph *g)
{
	const struct jm_cell *found = NULL;

	for (int i = 0; i < g->n_cells; i++)
		if (g->cell[i]->tied && g->cell[i]->t.class == JM_CLASS_PARAM)
			found = g->cell[i];
	assert_non_null(found);
	return found;
}

/* Random rounding counts elements of the slab. */
static void both_ends_round_a_tied_table_alike(void **state)
{
	struct jm_training first = {.pp = 2}, last = {.pp = 2, .stage = 1};
	struct jm_graph *a = part_of_gpt(first, "bf16-true"), *b = part_of_gpt(last, "bf16-true");

	(void)state;
	assert_int_equal(tied_table(a)->slab_offset, tied_table(b)->slab_offset);
	assert_int_equal(tied_table(a)->t.bytes, tied_table(b)->t.bytes);
	jm_graph_free(a);
	jm_graph_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_of_parameters_hide_sums),
		cmocka_unit_test(both_ends_round_a_tied_table_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
