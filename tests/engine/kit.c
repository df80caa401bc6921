/* SPDX-License-Identifier: Apache-2.0 */
/* Small graphs and models for tests. */
#include "kit.h"

#include <stdio.h>

#include "unit/test.h"

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
