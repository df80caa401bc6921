/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons checked by figures that were computed from textbook formulas by hand, and by their
 * symmetries. */
#include <math.h>

#include "base/stat/stat_compare.h"
#include "kit/test.h"

static void test_ratio_is_of_geometric_means(void **state)
{
	const double a[] = {1, 4}, b[] = {8, 2};
	struct jm_comparison c;

	(void)state;
	jm_stat_compare_welch(a, 2, b, 2, &c);
	assert_near(c.ratio, 2, 1e-12);
	/* variances of the logarithms are both ln(4)^2 / 2: dof 2, t 4.302653 */
	assert_int_equal(c.dof, 2);
	assert_near(log(c.high / c.ratio), 4.302652730 * log(4) / M_SQRT2, 1e-6);
	assert_near(c.low * c.high, c.ratio * c.ratio, 1e-9);
}

static void test_swapped_sides_give_the_inverse(void **state)
{
	const double a[] = {1, 1.1, 0.95, 1.02}, b[] = {1.3, 1.2, NAN, 1.25, -1};
	struct jm_comparison ab, ba;

	(void)state;
	jm_stat_compare_welch(a, 4, b, 5, &ab);
	jm_stat_compare_welch(b, 5, a, 4, &ba);
	assert_int_equal(ab.n_b, 3);
	assert_near(ab.ratio * ba.ratio, 1, 1e-12);
	assert_near(ab.low * ba.high, 1, 1e-12);
	assert_near(ab.p, ba.p, 1e-12);
}

/* Blocks that drift by a factor of two: pairs see the 10 %, independent values do not. */
static void test_pairs_take_the_block_out(void **state)
{
	const double a[] = {1, 2, 4, 8}, b[] = {1.1, 2.21, 4.39, 8.8};
	struct jm_comparison c;

	(void)state;
	jm_stat_compare_paired(a, b, 4, &c);
	assert_true(c.low > 1.09 && c.high < 1.11 && c.p < 0.001);
	jm_stat_compare_welch(a, 4, b, 4, &c);
	assert_true(c.low < 1 && c.high > 1 && c.p > 0.5);
}

static void test_too_few_values_have_no_interval(void **state)
{
	const double one[] = {3}, two[] = {3, 3};
	struct jm_comparison c;

	(void)state;
	jm_stat_compare_welch(one, 1, two, 2, &c);
	assert_true(c.ratio == 1 && isnan(c.low) && isnan(c.high) && isnan(c.p));
	jm_stat_compare_welch(one, 0, two, 2, &c);
	assert_true(isnan(c.ratio) && isnan(c.p));
	jm_stat_compare_paired(one, two, 1, &c);
	assert_true(c.ratio == 1 && isnan(c.low));
	/* no spread at all: equal, or different for sure */
	jm_stat_compare_welch(two, 2, two, 2, &c);
	assert_true(c.low == 1 && c.high == 1 && c.p == 1);
	jm_stat_compare_welch(two, 2, (const double[]){4, 4}, 2, &c);
	assert_true(c.low > 1.33 && c.p == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ratio_is_of_geometric_means),
		cmocka_unit_test(test_swapped_sides_give_the_inverse),
		cmocka_unit_test(test_pairs_take_the_block_out),
		cmocka_unit_test(test_too_few_values_have_no_interval),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
