/* SPDX-License-Identifier: Apache-2.0 */
#include "kit/test.h"

static void first_error_wins(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	assert_int_equal(jm_err_set(&err, JM_EIO, "Cannot read %s.", "a"), JM_EIO);
	assert_int_equal(jm_err_set(&err, JM_EPERM, "Cannot write %s.", "b"), JM_EPERM);
	assert_int_equal(err.code, JM_EIO);
	assert_string_equal(err.text, "Cannot read a.");
}

static void no_place_for_it(void **state)
{
	(void)state;
	assert_int_equal(jm_err_set(NULL, JM_ERANGE, "Nobody %s.", "asks"), JM_ERANGE);
}

static void codes_are_negative_and_named(void **state)
{
	(void)state;
#define X(name, text)                                                                              \
	assert_true(JM_E##name < 0);                                                               \
	assert_string_equal(jm_err_name(JM_E##name), text);
	JM_ERRORS(X)
#undef X
	assert_string_equal(jm_err_name(JM_OK), "no error");
	assert_string_equal(jm_err_name(-1000), "unknown error");
	assert_string_equal(jm_err_name(7), "unknown error");
}

/* A sentence too long is cut between characters and shows it: JSON takes nothing but UTF-8. */
static void long_sentence_stays_utf8(void **state)
{
	char word[2 * 400 + 1];
	size_t n;

	(void)state;
	for (int i = 0; i < 400; i++)
		memcpy(word + 2 * i, "\xc3\xa4", 3);
	for (int shift = 0; shift < 3; shift++) {
		struct jm_err err = JM_ERR_INIT;

		jm_err_set(&err, JM_EIO, "%.*s%s.", shift, "ab", word);
		n = strlen(err.text);
		assert_true(n < sizeof(err.text) && n > sizeof(err.text) - 8);
		assert_string_equal(err.text + n - 3, "...");
		for (size_t i = (size_t)shift % 3; i + 3 < n; i += 2)
			assert_memory_equal(err.text + i, "\xc3\xa4", 2);
	}
}

/* Bytes that came from outside (a path, a file) must not reach terminals and JSON as they are. */
static void bytes_from_outside_are_tamed(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	jm_err_set(&err, JM_EIO, "Cannot read %s.", "\033[2Ja\xff\n\xc3\xa4\xc3");
	assert_string_equal(err.text, "Cannot read ?[2Ja??\xc3\xa4?.");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_error_wins),
		cmocka_unit_test(no_place_for_it),
		cmocka_unit_test(codes_are_negative_and_named),
		cmocka_unit_test(long_sentence_stays_utf8),
		cmocka_unit_test(bytes_from_outside_are_tamed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
