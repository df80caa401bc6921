/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of repeats against tables and hand-computed values. */
#include "kit/test.h"

#include "base/stat/stat.h"

/* NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2: upper critical values of Student's
 * t. */
static void quantiles_are_those_of_the_tables(void **state)
{
	static const struct {
		int dof;
		double t90, t975, t995;
	} rows[] = {
		{1, 3.078, 12.706, 63.657},
		{2, 1.886, 4.303, 9.925},
		{3, 1.638, 3.182, 5.841},
		{4, 1.533, 2.776, 4.604},
		{5, 1.476, 2.571, 4.032},
		{9, 1.383, 2.262, 3.250},
		{10, 1.372, 2.228, 3.169},
		{29, 1.311, 2.045, 2.756},
		{30, 1.310, 2.042, 2.750},
		{60, 1.296, 2.000, 2.660},
		{100, 1.290, 1.984, 2.626},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_near(jm_stat_t_quantile(0.90, rows[i].dof), rows[i].t90, 5.1e-4);
		assert_near(jm_stat_t_quantile(0.975, rows[i].dof), rows[i].t975, 5.1e-4);
		assert_near(jm_stat_t_quantile(0.995, rows[i].dof), rows[i].t995, 5.1e-4);
	}
	assert_near(jm_stat_t_quantile(0.975, 1000000), 1.959964, 1e-5);
}

/* Closed forms: one degree of freedom is Cauchy's, two have t = (2p - 1) sqrt(2 / (4 p (1 -
 * p))). */
static void quantiles_agree_with_closed_forms(void **state)
{
	(void)state;
	for (double p = 0.02; p < 1; p += 0.03) {
		double two = (2 * p - 1) * sqrt(2 / (4 * p * (1 - p)));

		assert_near(jm_stat_t_quantile(p, 1), tan(M_PI * (p - 0.5)), 1e-9);
		assert_near(jm_stat_t_quantile(p, 2), two, 1e-9);
		for (int dof = 1; dof < 50; dof++)
			assert_near(jm_stat_t_cdf(jm_stat_t_quantile(p, dof), dof), p, 1e-12);
	}
}

/* The distribution function against its density, integrated by Simpson's rule. */
static void distribution_is_the_integral_of_its_density(void **state)
{
	(void)state;
	for (int dof = 1; dof < 40; dof += 3) {
		double log_c = lgamma((dof + 1) / 2.0) - lgamma(dof / 2.0) - 0.5 * log(dof * M_PI);
		double sum = 0, h = 0.002, t = 2.4;
		int n = (int)lround(t / h);

		for (int i = 0; i <= n; i++) {
			double x = i * h, weight = i == 0 || i == n ? 1 : i % 2 ? 4 : 2;

			sum += weight * exp(log_c - (dof + 1) / 2.0 * log1p(x * x / dof));
		}
		assert_near(jm_stat_t_cdf(t, dof), 0.5 + sum * h / 3, 1e-10);
	}
}

/* 2 4 4 4 5 5 7 9: mean 5, sum of squares 32, sd sqrt(32/7), t(7) = 2.364624. */
static void a_handful_by_hand(void **state)
{
	const double values[] = {9, 2, 4, NAN, 4, 5, 4, 5, 7};
	struct jm_stat s;

	(void)state;
	jm_stat_of(values, 9, &s);
	assert_int_equal(s.n, 8);
	assert_near(s.mean, 5, 1e-12);
	assert_near(s.median, 4.5, 1e-12);
	assert_near(s.sd, sqrt(32.0 / 7), 1e-12);
	assert_near(s.half_width, 2.364624 * sqrt(32.0 / 7 / 8), 1e-5);
	assert_near(s.min, 2, 0);
	assert_near(s.max, 9, 0);
}

static void unknown_stays_unknown(void **state)
{
	const double nothing[] = {NAN, NAN}, one[] = {NAN, 3};
	struct jm_stat s;

	(void)state;
	jm_stat_of(nothing, 2, &s);
	assert_int_equal(s.n, 0);
	assert_true(isnan(s.mean) && isnan(s.median) && isnan(s.sd) && isnan(s.min));
	jm_stat_of(one, 2, &s);
	assert_int_equal(s.n, 1);
	assert_near(s.mean, 3, 0);
	assert_near(s.median, 3, 0);
	assert_true(isnan(s.sd) && isnan(s.half_width));
	jm_stat_of(NULL, 0, &s);
	assert_int_equal(s.n, 0);
}

static void outliers_are_flagged(void **state)
{
	/* median 10.2, deviations 0.2 0.1 0 0.1 89.8: MAD 0.1, limit 10 x 1.4826 x 0.1 = 1.48 */
	const double values[] = {10.0, 10.1, 10.2, 10.3, 100}, few[] = {1, 1.1, 90};
	bool flags[5];

	(void)state;
	assert_int_equal(jm_stat_outliers(values, 5, flags), 1);
	assert_true(flags[4] && !flags[0] && !flags[1] && !flags[2] && !flags[3]);
	assert_int_equal(jm_stat_outliers(few, 3, flags), 0);
	assert_int_equal(jm_stat_outliers((const double[]){5, 5, 5, 5, 6}, 5, flags), 0);
	assert_int_equal(jm_stat_outliers((const double[]){10, NAN, 10.1, 10.2, 99}, 5, flags), 1);
	assert_true(flags[4] && !flags[1]);
}

static void many_values_need_no_stack(void **state)
{
	double *values = calloc(1001, sizeof(*values));
	struct jm_stat s;

	(void)state;
	for (int i = 0; i < 1001; i++)
		values[i] = (i * 17) % 1001;
	jm_stat_of(values, 1001, &s);
	assert_near(s.median, 500, 0);
	assert_near(s.mean, 500, 1e-9);
	free(values);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantiles_are_those_of_the_tables),
		cmocka_unit_test(quantiles_agree_with_closed_forms),
		cmocka_unit_test(distribution_is_the_integral_of_its_density),
		cmocka_unit_test(a_handful_by_hand),
		cmocka_unit_test(unknown_stays_unknown),
		cmocka_unit_test(outliers_are_flagged),
		cmocka_unit_test(many_values_need_no_stack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
