/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of settings: accepted texts, refused texts and their messages. */
#include "guard/setting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct jm_knob knob[] = {
	{"gpu.power", "W", "GPU-8f01", "GPU 0 H100", 200, 700, 0, 700},
	{"gpu.power", "W", "GPU-9a02", "GPU 1 A100", 100, 400, 0, NAN},
	{"gpu.clock", "Hz", "GPU-8f01", "GPU 0 H100", 345e6, 1980e6, 15e6, 1980e6},
	{"gpu.share", "", "GPU-8f01", "GPU 0 H100", 0, 1, 0, 1},
};
static const struct jm_knobs knobs = {knob, 4};

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
		double want = va_arg(ap, double);

		if (!(axis.value[i] == want || fabs(axis.value[i] - want) < 1e-9 * fabs(want)))
			fail_msg("%s: value %d is %g, not %g", text, i, axis.value[i], want);
	}
	va_end(ap);
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
	takes("gpu.power@GPU-8f=default,300W", 2, JM_SETTING_DEFAULT, 300.);
	takes("gpu.power@GPU-8f=300W,default", 2, 300., JM_SETTING_DEFAULT);
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

static void test_units(void **state)
{
	(void)state;
	refuses("gpu.power=300", JM_EUSAGE, "no unit");
	refuses("gpu.power=300W,400", JM_EUSAGE, "no unit");
	refuses("gpu.power=200:400+100", JM_EUSAGE, "no unit");
	refuses("gpu.power=300MHz", JM_EUSAGE, "mW, W, kW");
	refuses("gpu.share=0.5W", JM_EUSAGE, "number has no unit");
}

static void test_limits(void **state)
{
	(void)state;
	refuses("gpu.power=500W", JM_ERANGE, "GPU 1 A100 (GPU-9a02) takes 100W to 400W, not 500W");
	refuses("gpu.power@GPU-8f=100:300+100W", JM_ERANGE, "200W to 700W, not 100W");
	refuses("gpu.power=default", JM_EUSAGE, "default of gpu.power on GPU 1 A100");
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
	char text[40];

	(void)state;
	jm_setting_value_text(300, "W", text, sizeof(text));
	assert_string_equal(text, "300W");
	jm_setting_value_text(JM_SETTING_DEFAULT, "W", text, sizeof(text));
	assert_string_equal(text, "default");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_grammar),
		cmocka_unit_test(test_no_knobs),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
