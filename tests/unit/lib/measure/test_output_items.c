/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in the output of a command: what an expression or a key finds, and expressions that would
 * not end. */
#include "kit/test.h"
#include "kit/got_marks.h"
#include "measure/command/output_items.h"

/* The items that are found in an output and their number, from pieces of three bytes. */
static double scanned(const char *regex, const char *key, const char *output, int *ret_n)
{
	struct jm_err err = JM_ERR_INIT;
	struct got got = {.n = 0};
	struct jm_scan *scan;
	double sum = 0;

	assert_ok(jm_scan_new(regex, key, &scan, &err), err);
	for (size_t n; *output; output += n) { /* in odd pieces */
		n = strnlen(output, 3);
		jm_scan_feed(scan, output, n, 5, get, &got);
	}
	jm_scan_end(scan, 1000, get, &got);
	jm_scan_free(scan);
	for (int i = 0; i < got.n; i++)
		sum += got.mark[i].items;
	*ret_n = got.n;
	return sum;
}

static void numbers_that_an_expression_encloses_are_added(void **state)
{
	int n;

	(void)state;
	assert_near(scanned("([0-9.]+) tokens", NULL, "a 12 tokens\n3.5 tokens 4 tokens\nx", &n),
		19.5, 0);
	assert_int_equal(n, 3);
}

static void a_carriage_return_begins_a_line(void **state)
{
	int n;

	(void)state;
	assert_near(scanned("^n ([0-9])", NULL, "n 1\rn 2\r\n", &n), 3, 0);
	assert_int_equal(n, 2);
}

static void text_that_only_begins_with_a_number_has_no_items(void **state)
{
	int n;

	(void)state;
	assert_near(scanned("^n ([^ ]+)", NULL, "n 2\nn 1,234\nn many\n", &n), 2, 0);
	assert_int_equal(n, 1);
}

/* Its first digits would be another number. */
static void a_number_of_many_digits_is_read_whole_or_not_at_all(void **state)
{
	char text[300];
	int n;

	(void)state;
	snprintf(text, sizeof(text), "n %0100d\nn %100d\nn %050d\n", 5, 6, 7);
	assert_near(scanned("^n (.*)", NULL, text, &n), 13, 0);
	assert_int_equal(n, 2);
}

static void a_match_without_a_group_is_one_item(void **state)
{
	int n;

	(void)state;
	assert_near(scanned("^step", NULL, "step 1\n step\nstep 2", &n), 2, 0);
}

static void numbers_of_a_json_key_are_added(void **state)
{
	int n;

	(void)state;
	assert_near(
		scanned(NULL, "tokens", "{\"tokens\": 5}\nhello\n{\"tokens\": 7}\n", &n), 12, 0);
}

static void a_key_with_dots_is_a_path(void **state)
{
	int n;

	(void)state;
	assert_near(scanned(NULL, "result.tokens", "{\"result\":\n {\"tokens\": 5}}\n", &n), 5, 0);
}

static void json_without_a_number_at_the_key_has_no_items(void **state)
{
	int n;

	(void)state;
	assert_near(scanned(NULL, "tokens", "[1, 2]\n{\"tokens\": \"5\"}\n", &n), 0, 0);
	assert_int_equal(n, 0);
}

static void an_empty_match_does_not_stop_the_search(void **state)
{
	int n;

	(void)state;
	assert_near(scanned("x*", NULL, "a\xff\xc3z", &n), 4, 0);
}

static void a_line_begins_once(void **state)
{
	int n;

	(void)state;
	assert_near(scanned("^n?([0-9])", NULL, "n1n2\n\xfe 4\n3", &n), 4, 0);
}

static void bytes_that_are_no_utf8_do_not_stop_the_search(void **state)
{
	int n;

	(void)state;
	assert_near(scanned("\xc3\xa9([0-9]+)", NULL,
			    "\xff \xc3\xa9"
			    "12",
			    &n),
		12, 0);
}

static void an_expression_or_a_key_but_not_both(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_scan *scan;

	(void)state;
	assert_int_equal(jm_scan_new("a", "b", &scan, &err), JM_EUSAGE);
	assert_sentence(&err, JM_EUSAGE);
}

/* So are those that would need more than the stack. Such a line is not one without items. */
static void searches_that_would_not_end_are_counted(void **state)
{
	static const char *const patterns[] = {"(a*)(a*)\\1\\2b", "^(a+)+b$", "(?:a|aa|a?)+?b"};
	char line[3002];

	(void)state;
	memset(line, 'a', sizeof(line));
	line[sizeof(line) - 3] = 'X';
	line[sizeof(line) - 2] = 'b'; /* the last letter that they ask for is there */
	line[sizeof(line) - 1] = '\n';
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		struct jm_err err = JM_ERR_INIT;
		struct got got = {.n = 0};
		struct jm_scan *scan;

		assert_ok(jm_scan_new(patterns[i], NULL, &scan, &err), err);
		for (int k = 0; k < 500; k++)
			jm_scan_feed(scan, line, sizeof(line), 5, get, &got);
		assert_int_equal(got.n, 0);
		assert_int_equal(jm_scan_limited(scan), 500);
		jm_scan_free(scan);
	}
}

static void expressions_that_are_refused(void **state)
{
	char deep[100001];

	(void)state;
	memset(deep, '(', 50000);
	memset(deep + 50000, ')', 50000);
	deep[100000] = '\0';
	for (int i = 0; i < 5; i++) {
		static const char *const others[] = {
			"(", "a{2,1}", "[b-a]", "((a?){0,200}){0,200}b"};
		struct jm_err err = JM_ERR_INIT;
		struct jm_scan *scan;

		assert_int_equal(
			jm_scan_new(i ? others[i - 1] : deep, NULL, &scan, &err), JM_EUSAGE);
		assert_sentence(&err, JM_EUSAGE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_that_an_expression_encloses_are_added),
		cmocka_unit_test(a_carriage_return_begins_a_line),
		cmocka_unit_test(text_that_only_begins_with_a_number_has_no_items),
		cmocka_unit_test(a_number_of_many_digits_is_read_whole_or_not_at_all),
		cmocka_unit_test(a_match_without_a_group_is_one_item),
		cmocka_unit_test(numbers_of_a_json_key_are_added),
		cmocka_unit_test(a_key_with_dots_is_a_path),
		cmocka_unit_test(json_without_a_number_at_the_key_has_no_items),
		cmocka_unit_test(an_empty_match_does_not_stop_the_search),
		cmocka_unit_test(a_line_begins_once),
		cmocka_unit_test(bytes_that_are_no_utf8_do_not_stop_the_search),
		cmocka_unit_test(an_expression_or_a_key_but_not_both),
		cmocka_unit_test(searches_that_would_not_end_are_counted),
		cmocka_unit_test(expressions_that_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
