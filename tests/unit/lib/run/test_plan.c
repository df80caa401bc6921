/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: what a request expands to, which case is the reference, order of the blocks, stable
 * ids. */
#include "kit/test.h"

#include "run/plan/plan.h"

static struct jm_plan plan_of(const char *text)
{
	json_t *request = json_loads(text, 0, NULL);
	struct jm_err err = JM_ERR_INIT;
	struct jm_plan plan;
	int rc;

	assert_non_null(request);
	rc = jm_plan_new(request, &plan, &err);
	assert_ok(rc, err);
	json_decref(request);
	return plan;
}

static const char *setting(const struct jm_plan *plan, int i, const char *name)
{
	return json_string_value(
		json_object_get(json_object_get(plan->cases[i].parameters, "settings"), name));
}

#define POWER(values)                                                                              \
	"'settings': [{'knob': 'gpu.power', 'selector': '', 'unit': 'W', 'values': [" values "]}]"
#define FOUND(value)                                                                               \
	"'found': [{'knob': 'gpu.power', 'device': 'A', 'unit': 'W', 'value': '" value "'},"       \
	"{'knob': 'gpu.power', 'device': 'B', 'unit': 'W', 'value': '700W'}]"

/* JSON is easier to read here with single quotes. */
static struct jm_plan quoted(const char *text)
{
	char copy[2048];

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *c = copy; *c; c++)
		if (*c == '\'')
			*c = '"';
	return plan_of(copy);
}

static int count_references(const struct jm_plan *plan)
{
	int n = 0;

	for (int i = 0; i < plan->n; i++)
		n += plan->cases[i].reference;
	return n;
}

static void test_single(void **state)
{
	struct jm_plan plan =
		quoted("{'what': {'workload': 'null', 'options': {'step-time': ['0.1s']}},"
		       "'repeat': 1, 'seed': 1}");

	(void)state;
	assert_int_equal(plan.n, 1);
	assert_false(plan.cases[0].reference);
	assert_int_equal(strlen(plan.cases[0].id), 32);
	jm_plan_done(&plan);
}

static void test_product(void **state)
{
	struct jm_plan plan = quoted(
		"{'what': {'workload': 'null', 'options': {'a': ['1', '2', '3'], 'b': ['x']},"
		"'device': ['cpu', 'ref'], 'precision': ['f32', 'bf16']}, 'repeat': 2, 'seed': 1}");

	(void)state;
	assert_int_equal(plan.n, 3 * 2 * 2);
	assert_int_equal(count_references(&plan), 0);
	jm_plan_done(&plan);
}

/* The default is among the points: it is the reference, nothing is added. */
static void test_reference_is_a_point(void **state)
{
	struct jm_plan plan =
		quoted("{'what': {'workload': 'null', 'options': {'a': ['1', '2']}," POWER(
			"'500W', '600W', '700W'") "}," FOUND("700W") ", 'repeat': 3, 'seed': 1}");

	(void)state;
	assert_int_equal(plan.n, 2 * 3);
	assert_int_equal(count_references(&plan), 2);
	for (int i = 0; i < plan.n; i++)
		assert_int_equal(
			plan.cases[i].reference, !strcmp(setting(&plan, i, "gpu.power"), "700W"));
	jm_plan_done(&plan);
}

/* It is not, or the devices differ: one more case per combination of the rest, "as found". */
static void test_reference_is_added(void **state)
{
	const char *const requests[] = {
		"{'what': {'workload': 'null', 'options': {'a': ['1', '2']}," POWER(
			"'500W', '600W'") "}," FOUND("700W") ", 'repeat': 3, 'seed': 1}",
		"{'what': {'workload': 'null', 'options': {'a': ['1', '2']}," POWER(
			"'500W', '700W'") "}," FOUND("650W") ", 'repeat': 3, 'seed': 1}"};

	(void)state;
	for (size_t k = 0; k < 2; k++) {
		struct jm_plan plan = quoted(requests[k]);

		assert_int_equal(plan.n, 2 * 3);
		assert_int_equal(count_references(&plan), 2);
		for (int i = 0; i < plan.n; i++)
			assert_int_equal(plan.cases[i].reference,
				!strcmp(setting(&plan, i, "gpu.power"), JM_AS_FOUND));
		jm_plan_done(&plan);
	}
}

