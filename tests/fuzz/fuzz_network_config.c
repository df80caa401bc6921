/* SPDX-License-Identifier: Apache-2.0 */
/* A config.json, to each model that reads one: what is accepted gives every dimension, and the file
 * that is written of them gives the same. */
#include "fuzz.h"
#include <jansson.h>
#include "engine/graph/model.h"

static void check_round_trip(const struct jm_model *model, const struct jm_values *found)
{
	struct jm_err err = JM_ERR_INIT;
	json_t *config = model->make_config(found);
	struct jm_values again;

	assert(json_is_object(config));
	assert(!jm_values_init(&again, model->options, &err));
	assert(!model->config("again", config, &again, &err));
	for (int i = 0; i < found->n; i++) {
		const char *a = found->value[i].text, *b = again.value[i].text;

		assert(!a || (b && !strcmp(a, b)) ||
			!strncmp(found->value[i].option->name, "rope-", 5));
	}
	jm_values_done(&again);
	json_decref(config);
}

static void check_model(const struct jm_model *model, const json_t *config)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_values v, dims;
	int rc;

	assert(!jm_values_init(&v, model->options, &err));
	rc = model->config("fuzz", config, &v, &err);
	fuzz_check(rc, &err);
	if (!rc) {
		rc = jm_model_dims(model, NULL, &v, &dims, &err);
		fuzz_check(rc, &err);
	}
	if (!err.code) {
		check_round_trip(model, &dims);
		jm_values_done(&dims);
	}
	jm_values_done(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *config = json_loadb((const char *)data, size, 0, NULL);

	for (int i = 0; jm_models[i]; i++)
		if (jm_models[i]->config)
			check_model(jm_models[i], config);
	json_decref(config);
	return 0;
}
