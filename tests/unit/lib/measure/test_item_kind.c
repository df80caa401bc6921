/* SPDX-License-Identifier: Apache-2.0 */
/* Which numbers in a command's output are amounts and which count up, and their sums. The expected
 * sums were added by hand: of amounts all numbers, of a count the last number of each of its
 * runs. */
#include "kit/test.h"
#include "measure/command/item_kind.h"

#include <math.h>
#include <stdio.h>

#define MOST 40

struct row {
	const char *name;
	enum jm_item_kind kind;
	double items, after_first;
	double number[MOST];
	int n;
};

#define NUMBERS(...) {__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double)

static const struct row rows[] = {
	/* amounts */
	{"one", JM_ITEMS_AMOUNT, 7, 0, NUMBERS(7)},
	{"zero", JM_ITEMS_AMOUNT, 0, 0, NUMBERS(0)},
	{"equal", JM_ITEMS_AMOUNT, 192, 128, NUMBERS(64, 64, 64)},
	{"ones", JM_ITEMS_AMOUNT, 4, 3, NUMBERS(1, 1, 1, 1)},
	{"falling", JM_ITEMS_AMOUNT, 60, 20, NUMBERS(40, 20)},
	{"growing", JM_ITEMS_AMOUNT, 306, 206, NUMBERS(100, 101, 105)},
	{"growing by one", JM_ITEMS_AMOUNT, 406, 306, NUMBERS(100, 101, 102, 103)},
	{"growing twice", JM_ITEMS_AMOUNT, 50, 30, NUMBERS(20, 30)},
	{"growing for long", JM_ITEMS_AMOUNT, 1039, 939,
		NUMBERS(100, 101, 103, 104, 105, 107, 109, 110, 200)},
	{"doubling", JM_ITEMS_AMOUNT, 1023, 1022, NUMBERS(1, 2, 4, 8, 16, 32, 64, 128, 256, 512)},
	{"larger batches", JM_ITEMS_AMOUNT, 144, 136, NUMBERS(8, 8, 8, 16, 16, 16, 24, 24, 24)},
	{"squares", JM_ITEMS_AMOUNT, 385, 384, NUMBERS(1, 4, 9, 16, 25, 36, 49, 64, 81, 100)},
	{"large step", JM_ITEMS_AMOUNT, 13, 12, NUMBERS(1, 2, 10)},
	{"too short for a smaller step", JM_ITEMS_AMOUNT, 250, 150, NUMBERS(100, 150)},
	{"back and forth", JM_ITEMS_AMOUNT, 8, 7, NUMBERS(1, 2, 1, 2, 2)},
	{"count and then another", JM_ITEMS_AMOUNT, 13, 12, NUMBERS(1, 2, 3, 2, 5)},
	{"after the end", JM_ITEMS_AMOUNT, 700, 600, NUMBERS(100, 200, 200, 200)},
	/* counts */
	{"epochs", JM_ITEMS_TOTAL, 3, 2, NUMBERS(1, 2, 3)},
	{"two epochs", JM_ITEMS_TOTAL, 2, 1, NUMBERS(1, 2)},
	{"epochs from 0", JM_ITEMS_TOTAL, 2, 2, NUMBERS(0, 1, 2)},
	{"epochs, each line", JM_ITEMS_TOTAL, 3, 2, NUMBERS(1, 1, 1, 2, 2, 2, 3, 3)},
	{"steps", JM_ITEMS_TOTAL, 300, 200, NUMBERS(100, 200, 300)},
	{"steps from 0", JM_ITEMS_TOTAL, 200, 200, NUMBERS(0, 100, 200)},
	{"a smaller last step", JM_ITEMS_TOTAL, 100, 68, NUMBERS(32, 64, 96, 100)},
	{"last one again", JM_ITEMS_TOTAL, 100, 68, NUMBERS(32, 64, 96, 100, 100, 100)},
	{"fractions", JM_ITEMS_TOTAL, 0.5, 0.4, NUMBERS(0.1, 0.2, 0.3, 0.4, 0.5)},
	{"again", JM_ITEMS_TOTAL, 600, 500, NUMBERS(100, 200, 300, 100, 200, 300)},
	{"again, cut", JM_ITEMS_TOTAL, 400, 300, NUMBERS(100, 200, 300, 100)},
	{"again from 0", JM_ITEMS_TOTAL, 5, 5, NUMBERS(0, 1, 2, 0, 1, 2, 0, 1)},
	{"continued", JM_ITEMS_TOTAL, 5, 4, NUMBERS(5001, 5002, 5003, 5004, 5005)},
	{"continued steps", JM_ITEMS_TOTAL, 500, 400, NUMBERS(5100, 5200, 5300, 5400, 5500)},
	{"progress bar", JM_ITEMS_TOTAL, 1000, 877,
		NUMBERS(123, 251, 390, 520, 633, 771, 880, 1000, 1000)},
	{"slow first number", JM_ITEMS_TOTAL, 801, 800,
		NUMBERS(1, 120, 225, 331, 450, 560, 690, 801)},
};

