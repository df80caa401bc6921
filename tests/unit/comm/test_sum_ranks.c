/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks in host memory. */
#include "kit/test.h"

#include "base/f16.h"
#include "comm/sum_ranks.h"
#include "engine/graph/tensor.h"

#include <math.h>

static uint16_t sum_of(uint16_t a, uint16_t b, uint16_t c)
{
	const char *from[] = {(const char *)&a, (const char *)&b, (const char *)&c};
	uint16_t sum = 0;

	jm__sum_ranks(JM_COMM_BF16, (char *)&sum, from, 3, sizeof(sum));
	return sum;
}

/* 1 + 1/256 + 1/256: each addition alone would round to 1 again. */
static void sums_of_bf16_are_rounded_once(void **state)
{
	(void)state;
	assert_int_equal(sum_of(0x3f80, 0x3b80, 0x3b80), 0x3f81);
	assert_int_equal(sum_of(0x3f80, 0x3b80, 0), 0x3f80);
}

static void sums_with_nan_are_nan(void **state)
{
	(void)state;
	assert_true((sum_of(0x3f80, 0x7fc0, 0x3b80) & 0x7fff) > 0x7f80);
}

static uint16_t f16_of(double x)
{
	uint16_t bits;

	jm_element_set(JM_F16, &bits, 0, x);
	return bits;
}

/* Each value, and between two neighbours what is just below, in and just above the middle: as the
 * engine rounds it. */
static void f16_is_that_of_the_engine(void **state)
{
	(void)state;
	for (int i = 0; i < 0x10000; i++) {
		uint16_t x = (uint16_t)i;
		double value = jm_element_get(JM_F16, &x, 0);
		float middle = (float)((value + jm_f16_get((uint16_t)(x + 1))) / 2);

		if (isnan(value)) {
			assert_true(isnan(jm_f16_get(x)));
			assert_true((jm_f16_set(jm_f16_get(x)) & 0x7fff) > 0x7c00);
			continue;
		}
		assert_true((double)jm_f16_get(x) == value);
		assert_int_equal(jm_f16_set((float)value), x);
		if (!isfinite(middle))
			continue;
		for (int k = -1; k < 2; k++) {
			float near = k ? nextafterf(middle, k < 0 ? -INFINITY : INFINITY) : middle;

			assert_int_equal(jm_f16_set(near), f16_of((double)near));
		}
	}
	assert_int_equal(jm_f16_set(65519.996F), 0x7bff);
	assert_int_equal(jm_f16_set(-65520), 0xfc00);
}

/* 1 + 2^-11 + 2^-11: each addition alone would round to 1 again. */
static void sums_of_f16_are_rounded_once(void **state)
{
	const uint16_t one = 0x3c00, small = 0x1000, large = 0x7bff;
	const char *first[] = {(const char *)&one, (const char *)&small, (const char *)&small};
	const char *second[] = {(const char *)&large, (const char *)&large};
	uint16_t sum;

	(void)state;
	jm__sum_ranks(JM_COMM_F16, (char *)&sum, first, 3, sizeof(sum));
	assert_int_equal(sum, 0x3c01);
	jm__sum_ranks(JM_COMM_F16, (char *)&sum, second, 2, sizeof(sum));
	assert_int_equal(sum, 0x7c00);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_of_bf16_are_rounded_once),
		cmocka_unit_test(sums_with_nan_are_nan),
		cmocka_unit_test(f16_is_that_of_the_engine),
		cmocka_unit_test(sums_of_f16_are_rounded_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