/* With a selector only the devices it names count. */
static void test_selector(void **state)
{
	struct jm_plan plan = quoted(
		"{'what': {'command': ['true'], 'settings': [{'knob': "
		"'gpu.power', 'selector': 'A', 'unit': 'W', 'values': ['650W', '700W']}]}," FOUND(
			"650W") ", 'repeat': 1, 'seed': 1}");

	(void)state;
	assert_int_equal(plan.n, 2);
	assert_string_equal(setting(&plan, 0, "gpu.power@A"), "650W");
	assert_true(plan.cases[0].reference);
	assert_false(plan.cases[1].reference);
	jm_plan_done(&plan);
}

static void test_blocks(void **state)
{
	struct jm_plan plan =
		quoted("{'what': {'workload': 'null', 'options': {'a': ['1', '2', '3', "
		       "'4', '5', '6', '7', '8']}}, 'repeat': 50, 'seed': 7}");
	int order[8], again[8], seen_first[8] = {0}, different = 0, last[8] = {0};

	(void)state;
	for (int b = 0; b < 50; b++) {
		int seen[8] = {0};

		jm_plan_order(&plan, b, order);
		jm_plan_order(&plan, b, again);
		assert_memory_equal(order, again, sizeof(order));
		for (int i = 0; i < 8; i++)
			seen[order[i]]++;
		for (int i = 0; i < 8; i++)
			assert_int_equal(seen[i], 1);
		seen_first[order[0]]++;
		different += memcmp(order, last, sizeof(order)) != 0;
		memcpy(last, order, sizeof(order));
	}
	/* 50 blocks: that a case never comes first has a chance of 0.875^50 = 0.1 % per case */
	for (int i = 0; i < 8; i++)
		assert_true(seen_first[i] > 0);
	assert_true(different > 45);
	jm_plan_done(&plan);
}

/* More repeats leave the first blocks and the key as they were; another seed draws another
 * order. */
static void test_growth(void **state)
{
	const char *form =
		"{'what': {'workload': 'null', 'options': {'a': ['1', '2', '3', '4', '5', "
		"'6']}}, 'repeat': %d, 'seed': %d}";
	char text[512];
	int a[6], b[6], c[6];
	struct jm_plan few, many, other;

	(void)state;
	snprintf(text, sizeof(text), form, 2, 1);
	few = quoted(text);
	snprintf(text, sizeof(text), form, 9, 1);
	many = quoted(text);
	snprintf(text, sizeof(text), form, 2, 2);
	other = quoted(text);
	assert_string_equal(few.key, many.key);
	jm_plan_order(&few, 1, a);
	jm_plan_order(&many, 1, b);
	jm_plan_order(&other, 1, c);
	assert_memory_equal(a, b, sizeof(a));
	assert_memory_not_equal(a, c, sizeof(a));
	assert_int_equal(jm_plan_seed(&few, 1), 1);
	assert_int_equal(jm_plan_seed(&few, 2), jm_plan_seed(&other, 1));
	jm_plan_done(&few);
	jm_plan_done(&many);
	jm_plan_done(&other);
}

/* The hash of {"a":1,"b":"x"} and of null was taken with `xxhsum -H2` 0.8.1, as text without a
 * newline. */
static void test_hash(void **state)
{
	json_t *one = json_loads("{\"b\": \"x\", \"a\": 1}", 0, NULL), *nothing = json_null();
	struct jm_err err = JM_ERR_INIT;
	char id[JM_CASE_ID];

	(void)state;
	assert_int_equal(jm_json_hash(one, id, &err), 0);
	assert_string_equal(id, "724a582427b9c9a67ccf902d0d19f6c9");
	assert_int_equal(jm_json_hash(nothing, id, &err), 0);
	assert_string_equal(id, "dc32537e27486e2c652e7b35ccc22eda");
	json_decref(one);
}

static void test_bad(void **state)
{
	const char *const bad[] = {"{}", "{\"what\": {}, \"repeat\": 0}",
		"{\"what\": 3, \"repeat\": 1}",
		("{\"what\": {\"workload\": \"null\", \"options\": {\"a\": [\"1\", \"1\"]}}, "
		 "\"repeat\": 1, \"seed\": 1}")};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		json_t *request = json_loads(bad[i], 0, NULL);
		struct jm_err err = JM_ERR_INIT;
		struct jm_plan plan;
		int rc = jm_plan_new(request, &plan, &err);

		assert_true(rc < 0);
		assert_sentence(&err, rc);
		json_decref(request);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_single),
		cmocka_unit_test(test_product),
		cmocka_unit_test(test_reference_is_a_point),
		cmocka_unit_test(test_reference_is_added),
		cmocka_unit_test(test_selector),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_hash),
		cmocka_unit_test(test_bad),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
