/* SPDX-License-Identifier: Apache-2.0 */
/* A model: its presets are complete and trainable, and its graph has the inputs that workloads
 * fill. */
#include "contract.h"

#include "engine/run/program.h"
#include "engine/graph/tensor.h"

static void check_input(const struct jm_graph *g, const struct jm_model *m,
	const struct jm_training *t, const struct jm_input *row)
{
	const struct jm_tensor *in = jm_graph_find(g, row->name);
	bool counts = row->fill == JM_FILL_TEXT || row->fill == JM_FILL_CLASS;
	bool values = row->fill == JM_FILL_NORMAL || row->fill == JM_FILL_HEAT;

	if (!in || in->class != JM_CLASS_INPUT)
		fail_msg("%s: input %s is not there", m->name, row->name);
	assert_int_equal(in->type, values ? t->precision : JM_I32);
	assert_int_equal(in->dim[0], t->batch);
	if (row->fill == JM_FILL_TEXT)
		assert_int_equal(jm_tensor_count(in), t->batch * t->seq);
	else if (row->fill == JM_FILL_CLASS && in->rank == 2)
		assert_string_equal(row->field, "caption");
	else if (!values)
		assert_int_equal(jm_tensor_count(in), t->batch);
	if (counts != (row->below && jm_option_find(m->options, row->below)))
		fail_msg("%s: the limit of input %s is no option", m->name, row->name);
}

/* Does the host, or the update, know what belongs into it? */
static bool is_known(const struct jm_model *m, const char *name)
{
	for (const struct jm_input *row = m->inputs; row->name; row++)
		if (!strcmp(row->name, name))
			return true;
	return !strcmp(name, "random.now") || strstr(name, "adamw.now");
}

static void check_feed(
	const struct jm_graph *g, const struct jm_model *m, const struct jm_training *t)
{
	int n = 0;

	for (const struct jm_input *row = m->inputs; row->name; row++, n++)
		check_input(g, m, t, row);
	assert_in_range(n, 1, JM_INPUTS_MAX);
	assert_true(jm_model_has_text(m) || t->seq == 1);
	for (int i = 0; i < g->n_cells; i++)
		if (g->cell[i]->t.class == JM_CLASS_INPUT && !is_known(m, g->cell[i]->t.name))
			fail_msg("%s: nobody fills input %s", m->name, g->cell[i]->t.name);
}

/* Every parameter gets a gradient, and every name is used once. */
static void check_parameters(const struct jm_graph *g, const char *model)
{
	for (int i = 0; i < g->n_cells; i++) {
		const struct jm_cell *c = g->cell[i];

		if (c->t.class != JM_CLASS_PARAM || !c->needs_grad)
			continue;
		if (!c->grad)
			fail_msg("%s: %s gets no gradient", model, c->t.name);
		if (jm_graph_find(g, c->t.name) != &c->t)
			fail_msg("%s: two tensors are called %s", model, c->t.name);
	}
}

static void check_preset(const struct jm_model *m, const struct jm_preset *preset)
{
	struct jm_training t = {.model = m, .batch = 2, .precision = JM_BF16};
	struct jm_err err = JM_ERR_INIT;
	struct jm_values dims;
	struct jm_graph *g;

	contract_name("preset", preset->name, preset->summary);
	assert_non_null(preset->source);
	assert_non_null(jm_workload_find(preset->workload, &err));
	assert_ok(jm_model_dims(m, preset, NULL, &dims, &err), err);
	t.dims = &dims;
	assert_ok(jm_model_train(&t, &g, &err), err);
	assert_true(t.seq > 0);
	check_feed(g, m, &t);
	if (preset->parameters)
		assert_int_equal(jm_graph_parameters(g), preset->parameters);
	check_parameters(g, preset->name);
	assert_non_null(jm_graph_find(g, "loss"));
	jm_graph_free(g);
	jm_values_done(&dims);
}

/* No option of a workload that runs the model: one name would have two meanings. */
static void check_names(const struct jm_model *m, const char *workload)
{
	struct jm_err err = JM_ERR_INIT;
	const struct jm_workload *w = jm_workload_find(workload, &err);

	assert_non_null(w);
	for (const struct jm_option *o = m->options; o->name; o++)
		if (jm_option_find(w->options, o->name))
			fail_msg("%s --%s is an option of workload %s", m->name, o->name, w->name);
}

static void check_options(const struct jm_model *m)
{
	for (const struct jm_option *o = m->options; o->name; o++)
		contract_option(m->name, o);
	check_names(m, jm_model_workload(NULL));
	for (const struct jm_preset *p = m->presets; p && p->name; p++)
		check_names(m, jm_model_workload(p));
}

void contract_models(void **unused)
{
	(void)unused;
	for (int i = 0; jm_models[i]; i++) {
		const struct jm_model *m = jm_models[i];
		struct jm_err err = JM_ERR_INIT;
		struct jm_values dims;
		int rc;

		contract_name("model", m->name, m->summary);
		assert_true(m->item && m->build && m->options && m->inputs);
		check_options(m);
		for (const struct jm_preset *p = m->presets; p && p->name; p++)
			check_preset(m, p);
		rc = jm_model_dims(m, NULL, NULL, &dims, &err);
		contract_error(m->name, rc, &err);
	}
}
