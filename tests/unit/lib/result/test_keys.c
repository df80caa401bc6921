/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of keys: each kind of refusal, details dropped, and the record's table against its JSON
 * Schema. */
#include "kit/test.h"
#include "base/text/keys_read.h"

#include "result/record_keys.h"

#include <stdio.h>

static const char *const words[] = {"one", "two", NULL};
static const struct jm_key inner_keys[] = {
	{.name = "x", .type = JM_KEY_NUMBER, .flags = JM_KEY_REQUIRED, .min = -1, .max = 1},
	{.name = "log", .type = JM_KEY_TEXT, .flags = JM_KEY_DETAIL},
	{0},
};
static const struct jm_key keys[] = {
	{.name = "text", .type = JM_KEY_TEXT, .flags = JM_KEY_NULL | JM_KEY_NOT_EMPTY, .max = 4},
	{.name = "word", .type = JM_KEY_WORD, .words = words},
	{.name = "id", .type = JM_KEY_ID},
	{.name = "n", .type = JM_KEY_INTEGER, .min = 1, .max = 9},
	{.name = "flag", .type = JM_KEY_FLAG},
	{.name = "texts", .type = JM_KEY_TEXTS, .max = 2},
	{.name = "numbers", .type = JM_KEY_NUMBERS, .flags = JM_KEY_NULLS, .max = 3},
	{.name = "list", .type = JM_KEY_LIST, .keys = inner_keys},
	{.name = "lists", .type = JM_KEY_LISTS},
	{.name = "free", .type = JM_KEY_OBJECT},
	{.name = "scalar", .type = JM_KEY_SCALAR},
	{0},
};

/* Single quotes are easier to read here. */
static json_t *parsed(const char *text)
{
	char copy[1024];
	json_t *json;

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *c = copy; *c; c++)
		*c = *c == '\'' ? '"' : *c;
	json = json_loads(copy, 0, NULL);
	assert_non_null(json);
	return json;
}

