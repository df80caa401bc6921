/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and entries of tables as people read them. */
#include "kit/test.h"

#include "report/format/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void digits_follow_the_interval(void **state)
{
	static const struct {
		double mean, half_width;
		const char *text;
	} rows[] = {
		{NAN, NAN, "-"},
		{0, NAN, "0.0"},
		{43.2, NAN, "43.20"},
		{9225.4, NAN, "9225"},
		{14334, NAN, "14,334"},
		{16.1171, 0.0062, "16.12 ± 0.01"},
		{2617, 123, "2620 ± 120"},
		{121084, 1290, "121,100 ± 1,300"},
		{0.014, 0.0071, "0.014 ± 0.007"},
		{10.42, 0.84, "10.4 ± 0.8"},
		{0, 0.5, "0.0 ± 0.5"},
		/* more than the mean: two digits of the mean remain */
		{0.0019, 0.0124, "0.0019 ± 0.0124"},
		{837682, 1116028, "840,000 ± 1,120,000"},
	};
	char text[80];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		jm_text_estimate(rows[i].mean, rows[i].half_width, text, sizeof(text));
		assert_string_equal(text, rows[i].text);
	}
}

static char *entry(const char *name, int indent, int column, int width)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	assert_non_null(out);
	jm_text_entry(out, name, "what it is for", indent, column, width);
	fclose(out);
	return text;
}

static void entries_begin_at_their_column(void **state)
{
	static const struct {
		const char *name;
		int width;
		const char *text;
	} rows[] = {
		{"name", 80, "  name  what it is for\n"},
		{"name", 18, "  name  what it is\n        for\n"},
		{"names", 80, "  names what it is for\n"},
		{"a-name", 80, "  a-name\n        what it is for\n"},
		{"name é", 80, "  name é\n        what it is for\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *text = entry(rows[i].name, 2, 8, rows[i].width);

		assert_string_equal(text, rows[i].text);
		free(text);
	}
}

/* Between a number and its % no line ends. */
static void percents_stay_with_their_numbers(void **state)
{
	static const struct {
		int width;
		const char *text;
	} rows[] = {
		{80, "at most 5 % slower\n"},
		{9, "at most\n  5 %\n  slower\n"},
		{10, "at most\n  5 %\n  slower\n"},
		{11, "at most 5 %\n  slower\n"},
		{12, "at most 5 %\n  slower\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *text = NULL;
		size_t n = 0;
		FILE *out = open_memstream(&text, &n);

		assert_non_null(out);
		jm_text_wrap(out, "at most 5 % slower", 0, 2, rows[i].width);
		fclose(out);
		assert_string_equal(text, rows[i].text);
		free(text);
	}
}

static void times_below_a_second_have_a_prefix(void **state)
{
	static const struct {
		const char *unit;
		double value, factor;
		const char *prefix;
	} rows[] = {
		{"s", 0.018, 1e-3, "m"},
		{"s", 2e-5, 1e-6, "µ"},
		{"s/token", 0.5, 1e-3, "m"},
		{"s", 1, 1, ""},
		{"s", 5000, 1, ""},
		{"s", 0, 1, ""},
		{"sample/s", 0.018, 1, ""},
		{"J/token", 0.018, 1e-3, "m"},
		{"J", 5000, 1e3, "k"},
		{"W", 0.018, 1, ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *prefix;

		assert_float_equal(
			jm_text_prefix(rows[i].unit, rows[i].value, &prefix), rows[i].factor, 0);
		assert_string_equal(prefix, rows[i].prefix);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(digits_follow_the_interval),
		cmocka_unit_test(entries_begin_at_their_column),
		cmocka_unit_test(percents_stay_with_their_numbers),
		cmocka_unit_test(times_below_a_second_have_a_prefix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
