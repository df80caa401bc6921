/* SPDX-License-Identifier: Apache-2.0 */
#include "kit/test.h"
#include "base/option.h"

#define REFUSED -1e9 /* no quantity of these tests has this value */

static const struct {
	const char *text, *unit;
	bool require;
	double value;
} quantities[] = {
	{"100ms", "s", false, 0.1},
	{"100ms", "s", true, 0.1},
	{"2", "s", false, 2},
	{"2", "s", true, REFUSED},
	{"1.5h", "s", true, 5400},
	{"3min", "s", true, 180},
	{"250us", "s", true, 250e-6},
	{"10ns", "s", true, 10e-9},
	{"300W", "W", true, 300},
	{"1.2kW", "W", true, 1200},
	{"350000mW", "W", true, 350},
	{"1200MHz", "Hz", true, 1.2e9},
	{"1.98GHz", "Hz", true, 1.98e9},
	{"-5W", "W", true, -5},
	{"1e3", "", false, 1000},
	{"300w", "W", true, REFUSED},
	{"300J", "W", true, REFUSED},
	{"300 W", "W", true, REFUSED},
	{" 300W", "W", true, REFUSED},
	{"300WW", "W", true, REFUSED},
	{"300s", "W", true, REFUSED},
	{"5W", "", false, REFUSED},
	{"", "W", false, REFUSED},
	{"W", "W", false, REFUSED},
	{"nan", "W", false, REFUSED},
	{"nanW", "W", false, REFUSED},
	{"inf", "s", false, REFUSED},
	{"1e999", "s", false, REFUSED},
	{"1e308kW", "W", false, REFUSED},
	{"0x10", "", false, REFUSED},
	{"0x10W", "W", false, REFUSED},
};

static void quantities_with_units(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(quantities) / sizeof(quantities[0]); i++) {
		struct jm_err err = JM_ERR_INIT;
		double value = 42, want = quantities[i].value;
		int rc = jm_parse_quantity(quantities[i].text, quantities[i].unit,
			quantities[i].require, &value, &err);

		if ((rc < 0) != (want == REFUSED))
			fail_msg("'%s' as %s: %d %s", quantities[i].text, quantities[i].unit, rc,
				err.text);
		if (rc < 0) {
			assert_sentence(&err, JM_EUSAGE);
			assert_true(value == 42); /* untouched */
		} else {
			assert_near(value, want, fabs(want) * 1e-12);
		}
	}
}

static void errors_say_what_to_do(void **state)
{
	struct jm_err err = JM_ERR_INIT, other = JM_ERR_INIT;
	double value;

	(void)state;
	jm_parse_quantity("300", "W", true, &value, &err);
	assert_non_null(strstr(err.text, "300W"));
	jm_parse_quantity("300 Watt", "W", true, &value, &other);
	assert_non_null(strstr(other.text, "mW, W, kW"));
}