static void test_sound(void **state)
{
	static const char *const rows[] = {
		"{}",
		"{'text': 'four', 'word': 'two', 'id': '00112233445566778899aabbccddeeff'}",
		"{'text': null, 'n': 9, 'flag': false, 'texts': ['', 'b'], 'list': []}",
		"{'list': [{'x': -1}, {'x': 0.5}], 'lists': {'a': [], 'b': ['c']}, 'other': [[]]}",
		"{'numbers': [1, null, -2.5e300]}",
		"{'free': {'a': {'b': [1, 'c', null, true]}}, 'scalar': 1.5}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct jm_err err = JM_ERR_INIT;
		json_t *json = parsed(rows[i]);
		int rc = jm_keys_check(keys, json, "it", &err);

		assert_ok(rc, err);
		json_decref(json);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *json, *said;
	} rows[] = {
		{"[]", "it is a list, but an object"},
		{"{'text': 'fives'}", "text is text that is too long"},
		{"{'text': ''}", "text is empty"},
		{"{'text': 1}", "text is an integer, but text or null"},
		{"{'word': 'three'}", "word is other text"},
		{"{'word': null}", "word is null"},
		{"{'id': '00112233445566778899AABBCCDDEEFF'}", "id is other text"},
		{"{'n': 1.0}", "n is a number, but an integer"},
		{"{'n': 10}", "n is 10, which is out of range"},
		{"{'flag': 1}", "flag is an integer"},
		{"{'texts': ['a', 'b', 'c']}", "texts is too long"},
		{"{'texts': ['a', null]}", "texts[1] is null"},
		{"{'numbers': [1, null, 3, 4]}", "numbers is too long"},
		{"{'numbers': [1, 'b']}", "numbers[1] is text"},
		{"{'numbers': 1}", "numbers is an integer"},
		{"{'list': [{'x': 0}, {}]}", "list[1].x is missing"},
		{"{'list': [{'x': 0}, {'x': 2}]}", "list[1].x is 2, which is out of range"},
		{"{'list': [0]}", "list[0] is an integer"},
		{"{'lists': {'a': ['b', 1]}}", "lists.a[1] is an integer"},
		{"{'lists': {'a': 'b'}}", "lists.a is text"},
		{"{'free': {'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':"
		 "{'a':{'a':{'a':{'a': 1}}}}}}}}}}}}}}}}}}}",
			"is too deep"},
		{"{'scalar': []}", "scalar is a list"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct jm_err err = JM_ERR_INIT;
		json_t *json = parsed(rows[i].json);

		assert_int_equal(jm_keys_check(keys, json, "it", &err), JM_EFORMAT);
		assert_sentence(&err, JM_EFORMAT);
		if (!strstr(err.text, rows[i].said))
			fail_msg("%s\n%s", err.text, rows[i].said);
		json_decref(json);
	}
}

static void test_details(void **state)
{
	json_t *json = parsed("{'list': [{'x': 0, 'log': 'a'}, {'x': 1, 'log': 'b', 'y': 2}]}");
	json_t *rest = parsed("{'list': [{'x': 0}, {'x': 1, 'y': 2}]}");

	(void)state;
	jm_keys_drop_details(keys, json);
	assert_true(json_equal(json, rest));
	json_decref(json);
	json_decref(rest);
}

/* What the library's parser and dropping afterwards give. */
static void assert_read_as_parsed(struct jm_keys_reader *reader, bool brief, const char *text)
{
	json_t *whole = json_loads(text, 0, NULL);
	json_t *json = jm_keys_read(reader, text, strlen(text));

	if (whole && brief)
		jm_keys_drop_details(keys, whole);
	if (!whole != !json || (whole && !json_equal(json, whole)))
		fail_msg("%s", text);
	json_decref(whole);
	json_decref(json);
}

static const char *const readable[] = {
	"{}",
	"{'a': 1}",
	" { 'list' : [ {'x': 0, 'log': 'a'} , {'log': ']}\\'', 'x': 1} ] , 'n': 2 } ",
	"{'list': [], 'log': [1, {'log': 2}], 'free': {'log': {'a': [true, null]}}}",
	"{'list': [{'log': 'only'}, 3, [4, {'log': 5}]], 'text': 'a, \\\\'}",
	"{'list': {'log': 1}, 'texts': ['log', '']}",
	"{'list': [{'x': -1e5, 'log': -2.5e-3}]}",
	"{'n': [0, -0, -7, 999999999999999999, 9223372036854775807, -9223372036854775808, 0.0]}",
	"{'n': [1e300, 4e-324, 1E+2, 0.1, 123456789.123456789e-30], 't': [true, false, null]}",
	"{'text': 'gr\303\266\303\237e \342\202\254', 'gr\303\266': 1, '': 2, '\\u0041': 3}",
	"{'text': '\\u00e9\\n\\ud83d\\ude00', 'a': 1, 'a': 2}",
	"{'free': [[[[[[{'a':[{'b':{}}]}]]]]]], 'list': [{'log': {'x': []}}, {'log': 2}]}",
};

static const char *const unreadable[] = {"", "{", "{'a'", "{'a': }", "{'list': [", "{'list': [{]}",
	"{'a': 1} 2", "{'a': 'b", "{'log': {[}", "{'list': [{'log': 1,}]}", "{,}", "{'a': 01}",
	"{'a': 1.}", "{'a': -}", "{'a': 1e}", "{'a': +1}", "{'a': nul}", "{'a': truex}",
	"{'a': 1e999}", "{'a': 99999999999999999999}", "{'a': '\001'}", "{'a': '\377'}",
	"{'a': '\\u0000'}", "{'a': '\\x'}", "{'a' 1}", "{'a': 1 'b': 2}", "{'a': [1 2]}",
	"{'a': .5}"};

static char *quoted(const char *text)
{
	char *copy = strdup(text);

	for (char *c = copy; *c; c++)
		*c = *c == '\'' ? '"' : *c;
	return copy;
}

/* In any order, so that what was read before is met again, whole and brief. */
static void reads_as_the_library_does(void **state)
{
	size_t n = sizeof(readable) / sizeof(readable[0]);
	size_t n_bad = sizeof(unreadable) / sizeof(unreadable[0]);

	(void)state;
	for (int brief = 0; brief < 2; brief++) {
		struct jm_keys_reader *reader = jm_keys_reader_new(keys, brief);

		for (size_t i = 0; i < 40 * (n + n_bad); i++) {
			size_t k = i * 7 % (n + n_bad);
			char *text = quoted(k < n ? readable[k] : unreadable[k - n]);
			json_t *json = json_loads(text, 0, NULL);

			if (!json != (k >= n))
				fail_msg("%s", text);
			json_decref(json);
			assert_read_as_parsed(reader, brief, text);
			free(text);
		}
		jm_keys_reader_free(reader);
	}
}

/* One byte is another one: whatever comes of it, the library's parser says the same. */
static void reads_damage_as_the_library_does(void **state)
{
	static const char bytes[] = "{}[],:\"\\0-.eE tn\x01\x7f\xc3\xff";
	struct jm_keys_reader *reader = jm_keys_reader_new(keys, false);

	(void)state;
	for (size_t i = 0; i < sizeof(readable) / sizeof(readable[0]); i++) {
		char *text = quoted(readable[i]);
		size_t n = strlen(text);

		for (size_t k = 0; k < n * (sizeof(bytes) - 1); k++) {
			char was = text[k % n];

			text[k % n] = bytes[k / n];
			assert_read_as_parsed(reader, false, text);
			text[k % n] = was;
		}
		free(text);
	}
	jm_keys_reader_free(reader);
}

/* Equal text at the same place is one value; a table's details stay out of it where the table is
 * another. */
static void equal_parts_are_one_value(void **state)
{
	static const char *const rows[] = {"{'free': {'log': 1}, 'text': 'a'}",
		"{'free': {'log': 1}, 'text': 'b'}", "{'list': [{'log': 1}]}",
		"{'free': [{'log': 1}]}"};
	struct jm_keys_reader *reader = jm_keys_reader_new(keys, true);
	json_t *json[4];

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		char *text = quoted(rows[i]);

		json[i] = jm_keys_read(reader, text, strlen(text));
		free(text);
	}
	assert_ptr_equal(json_object_get(json[0], "free"), json_object_get(json[1], "free"));
	assert_string_equal(json_string_value(json_object_get(json[1], "text")), "b");
	assert_int_equal(json_object_size(json_array_get(json_object_get(json[2], "list"), 0)), 0);
	assert_int_equal(json_object_size(json_array_get(json_object_get(json[3], "free"), 0)), 1);
	for (size_t i = 0; i < 4; i++)
		json_decref(json[i]);
	jm_keys_reader_free(reader);
}

