/* SPDX-License-Identifier: Apache-2.0 */
/* "NAME=VALUE" words of a command line, quantities with units, and the nearest word. */
#include "fuzz.h"
#include "base/option.h"

static const char *const choices[] = {"f32", "bf16", "fp16", NULL};
static const struct jm_option rows[] = {
	{.name = "n", .type = JM_INT, .min = 1, .max = 64, .fallback = "4"},
	{.name = "x", .type = JM_REAL, .min = 1, .max = -1},
	{.name = "t", .type = JM_DURATION, .unit = "s", .min = 0, .max = 3600},
	{.name = "p", .type = JM_REAL, .unit = "W", .min = 100, .max = 700},
	{.name = "c", .type = JM_CHOICE, .choices = choices},
	{.name = "f", .type = JM_FLAG},
	{.name = "s", .type = JM_TEXT, .repeat = true},
	{0},
};

static void quantity(const char *text)
{
	static const char *const units[] = {"s", "W", "Hz", ""};

	for (int i = 0; i < 4; i++) {
		struct jm_err err = JM_ERR_INIT;
		double value = NAN;
		int rc = jm_parse_quantity(text, units[i], i & 1, &value, &err);

		fuzz_check(rc, &err);
		assert(rc < 0 ? isnan(value) : isfinite(value));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size), *save = NULL;
	struct jm_err none = JM_ERR_INIT;
	struct jm_values v;

	if (jm_values_init(&v, rows, &none))
		abort();
	for (char *word = strtok_r(text, "\n", &save); word; word = strtok_r(NULL, "\n", &save)) {
		struct jm_err err = JM_ERR_INIT;
		char *equals = strchr(word, '=');

		if (equals)
			*equals = '\0';
		fuzz_check(jm_values_set(&v, word, equals ? equals + 1 : "1", &err), &err);
		quantity(equals ? equals + 1 : word);
	}
	assert(jm_values_number(&v, "n") >= 1 && jm_values_number(&v, "n") <= 64);
	jm_values_done(&v);
	free(text);
	return 0;
}
