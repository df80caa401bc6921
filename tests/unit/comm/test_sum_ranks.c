/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks in host memory. */
#include "kit/test.h"

#include "comm/sum_ranks.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_of_bf16_are_rounded_once),
		cmocka_unit_test(sums_with_nan_are_nan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