static void did_you_mean(void **state)
{
	const char *const words[] = {"measure", "report", "run", "restore", "list", "gpu.power"};
	const struct {
		const char *word, *meant;
	} cases[] = {
		{"mesure", "measure"},
		{"meausre", "measure"},
		{"MEASURE", "measure"},
		{"reprot", "report"},
		{"rnu", "run"},
		{"lsit", "list"},
		{"gpu.pwoer", "gpu.power"},
		{"gpu-power", "gpu.power"},
		{"restor", "restore"},
		{"xyzzy", NULL},
		{"", NULL},
		{"q", NULL},
		{"foo", NULL}, /* of three letters one may be wrong */
		{"rub", "run"},
		{"quite-another-word-that-is-very-long-and-has-nothing-to-do-with-any-of-them-at-"
		 "all-whatever-you-may-think",
			NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *meant = jm_did_you_mean(cases[i].word, words, 6);

		if ((meant == NULL) != (cases[i].meant == NULL))
			fail_msg("'%s' gave '%s'", cases[i].word, meant ? meant : "nothing");
		if (meant)
			assert_string_equal(meant, cases[i].meant);
	}
	assert_null(jm_did_you_mean("run", words, 0));
	/* two swapped letters are nearer than two wrong ones */
	assert_string_equal(
		jm_did_you_mean("nvlm", (const char *const[]){"null", "nvml"}, 2), "nvml");
}

static const char *const precisions[] = {"f32", "bf16", NULL};
static const struct jm_option rows[] = {
	{.name = "batch", .type = JM_INT, .min = 1, .max = 64, .fallback = "4", .help = "h"},
	{.name = "rate", .type = JM_REAL, .min = 1, .max = -1, .help = "h"},
	{.name = "interval",
		.type = JM_DURATION,
		.unit = "s",
		.min = 0.001,
		.max = 10,
		.fallback = "100ms",
		.help = "h"},
	{.name = "precision",
		.type = JM_CHOICE,
		.choices = precisions,
		.fallback = "f32",
		.help = "h"},
	{.name = "quiet", .type = JM_FLAG, .help = "h"},
	{.name = "set", .type = JM_TEXT, .repeat = true, .help = "h"},
	{.name = "json", .type = JM_TEXT, .help = "h"},
	{.name = "pid", .type = JM_INT, .min = 1, .max = 4194304, .help = "h"},
	{0},
};

static void refuse(
	struct jm_values *v, const char *name, const char *text, int code, const char *part)
{
	struct jm_err err = JM_ERR_INIT;

	assert_int_equal(jm_values_set(v, name, text, &err), code);
	assert_sentence(&err, code);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
}

static void defaults_and_settings(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_values v;

	(void)state;
	assert_ok(jm_values_init(&v, rows, &err), err);
	assert_int_equal(v.n, 8);
	assert_near(jm_values_number(&v, "batch"), 4, 0);
	assert_true(isnan(jm_values_number(&v, "rate")));
	assert_near(jm_values_number(&v, "interval"), 0.1, 1e-15);
	assert_near(jm_values_number(&v, "quiet"), 0, 0);
	assert_string_equal(jm_values_text(&v, "precision"), "f32");
	assert_null(jm_values_text(&v, "json"));
	assert_false(jm_values_get(&v, "batch")->given);

	assert_ok(jm_values_set(&v, "batch", "8", &err), err);
	assert_ok(jm_values_set(&v, "batch", "16", &err), err); /* the last one counts */
	assert_ok(jm_values_set(&v, "interval", "2", &err), err);
	assert_ok(jm_values_set(&v, "precision", "bf16", &err), err);
	assert_ok(jm_values_set(&v, "quiet", "1", &err), err);
	assert_ok(jm_values_set(&v, "set", "a=1W", &err), err);
	assert_ok(jm_values_set(&v, "set", "b=2W", &err), err);
	assert_ok(jm_values_set(&v, "rate", "-1e12", &err), err); /* no limits */
	assert_near(jm_values_number(&v, "batch"), 16, 0);
	assert_near(jm_values_number(&v, "interval"), 2, 0);
	assert_near(jm_values_number(&v, "quiet"), 1, 0);
	assert_true(jm_values_get(&v, "batch")->given);
	assert_int_equal(jm_values_get(&v, "set")->n_texts, 2);
	assert_string_equal(jm_values_get(&v, "set")->texts[0], "a=1W");
	assert_string_equal(jm_values_get(&v, "set")->texts[1], "b=2W");
	assert_null(jm_values_get(&v, "set")->texts[2]);
	jm_values_done(&v);
}

static void bad_values(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_values v;

	(void)state;
	assert_ok(jm_values_init(&v, rows, &err), err);
	refuse(&v, "bacth", "8", JM_EUSAGE, "did you mean --batch?");
	refuse(&v, "frobnicate", "8", JM_EUSAGE, "--help");
	refuse(&v, "batch", "0", JM_ERANGE, "1 to 64");
	refuse(&v, "batch", "65", JM_ERANGE, "1 to 64");
	refuse(&v, "pid", "4194305", JM_ERANGE, "1 to 4194304.");
	refuse(&v, "batch", "4.5", JM_EUSAGE, "whole number");
	refuse(&v, "batch", "four", JM_EUSAGE, "four");
	refuse(&v, "batch", "", JM_EUSAGE, "number");
	refuse(&v, "batch", "4x", JM_EUSAGE, "4x");
	refuse(&v, "interval", "0", JM_ERANGE, "0.001s to 10s");
	refuse(&v, "interval", "100fs", JM_EUSAGE, "ns, us, ms");
	refuse(&v, "precision", "bf61", JM_EUSAGE, "did you mean 'bf16'?");
	refuse(&v, "precision", "complex", JM_EUSAGE, "f32, bf16");
	refuse(&v, "quiet", "perhaps", JM_EUSAGE, "perhaps");
	refuse(&v, "json", "", JM_EUSAGE, "needs a value");
	assert_near(jm_values_number(&v, "batch"), 4, 0); /* untouched */
	assert_false(jm_values_get(&v, "batch")->given);
	jm_values_done(&v);
}

static void no_rows(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_values v;

	(void)state;
	assert_ok(jm_values_init(&v, NULL, &err), err);
	assert_int_equal(v.n, 0);
	refuse(&v, "batch", "1", JM_EUSAGE, "no option");
	assert_null(jm_values_get(&v, "batch"));
	jm_values_done(&v);
	jm_values_done(&v); /* twice does no harm */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantities_with_units),
		cmocka_unit_test(errors_say_what_to_do),
		cmocka_unit_test(did_you_mean),
		cmocka_unit_test(defaults_and_settings),
		cmocka_unit_test(bad_values),
		cmocka_unit_test(no_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
