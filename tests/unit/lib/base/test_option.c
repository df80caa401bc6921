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
	/* half of another word's letters are not what was meant */
	assert_null(jm_did_you_mean("warmup", (const char *const[]){"cgroup"}, 1));
	/* nor is another letter */
	assert_null(jm_did_you_mean("0", (const char *const[]){"n"}, 1));
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

/* The values of `rows`, for each test anew. */
static int fresh(void **state)
{
	static struct jm_values v;
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_values_init(&v, rows, &err), err);
	*state = &v;
	return 0;
}

static int done(void **state)
{
	jm_values_done(*state);
	return 0;
}

static void set(struct jm_values *v, const char *name, const char *text)
{
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_values_set(v, name, text, &err), err);
}

static void each_row_has_its_default_until_it_is_given(void **state)
{
	const struct jm_values *v = *state;

	assert_int_equal(v->n, 8);
	assert_near(jm_values_number(v, "batch"), 4, 0);
	assert_near(jm_values_number(v, "interval"), 0.1, 1e-15);
	assert_near(jm_values_number(v, "quiet"), 0, 0);
	assert_string_equal(jm_values_text(v, "precision"), "f32");
	assert_false(jm_values_get(v, "batch")->given);
}

static void a_row_without_a_default_is_unknown(void **state)
{
	const struct jm_values *v = *state;

	assert_true(isnan(jm_values_number(v, "rate")));
	assert_null(jm_values_text(v, "json"));
}

static void values_of_each_type_are_taken(void **state)
{
	struct jm_values *v = *state;

	set(v, "batch", "8");
	set(v, "interval", "2");
	set(v, "precision", "bf16");
	set(v, "quiet", "1");
	assert_near(jm_values_number(v, "batch"), 8, 0);
	assert_true(jm_values_get(v, "batch")->given);
	assert_near(jm_values_number(v, "interval"), 2, 0);
	assert_string_equal(jm_values_text(v, "precision"), "bf16");
	assert_near(jm_values_number(v, "quiet"), 1, 0);
}

static void the_last_value_counts(void **state)
{
	struct jm_values *v = *state;

	set(v, "batch", "8");
	set(v, "batch", "16");
	assert_near(jm_values_number(v, "batch"), 16, 0);
}

static void a_repeated_option_keeps_all_its_texts(void **state)
{
	struct jm_values *v = *state;

	set(v, "set", "a=1W");
	set(v, "set", "b=2W");
	assert_int_equal(jm_values_get(v, "set")->n_texts, 2);
	assert_string_equal(jm_values_get(v, "set")->texts[0], "a=1W");
	assert_string_equal(jm_values_get(v, "set")->texts[1], "b=2W");
	assert_null(jm_values_get(v, "set")->texts[2]);
}

static void a_minimum_above_the_maximum_is_no_limit(void **state)
{
	set(*state, "rate", "-1e12");
	assert_near(jm_values_number(*state, "rate"), -1e12, 0);
}

static void an_unknown_name_is_refused_with_the_nearest(void **state)
{
	refuse(*state, "bacth", "8", JM_EUSAGE, "did you mean --batch?");
	refuse(*state, "frobnicate", "8", JM_EUSAGE, "--help");
}

static void a_value_beyond_a_limit_is_refused_with_the_limits(void **state)
{
	refuse(*state, "batch", "0", JM_ERANGE, "1 to 64");
	refuse(*state, "batch", "65", JM_ERANGE, "1 to 64");
	refuse(*state, "pid", "4194305", JM_ERANGE, "1 to 4194304.");
	refuse(*state, "interval", "0", JM_ERANGE, "0.001s to 10s");
}

static void what_is_no_whole_number_is_refused(void **state)
{
	refuse(*state, "batch", "4.5", JM_EUSAGE, "whole number");
	refuse(*state, "batch", "four", JM_EUSAGE, "four");
	refuse(*state, "batch", "", JM_EUSAGE, "number");
	refuse(*state, "batch", "4x", JM_EUSAGE, "4x");
	refuse(*state, "batch", "4:16", JM_EUSAGE, "16:64+16");
}

