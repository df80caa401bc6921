/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of settings: accepted texts, refused texts and their messages. */
#include "guard/setting.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define KNOB(knob, of, id, text, least, most)                                                      \
	.name = knob, .unit = of, .device = id, .label = text, .min = least, .max = most

static struct jm_knob knob[] = {
	{KNOB("gpu.power", "W", "GPU-8f01", "GPU 0 H100", 200, 700), .fallback = {700, 700, ""}},
	{KNOB("gpu.power", "W", "GPU-9a02", "GPU 1 A100", 100, 400), .fallback = {NAN, NAN, ""}},
	{KNOB("gpu.clock", "Hz", "GPU-8f01", "GPU 0 H100", 345e6, 1980e6),
		.fallback = {NAN, NAN, JM_UNLOCKED}, .kind = JM_KNOB_RANGE, .unlockable = true},
	{KNOB("gpu.share", "", "GPU-8f01", "GPU 0 H100", 0, 1), .fallback = {1, 1, ""}},
	{KNOB("cpu.governor", "", "cpu", "processors", 0, 0), .fallback = {NAN, NAN, ""},
		.kind = JM_KNOB_CHOICE, .choices = "powersave balance_performance"},
	{KNOB("cpu.quota", "", "jobs/7", "group", 0.01, 2), .fallback = {NAN, NAN, JM_UNLOCKED},
		.unlockable = true},
};
static const struct jm_knobs knobs = {.knob = knob, .n = 6};

static void takes(const char *text, int n, ...)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_axis axis;
	va_list ap;

	if (jm_axis_parse(text, &knobs, &axis, &err))
		fail_msg("%s: %s", text, err.text);
	assert_int_equal(axis.n, n);
	va_start(ap, n);
	for (int i = 0; i < n; i++) {
		double want = va_arg(ap, double), low = axis.value[i].low,
		       high = axis.value[i].high;

		if (*axis.value[i].word || low != high ||
			!(high == want || fabs(high - want) < 1e-9 * fabs(want)))
			fail_msg("%s: value %d is %g to %g, not %g", text, i, low, high, want);
	}
	va_end(ap);
	jm_axis_done(&axis);
}

/* The values as texts, each followed by a space; and each text is a setting that has the same
 * value. */
static void takes_words(const char *text, const char *want)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_axis axis, again;
	char all[400] = "", one[JM_KNOB_TEXT], setting[200];
	size_t used = 0;

	if (jm_axis_parse(text, &knobs, &axis, &err))
		fail_msg("%s: %s", text, err.text);
	for (int i = 0; i < axis.n; i++) {
		jm_knob_value_text(&axis.value[i], axis.unit, one, sizeof(one));
		used += (size_t)snprintf(all + used, sizeof(all) - used, "%s ", one);
		snprintf(setting, sizeof(setting), "%.*s=%s", (int)strcspn(text, "="), text, one);
		if (jm_axis_parse(setting, &knobs, &again, &err))
			fail_msg("%s: %s", setting, err.text);
		assert_int_equal(again.n, 1);
		assert_true(jm_knob_value_same(&again.value[0], &axis.value[i]));
		jm_axis_done(&again);
	}
	assert_string_equal(all, want);
	jm_axis_done(&axis);
}

static void refuses(const char *text, int code, const char *words)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_axis axis = {.n = -1};

	if (jm_axis_parse(text, &knobs, &axis, &err) != code)
		fail_msg("%s: %s", text, err.code ? err.text : "was taken");
	assert_int_equal(axis.n, -1);
	if (!strstr(err.text, words))
		fail_msg("%s: '%s' does not say '%s'", text, err.text, words);
}

static void test_values(void **state)
{
	(void)state;
	takes("gpu.power=300W", 1, 300.);
	takes("gpu.power=0.3kW", 1, 300.);
	takes("gpu.power=300W,400W", 2, 300., 400.);
	takes("gpu.power=300,400W", 2, 300., 400.);
	takes("gpu.power@GPU-8f=700W", 1, 700.);
	takes_words("gpu.power@GPU-8f=default,300W", "default 300W ");
	takes_words("gpu.power@GPU-8f=300W,default", "300W default ");
	takes("gpu.clock=1200MHz", 1, 1200e6);
	takes("gpu.share=0.5", 1, 0.5);
}

static void test_ranges(void **state)
{
	(void)state;
	takes("gpu.power=200:400+100W", 3, 200., 300., 400.);
	takes("gpu.power=200:390+100W", 2, 200., 300.);
	takes("gpu.power=200W:0.4kW+100W", 3, 200., 300., 400.);
	takes("gpu.power=200:400+100W,250W", 4, 200., 300., 400., 250.);
	takes("gpu.power=200:300+100W,300W", 2, 200., 300.);
	takes("gpu.share=0:1+0.1", 11, 0., .1, .2, .3, .4, .5, .6, .7, .8, .9, 1.);
	takes("gpu.power=2e2:4e+2+1e2W", 3, 200., 300., 400.);
}

/* Two numbers are one value of a knob that takes ranges; with a step they are several values of any
 * knob. */
