/* SPDX-License-Identifier: Apache-2.0 */
/* A config.json: one that is accepted gives every dimension, and the file that is written of them
 * gives the same. */
#include "fuzz.h"
#include "engine/graph/model.h"
#include "models/llama_config.h"

static void check_round_trip(const struct jm_model *llama, const struct jm_values *found)
{
	struct jm_err err = JM_ERR_INIT;
	json_t *config = jm_llama_make_config(found);
	struct jm_values again;

	assert(config);
	assert(!jm_values_init(&again, llama->options, &err));
	assert(!jm_llama_config("again", config, &again, &err));
	for (int i = 0; i < found->n; i++) {
		const char *a = found->value[i].text, *b = again.value[i].text;

		assert(!a || (b && !strcmp(a, b)) ||
			!strncmp(found->value[i].option->name, "rope-", 5));
	}
	jm_values_done(&again);
	json_decref(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jm_err err = JM_ERR_INIT;
	const struct jm_model *llama;
	const struct jm_preset *preset;
	json_t *config = json_loadb((const char *)data, size, 0, NULL);
	struct jm_values v, dims;
	int rc;

	assert(!jm_model_find("llama", &llama, &preset, &err));
	assert(!jm_values_init(&v, llama->options, &err));
	rc = jm_llama_config("fuzz", config, &v, &err);
	fuzz_check(rc, &err);
	if (!rc) {
		rc = jm_model_dims(llama, NULL, &v, &dims, &err);
		fuzz_check(rc, &err);
	}
	if (!err.code) {
		check_round_trip(llama, &dims);
		jm_values_done(&dims);
	}
	jm_values_done(&v);
	json_decref(config);
	return 0;
}