static void an_unknown_unit_is_refused_with_the_units(void **state)
{
	refuse(*state, "interval", "100fs", JM_EUSAGE, "ns, us, ms");
}

static void what_is_no_choice_is_refused_with_the_choices(void **state)
{
	refuse(*state, "precision", "bf61", JM_EUSAGE, "did you mean 'bf16'?");
	refuse(*state, "precision", "complex", JM_EUSAGE, "f32, bf16");
	refuse(*state, "quiet", "perhaps", JM_EUSAGE, "perhaps");
}

static void an_empty_text_is_refused(void **state)
{
	refuse(*state, "json", "", JM_EUSAGE, "needs a value");
}

static void a_refused_value_changes_nothing(void **state)
{
	struct jm_values *v = *state;

	refuse(v, "batch", "65", JM_ERANGE, "1 to 64");
	refuse(v, "batch", "four", JM_EUSAGE, "four");
	assert_near(jm_values_number(v, "batch"), 4, 0);
	assert_false(jm_values_get(v, "batch")->given);
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

/* One field of each type that a row can be bound to. */
struct bound {
	int before;
	const char *text, *unset_text, *word;
	char *const *all, *const *none;
	bool flag, unset_flag, gives_text, gives_count;
	int count, unset_count;
	enum { ROUND, SQUARE, OVAL } shape, unset_shape;
	int64_t seed, period_ns, unset_ns;
	double share, seconds, unset_real, size;
	int after;
};

static const char *const shapes[] = {"round", "square", "oval", NULL};
static const char *const size_words[] = {"max", NULL};
static const struct jm_option bound_rows[] = {
	{.name = "text",
		JM_BIND(JM_TEXT, struct bound, text),
		JM_GIVEN(struct bound, gives_text),
		.fallback = "a"},
	{.name = "unset-text", JM_BIND(JM_TEXT, struct bound, unset_text)},
	{.name = "word", JM_BIND(JM_CHOICE, struct bound, word), .choices = shapes},
	{.name = "all", JM_BIND(JM_TEXT, struct bound, all), .repeat = true},
	{.name = "none", JM_BIND(JM_TEXT, struct bound, none), .repeat = true},
	{.name = "flag", JM_BIND(JM_FLAG, struct bound, flag)},
	{.name = "unset-flag", JM_BIND(JM_FLAG, struct bound, unset_flag)},
	{.name = "count",
		JM_BIND(JM_INT, struct bound, count),
		JM_GIVEN(struct bound, gives_count),
		.fallback = "-3",
		.min = -5,
		.max = 5},
	{.name = "unset-count", JM_BIND(JM_INT, struct bound, unset_count)},
	{.name = "shape", JM_BIND(JM_CHOICE, struct bound, shape), .choices = shapes},
	{.name = "unset-shape", JM_BIND(JM_CHOICE, struct bound, unset_shape), .choices = shapes},
	{.name = "seed", JM_BIND(JM_INT, struct bound, seed)},
	{.name = "period", JM_BIND(JM_DURATION, struct bound, period_ns), .unit = "s"},
	{.name = "unset-ns", JM_BIND(JM_DURATION, struct bound, unset_ns), .unit = "s"},
	{.name = "share", JM_BIND(JM_REAL, struct bound, share)},
	{.name = "seconds", JM_BIND(JM_DURATION, struct bound, seconds), .unit = "s"},
	{.name = "unset-real", JM_BIND(JM_REAL, struct bound, unset_real)},
	{.name = "size", JM_BIND(JM_INT, struct bound, size), .choices = size_words},
	{0},
};
static const struct jm_option other_rows[] = {{.name = "other", .type = JM_TEXT}, {0}};

static void set_bound(struct jm_values *v)
{
	static const char *const given[][2] = {{"text", "b"}, {"word", "oval"}, {"all", "x"},
		{"all", "y"}, {"flag", "yes"}, {"count", "4"}, {"shape", "square"},
		{"seed", "5000000000"}, {"period", "20ms"}, {"share", "0.25"}, {"seconds", "2min"},
		{"size", "max"}};
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_values_init(v, bound_rows, &err), err);
	assert_ok(jm_values_add(v, other_rows, &err), err);
	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
		assert_ok(jm_values_set(v, given[i][0], given[i][1], &err), err);
}