static void test_kinds(void **state)
{
	(void)state;
	takes_words("gpu.clock=1200:1500MHz", "1200:1500MHz ");
	takes_words("gpu.clock=1.2GHz:1500MHz,900MHz,unlocked", "1200:1500MHz 900MHz unlocked ");
	takes_words("gpu.clock=900:1100+100MHz", "900MHz 1000MHz 1100MHz ");
	takes_words("gpu.clock=1200:1200MHz,1200MHz", "1200MHz ");
	takes_words("gpu.clock=default", "default ");
	takes_words("cpu.governor=balance_performance,powersave", "balance_performance powersave ");
	takes_words("cpu.quota=unlocked,1.5", "unlocked 1.5 ");
	refuses("gpu.clock=1500:1200MHz", JM_EUSAGE, "reversed");
	refuses("cpu.quota=0.5:1.5", JM_EUSAGE, "no step");
	refuses("gpu.power=unlocked", JM_EUSAGE, "'unlocked' where a number is expected");
	refuses("cpu.governor=performance", JM_EUSAGE,
		"no choice 'performance'; it has powersave balance_performance");
	refuses("cpu.governor=1", JM_EUSAGE, "no choice '1'");
	refuses("cpu.governor=unlocked", JM_EUSAGE, "no choice 'unlocked'");
	refuses("cpu.quota=unlocked,", JM_EUSAGE, "number is expected");
}

static void test_units(void **state)
{
	(void)state;
	refuses("gpu.power=300", JM_EUSAGE, "no unit");
	refuses("gpu.power=300W,400", JM_EUSAGE, "no unit");
	refuses("gpu.power=200:400+100", JM_EUSAGE, "no unit");
	refuses("gpu.power=200:700", JM_EUSAGE,
		"no step and no unit; write gpu.power=200:700+100W.");
	refuses("gpu.power=200W:700W", JM_EUSAGE, "no step; write gpu.power=200:700+100W.");
	refuses("gpu.power=300MHz", JM_EUSAGE, "mW, W, kW");
	refuses("gpu.share=0.5W", JM_EUSAGE, "number has no unit");
}

static void a_number_behind_a_word_is_not_cut(void **state)
{
	static const struct {
		const char *selector, *device;
		bool means;
	} rows[] = {
		{"policy1", "policy1", true},
		{"policy1", "policy10", false},
		{"policy1=", "policy10", false},
		{"policy10=", "policy10", true},
		{"pol", "policy10", true},
		{"sim:h100x16/gpu1", "sim:h100x16/gpu12", false},
		{"sim:h100x16/", "sim:h100x16/gpu12", true},
		{"GPU-1", "GPU-10000001-ab", true},
		{"GPU-a1", "GPU-a1200000-ab", true},
		{"GPU-a1", "GPU-a2", false},
		{"", "policy10", true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (jm_selector_means(rows[i].selector, rows[i].device) != rows[i].means)
			fail_msg("'%s' of %s", rows[i].selector, rows[i].device);
}

static void test_limits(void **state)
{
	(void)state;
	refuses("gpu.power=500W", JM_ERANGE, "GPU 1 A100 (GPU-9a02) takes 100W to 400W, not 500W");
	refuses("gpu.power@GPU-8f=100:300+100W", JM_ERANGE, "200W to 700W, not 100W");
	refuses("gpu.power=default", JM_EUSAGE, "default of gpu.power on GPU 1 A100");
	refuses("cpu.governor=default", JM_EUSAGE, "not known; give a value.");
	refuses("cpu.quota=3", JM_ERANGE, "0.01 to 2 or unlocked, not 3");
	refuses("gpu.clock=300:1500MHz", JM_ERANGE,
		"345MHz to 1980MHz or unlocked, not 300:1500MHz");
	refuses("gpu.clock=1200:2500MHz", JM_ERANGE, "not 1200:2500MHz");
	refuses("gpu.power=-300W", JM_ERANGE, "not -300W");
}

static void test_grammar(void **state)
{
	(void)state;
	refuses("gpu.power", JM_EUSAGE, "knob=value");
	refuses("gpu.power=", JM_EUSAGE, "knob=value");
	refuses("=300W", JM_EUSAGE, "begin with a knob");
	refuses("gpu.power@=300W", JM_EUSAGE, "begin with a knob");
	refuses("gpu.pwer=300W", JM_EUSAGE, "did you mean 'gpu.power'");
	refuses("zzz=300W", JM_EUSAGE, "gpu.power, gpu.clock, gpu.share");
	refuses("gpu.power@GPU-77=300W", JM_EUSAGE, "begins with 'GPU-77'");
	refuses("gpu.power=300W;400W", JM_EUSAGE, ";400W");
	refuses("gpu.power=300W,", JM_EUSAGE, "number is expected");
	refuses("gpu.power=200:400W", JM_EUSAGE, "no step");
	refuses("gpu.power=200:400+0W", JM_EUSAGE, "steps above 0");
	refuses("gpu.power=400:200+100W", JM_EUSAGE, "go up");
	refuses("gpu.power=nanW", JM_EUSAGE, "'nanW'");
	refuses("gpu.share=0:1+0.00001", JM_EUSAGE, "more than");
	refuses("gpu.power=lots", JM_EUSAGE, "lots");
}

static void test_no_knobs(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_axis axis;

	(void)state;
	assert_int_equal(
		jm_axis_parse("gpu.power=300W", &(struct jm_knobs){0}, &axis, &err), JM_ENOENT);
	assert_non_null(strstr(err.text, "doctor"));
}

static void test_text(void **state)
{
	const struct jm_knob_value unknown = jm_knob_value_of(NAN);
	char text[JM_KNOB_TEXT];

	(void)state;
	jm_knob_value_text(&unknown, "W", text, sizeof(text));
	assert_string_equal(text, "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(a_number_behind_a_word_is_not_cut),
		cmocka_unit_test(test_grammar),
		cmocka_unit_test(test_no_knobs),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
