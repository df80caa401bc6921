/* SPDX-License-Identifier: Apache-2.0 */
/* Small graphs and models for tests. */
#include "engine_kit.h"

#include <stdio.h>

#include "test.h"

void kit_init(struct kit *k, const char *device, enum jm_dtype precision)
{
	struct jm_err err = JM_ERR_INIT;

	assert_ok(kit_open(k, device, 2, precision, &err), err);
}

void kit_model(
	const char *const *words, const struct jm_model **ret_model, struct jm_values *ret_dims)
{
	const struct jm_preset *preset;
	struct jm_err err = JM_ERR_INIT;
	struct jm_values given;

	assert_ok(jm_model_find(words[0], ret_model, &preset, &err), err);
	assert_ok(jm_values_init(&given, (*ret_model)->options, &err), err);
	for (int i = 1; words[i]; i++) {
		const char *equals = strchr(words[i], '=');
		char name[32];

		snprintf(name, sizeof(name), "%.*s", (int)(equals - words[i]), words[i]);
		assert_ok(jm_values_set(&given, name, equals + 1, &err), err);
	}
	assert_ok(jm_model_dims(*ret_model, preset, &given, ret_dims, &err), err);
	jm_values_done(&given);
}

struct jm_program *kit_plan(
	const char *const *words, const struct jm_training *how, struct jm_device *device)
{
	struct jm_training t = *how;
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *p;
	struct jm_graph *g;
	struct jm_values dims;

	kit_model(words, &t.model, &dims);
	t.dims = &dims;
	assert_ok(jm_model_train(&t, &g, &err), err);
	assert_ok(jm_program_plan(g, device, &p, &err), err);
	jm_values_done(&dims);
	return p;
}

void kit_plan_free(struct jm_program *p)
{
	struct jm_graph *g = p->graph;

	jm_program_free(p);
	jm_graph_free(g);
}

/* ---- groups as execs of ref ------------------------------------------------------------------ */

extern const struct jm_backend jm_backend_ref;

int kit_parts_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	size_t scratch = 0;
	int n = 0;

	for (int i = 0; i < group->n_nodes; i++) {
		struct jm_group one = {.n_nodes = 1, .node = {group->node[i]}};

		n = jm_backend_ref.select(dev, &one, choice, err);
		scratch = choice->scratch > scratch ? choice->scratch : scratch;
	}
	choice->scratch = scratch;
	return n;
}

static void make_room(struct kit_parts *parts, struct jm_tensor *t)
{
	if (!t || !t->is_virtual)
		return;
	assert_true(parts->n_inner < JM_GROUP_MAX);
	parts->inner[parts->n_inner++] = t;
	t->data = calloc(1, t->bytes);
	assert_non_null(t->data);
}

int kit_parts_build(struct kit_parts *parts, void *dev, const struct jm_group *group,
	const struct jm_choice *choice, struct jm_err *err)
{
	int code = 0;

	parts->n = group->n_nodes;
	for (int i = 0; i < parts->n && !code; i++) {
		for (int j = 0; j < group->node[i]->n_out; j++)
			make_room(parts, group->node[i]->out[j]);
		parts->one[i] = *group;
		parts->one[i].n_nodes = 1;
		parts->one[i].node[0] = group->node[i];
		code = jm_backend_ref.build(dev, &parts->one[i], choice, &parts->exec[i], err);
	}
	return code;
}

int kit_parts_run(struct kit_parts *parts, void *dev, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < parts->n && !code; i++)
		code = jm_backend_ref.run(dev, parts->exec[i], err);
	return code;
}

void kit_parts_drop(struct kit_parts *parts, void *dev)
{
	for (int i = 0; i < parts->n; i++)
		jm_backend_ref.drop(dev, parts->exec[i]);
	for (int i = 0; i < parts->n_inner; i++) {
		free(parts->inner[i]->data);
		parts->inner[i]->data = NULL;
	}
}
