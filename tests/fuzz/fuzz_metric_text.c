/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of a server: the first line is the selector, the rest is its text. */
#include "fuzz.h"
#include "base/text/metric_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), names[64], *rest;
	struct jm_err err = JM_ERR_INIT;
	double sum = 0;

	memcpy(text, data, size);
	text[size] = '\0';
	rest = text + strcspn(text, "\n");
	if (*rest)
		*rest++ = '\0';
	fuzz_check(jm_metric_selector_check(text, &err), &err);
	if (jm_metric_text_sum(rest, text, &sum) < 0)
		abort();
	jm_metric_text_counters(rest, names, sizeof(names));
	if (strlen(names) >= sizeof(names))
		abort();
	free(text);
	return 0;
}