static void values_reach_their_fields(void **state)
{
	struct bound b = {0};
	struct jm_values v;

	(void)state;
	set_bound(&v);
	JM_FILL(&v, &b);
	assert_string_equal(b.text, "b");
	assert_string_equal(b.word, "oval");
	assert_string_equal(b.all[0], "x");
	assert_string_equal(b.all[1], "y");
	assert_null(b.all[2]);
	assert_true(b.flag);
	assert_int_equal(b.count, 4);
	assert_int_equal(b.shape, SQUARE);
	assert_true(b.seed == 5000000000);
	assert_true(b.period_ns == 20000000);
	assert_near(b.share, 0.25, 0);
	assert_near(b.seconds, 120, 0);
	assert_true(isnan(b.size)); /* a word in place of the number */
	jm_values_done(&v);
}

static void unset_fields_are_empty_and_integers_stay(void **state)
{
	struct bound b = {.before = 1,
		.after = 2,
		.unset_text = "old",
		.unset_flag = true,
		.unset_count = 7,
		.unset_shape = OVAL,
		.unset_ns = 8};
	struct jm_values v;

	(void)state;
	set_bound(&v);
	JM_FILL(&v, &b);
	assert_null(b.unset_text);
	assert_null(b.none);
	assert_false(b.unset_flag);
	assert_true(isnan(b.unset_real));
	assert_int_equal(b.unset_count, 7);
	assert_int_equal(b.unset_shape, OVAL);
	assert_true(b.unset_ns == 8);
	assert_int_equal(b.before, 1);
	assert_int_equal(b.after, 2);
	jm_values_done(&v);
}

static void what_is_given_is_no_default(void **state)
{
	struct bound b = {.gives_count = true};
	struct jm_err err = JM_ERR_INIT;
	struct jm_values v;

	(void)state;
	assert_ok(jm_values_init(&v, bound_rows, &err), err);
	assert_ok(jm_values_set(&v, "text", "a", &err), err);
	JM_FILL(&v, &b);
	assert_true(b.gives_text);
	assert_false(b.gives_count);
	assert_string_equal(b.text, "a");
	assert_int_equal(b.count, -3);
	jm_values_done(&v);
}

static void another_struct_is_left_alone(void **state)
{
	char bytes[sizeof(struct bound) / 2] = {0};
	struct jm_values v;

	(void)state;
	set_bound(&v);
	JM_FILL(&v, &bytes);
	for (size_t i = 0; i < sizeof(bytes); i++)
		assert_int_equal(bytes[i], 0);
	jm_values_done(&v);
}

int main(void)
{
#define ROWS_TEST(f) cmocka_unit_test_setup_teardown(f, fresh, done)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantities_with_units),
		cmocka_unit_test(errors_say_what_to_do),
		cmocka_unit_test(did_you_mean),
		ROWS_TEST(each_row_has_its_default_until_it_is_given),
		ROWS_TEST(a_row_without_a_default_is_unknown),
		ROWS_TEST(values_of_each_type_are_taken),
		ROWS_TEST(the_last_value_counts),
		ROWS_TEST(a_repeated_option_keeps_all_its_texts),
		ROWS_TEST(a_minimum_above_the_maximum_is_no_limit),
		ROWS_TEST(an_unknown_name_is_refused_with_the_nearest),
		ROWS_TEST(a_value_beyond_a_limit_is_refused_with_the_limits),
		ROWS_TEST(what_is_no_whole_number_is_refused),
		ROWS_TEST(an_unknown_unit_is_refused_with_the_units),
		ROWS_TEST(what_is_no_choice_is_refused_with_the_choices),
		ROWS_TEST(an_empty_text_is_refused),
		ROWS_TEST(a_refused_value_changes_nothing),
		cmocka_unit_test(no_rows),
		cmocka_unit_test(values_reach_their_fields),
		cmocka_unit_test(unset_fields_are_empty_and_integers_stay),
		cmocka_unit_test(what_is_given_is_no_default),
		cmocka_unit_test(another_struct_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