/* ---- the record's table and docs/record.schema.json say the same ---- */

static json_t *schema;

static const json_t *resolved(const json_t *node)
{
	const char *ref = json_string_value(json_object_get(node, "$ref"));

	if (!ref)
		return node;
	return json_object_get(json_object_get(schema, "definitions"), strrchr(ref, '/') + 1);
}

static bool has_type(const json_t *node, const char *type)
{
	const json_t *types = json_object_get(node, "type"), *one;
	size_t i;

	if (json_is_string(types))
		return !strcmp(json_string_value(types), type);
	json_array_foreach(types, i, one)
	{
		if (!strcmp(json_string_value(one), type))
			return true;
	}
	return false;
}

static const char *schema_type(const struct jm_key *key)
{
	switch (key->type) {
	case JM_KEY_INTEGER:
		return "integer";
	case JM_KEY_NUMBER:
		return "number";
	case JM_KEY_FLAG:
		return "boolean";
	case JM_KEY_OBJECT:
	case JM_KEY_LISTS:
		return "object";
	case JM_KEY_TEXTS:
	case JM_KEY_NUMBERS:
	case JM_KEY_LIST:
		return "array";
	default:
		return "string";
	}
}

static void compare_words(const struct jm_key *key, const json_t *words_json)
{
	size_t n = 0;

	for (; key->words[n]; n++)
		assert_string_equal(
			json_string_value(json_array_get(words_json, n)), key->words[n]);
	if (key->flags & JM_KEY_NULL) {
		assert_true(json_is_null(json_array_get(words_json, n)));
		n++;
	}
	assert_int_equal(json_array_size(words_json), n);
}

static void compare(const struct jm_key *table, const json_t *node, const char *where);

static void compare_key(const struct jm_key *key, const json_t *node, const char *where)
{
	const json_t *least = json_object_get(node, "minimum"),
		     *most = json_object_get(node, "maximum");

	if (json_object_get(node, "enum")) {
		compare_words(key, json_object_get(node, "enum"));
		return;
	}
	if (json_object_get(node, "const"))
		return;
	if (!has_type(node, schema_type(key)))
		fail_msg("%s.%s is another type in the schema", where, key->name);
	assert_int_equal(has_type(node, "null"), key->flags & JM_KEY_NULL ? 1 : 0);
	if (least)
		assert_true(key->max > 0 && json_number_value(least) == key->min);
	if (most)
		assert_true(json_number_value(most) == key->max);
	if (key->keys && json_object_get(node, "items"))
		compare(key->keys, resolved(json_object_get(node, "items")), key->name);
	else if (key->keys)
		compare(key->keys, node, key->name);
}

static void compare(const struct jm_key *table, const json_t *node, const char *where)
{
	json_t *properties = json_object_get(node, "properties"), *one;
	const char *name;

	if (!properties) /* the schema leaves it open */
		return;
	for (const struct jm_key *key = table; key->name; key++) {
		const json_t *found = resolved(json_object_get(properties, key->name));

		if (!found)
			fail_msg("docs/record.schema.json has no %s.%s", where, key->name);
		compare_key(key, found, where);
	}
	json_object_foreach(properties, name, one)
	{
		const struct jm_key *key = table;

		while (key->name && strcmp(key->name, name) != 0)
			key++;
		if (!key->name)
			fail_msg("lib/result/record_keys.c has no %s.%s", where, name);
	}
}

static void test_table_and_schema_agree(void **state)
{
	char path[512];

	(void)state;
	snprintf(path, sizeof(path), "%s/docs/record.schema.json", getenv("JM_SOURCE"));
	schema = json_load_file(path, 0, NULL);
	assert_non_null(schema);
	compare(jm_record_keys, schema, "record");
	json_decref(schema);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sound),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_details),
		cmocka_unit_test(reads_as_the_library_does),
		cmocka_unit_test(reads_damage_as_the_library_does),
		cmocka_unit_test(equal_parts_are_one_value),
		cmocka_unit_test(test_table_and_schema_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
