/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of values in a JSON file: joined, they are what the library's parser reads from the
 * whole. */
#include "kit/test.h"

#include <jansson.h>

#include "base/text/json_texts.h"

/* All values of the text in one list; NULL: it is refused. */
static json_t *split(const char *text, size_t n)
{
	struct jm_json_texts t;
	json_t *all = json_array();
	FILE *f = fmemopen((void *)(uintptr_t)text, n, "r");
	int got;

	assert_non_null(f);
	jm_json_texts_init(&t, f);
	while ((got = jm_json_texts_next(&t)) > 0) {
		assert_int_equal(strlen(t.text), t.n);
		if (json_array_append_new(all, json_loadb(t.text, t.n, JSON_DECODE_ANY, NULL)))
			break;
	}
	if (got)
		json_decref(all);
	jm_json_texts_done(&t);
	fclose(f);
	return got ? NULL : all;
}

static void assert_split(const char *text, const char *expected)
{
	json_t *all = split(text, strlen(text));
	json_t *right = expected ? json_loads(expected, 0, NULL) : NULL;

	if (!all != !right || (right && !json_equal(all, right)))
		fail_msg("%s", text);
	json_decref(all);
	json_decref(right);
}

static void values_are_those_of_the_file(void **state)
{
	(void)state;
	assert_split("[]", "[]");
	assert_split(" {\"a\": [1, \"]}\\\"\"]}\n", "[{\"a\": [1, \"]}\\\"\"]}]");
	assert_split("[1, null ,\"a,\" , [2,[3]],{}]", "[1, null, \"a,\", [2, [3]], {}]");
	assert_split("{\"a\":1}{\"b\":2}\n[{\"c\":3}]", "[{\"a\":1}, {\"b\":2}, {\"c\":3}]");
}

static void what_is_not_json_is_refused(void **state)
{
	static const char *const bad[] = {" ", "1", "]", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]",
		"[1] 2", "[1]]", "{\"a\": 1", "[{\"a\": \"b]", "[}", "[1:2]", "[{]", "[1,\"\\\"]"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_split(bad[i], NULL);
}

/* Values, strings and escapes lie across the pieces in which the file is read. */
static void pieces_of_the_file_do_not_show(void **state)
{
	size_t n = 400000, used = 1;
	char *text = malloc(16 * n);
	json_t *all, *right;

	(void)state;
	text[0] = '[';
	for (size_t i = 0; i < n; i++)
		used += (size_t)snprintf(text + used, 16, "\"%zu\\\"\\\\\",", i % 97);
	text[used - 1] = ']';
	all = split(text, used);
	right = json_loadb(text, used, 0, NULL);
	assert_non_null(all);
	assert_int_equal(json_array_size(all), n);
	assert_true(json_equal(all, right));
	json_decref(all);
	json_decref(right);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_those_of_the_file),
		cmocka_unit_test(what_is_not_json_is_refused),
		cmocka_unit_test(pieces_of_the_file_do_not_show),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
