/* SPDX-License-Identifier: Apache-2.0 */
#include "kit/test.h"
#include "base/text/number.h"

static const char *const wrong[] = {"", " ", " 1", "1 ", "1\n", "0x10", "0X1p3", "inf", "nan",
	"infinity", "1e999", "-1e999", "1 J", "1,5", "1.5.2", "--1", "+-1", "e5", ".", "-", "1e",
	"1e+", "one"};

static void takes_decimal_numbers_only(void **state)
{
	static const struct {
		const char *text;
		double value;
	} right[] = {{"0", 0}, {"12", 12}, {"-1.5e3", -1500}, {"+2", 2}, {".5", 0.5}, {"5.", 5},
		{"1E-2", 0.01}, {"00012", 12}};
	double value = 7;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (jm_number_real(wrong[i], &value))
			fail_msg("'%s' was taken for %g", wrong[i], value);
	assert_near(value, 7, 0);
	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
		assert_true(jm_number_real(right[i].text, &value));
		assert_near(value, right[i].value, 0);
	}
}

static void takes_digits_only(void **state)
{
	uint64_t value = 7;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (jm_number_whole(wrong[i], UINT64_MAX, &value))
			fail_msg("'%s' was taken for %lu", wrong[i], (unsigned long)value);
	assert_false(jm_number_whole("-5", 100, &value));
	assert_false(jm_number_whole("+5", 100, &value));
	assert_false(jm_number_whole("1.0", 100, &value));
	assert_false(jm_number_whole("101", 100, &value));
	assert_false(jm_number_whole("18446744073709551616", UINT64_MAX, &value));
	assert_int_equal(value, 7);
	assert_true(jm_number_whole("18446744073709551615", UINT64_MAX, &value));
	assert_true(value == UINT64_MAX);
	assert_true(jm_number_whole("0100", 100, &value));
	assert_int_equal(value, 100);
}

static void shows_two_digits_at_least(void **state)
{
	static const struct {
		double bytes;
		const char *text;
	} sizes[] = {{0, "0.00"}, {134.2e9, "134.20"}, {1e9, "1.00"}, {0.12e9, "0.12"},
		{0.0996e9, "0.10"}, {98e6, "0.098"}, {31e3, "0.000031"}, {1, "0.000000001"}};
	char text[24];

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(text, sizeof(text), "%.*f", JM_GB(sizes[i].bytes));
		assert_string_equal(text, sizes[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_decimal_numbers_only),
		cmocka_unit_test(takes_digits_only),
		cmocka_unit_test(shows_two_digits_at_least),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
