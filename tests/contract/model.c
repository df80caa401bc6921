/* SPDX-License-Identifier: Apache-2.0 */
/* A model: its presets are whole and trainable, its graph has the operands that workloads feed. */
#include "contract.h"

#include "engine/program.h"
#include "engine/tensor.h"

static void check_input(const struct jm_graph *g, const char *model, const char *name,
	enum jm_dtype type, int64_t count)
{
	const struct jm_tensor *t = jm_graph_find(g, name);

	if (!t || t->class != JM_CLASS_INPUT || t->type != type || jm_tensor_count(t) != count)
		fail_msg("%s: input %s is not there, or not %ld elements of %s", model, name,
			(long)count, jm_dtype_name(type));
}

static void check_feed(const struct jm_graph *g, const struct jm_model *m, const char *preset,
	const struct jm_training *t)
{
	int64_t image;

	check_input(g, preset, "target", JM_I32, t->batch * t->seq);
	if (m->feed == JM_FEED_TOKENS) {
		check_input(g, preset, "ids", JM_I32, t->batch * t->seq);
		return;
	}
	image = jm_dim(t->dims, "image");
	assert_int_equal(t->seq, 1);
	check_input(g, preset, "image", t->precision, t->batch * 3 * image * image);
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
	check_feed(g, m, preset->name, &t);
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
		assert_true(m->item && m->default_seq && m->build && m->options);
		check_options(m);
		for (const struct jm_preset *p = m->presets; p && p->name; p++)
			check_preset(m, p);
		rc = jm_model_dims(m, NULL, NULL, &dims, &err);
		contract_error(m->name, rc, &err);
	}
}
