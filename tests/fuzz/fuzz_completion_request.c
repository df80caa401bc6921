/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a request to /v1/completions. */
#include "fuzz.h"
#include "workloads/serve/completion_request.h"

static const struct jm_answering model = {100, "m", "folder"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);
	struct jm_err err = JM_ERR_INIT;
	struct jm_ask ask = {.rule = {.top_p = 1}};
	int rc = jm_ask_parse(text, size, &model, &ask, &err);

	fuzz_check(rc, &err);
	if (!rc) {
		assert(ask.rule.temperature >= 0 && ask.rule.top_p <= 1 && ask.rule.top_k >= 0);
		assert(ask.output >= 1 && (ask.text != NULL) != (ask.token != NULL));
		for (int i = 0; i < ask.n; i++)
			assert(ask.token[i] >= 0 && ask.token[i] < model.vocab);
	}
	jm_ask_close(&ask);
	free(text);
	return 0;
}