static struct jm_item_sums sums_of(const struct row *row, enum jm_item_kind given)
{
	struct jm_item_sums sums;

	jm_item_sums_init(&sums, given);
	for (int i = 0; i < row->n; i++) {
		struct jm_mark mark = {.t_ns = i + 1, .items = row->number[i]};

		/* the phases of every third number are the command, 0, and 2 */
		jm_item_sums_add(&sums, &mark, (const int[]){0, i % 3 ? -1 : 2});
	}
	assert_false(sums.lost);
	return sums;
}

static void the_rule(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct jm_item_sums sums = sums_of(&rows[i], JM_ITEMS_BY_RULE);
		struct jm_tally tally = jm_item_sums_tally(&sums);

		if (jm_item_sums_kind(&sums) != rows[i].kind)
			fail_msg("'%s' is taken for the other kind", rows[i].name);
		if (fabs(tally.items - rows[i].items) > 1e-9 ||
			fabs(tally.items_after_first - rows[i].after_first) > 1e-9)
			fail_msg("'%s' has %g items, %g after the first", rows[i].name, tally.items,
				tally.items_after_first);
		assert_near(jm_item_sums_phase(&sums, 0), rows[i].items, 1e-9);
		assert_true(isnan(jm_item_sums_phase(&sums, 1)));
		assert_true(isnan(jm_item_sums_phase(&sums, 3)));
		jm_item_sums_done(&sums);
	}
}

/* Both kinds, of the same numbers, whatever the rule says. */
static void a_given_kind(void **state)
{
	static const struct {
		struct row row;
		double amount, total, phase_amount, phase_total; /* phase: of numbers 1, 4, 7 */
	} given[] = {
		{{.number = {1, 2, 3, 4}, .n = 4}, 10, 4, 5, 2},
		{{.number = {100, 101, 105}, .n = 3}, 306, 105, 100, 100},
		{{.number = {5, 9, 9, 2, 2, 8}, .n = 6}, 35, 17, 7, 7},
		{{.number = {5001, 5002, 5003, 5004, 5005}, .n = 5}, 25015, 5005, 10005, 5002},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
		struct jm_item_sums amount = sums_of(&given[i].row, JM_ITEMS_AMOUNT);
		struct jm_item_sums total = sums_of(&given[i].row, JM_ITEMS_TOTAL);

		assert_near(jm_item_sums_tally(&amount).items, given[i].amount, 0);
		assert_near(jm_item_sums_tally(&total).items, given[i].total, 0);
		assert_near(jm_item_sums_phase(&amount, 2), given[i].phase_amount, 0);
		assert_near(jm_item_sums_phase(&total, 2), given[i].phase_total, 0);
		jm_item_sums_done(&amount);
		jm_item_sums_done(&total);
	}
}

/* What an earlier run counted is taken from the phase of the first number alone. */
static void a_continued_count_in_phases(void **state)
{
	static const struct row row = {.number = {40, 50, 60, 70, 80, 90}, .n = 6};
	struct jm_item_sums sums = sums_of(&row, JM_ITEMS_BY_RULE);

	(void)state;
	assert_near(jm_item_sums_phase(&sums, 0), 60, 0);
	assert_near(jm_item_sums_phase(&sums, 2), 20, 0); /* numbers 1 and 4 */
	jm_item_sums_done(&sums);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rule),
		cmocka_unit_test(a_given_kind),
		cmocka_unit_test(a_continued_count_in_phases),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
