/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of work: each element is in exactly one, whatever their number. */
#include "kit/test.h"
#include "base/process/parallel_for.h"

#include <stdlib.h>

struct seen {
	unsigned char *times;
	int64_t unit;
	int aligned[JM_SHARES_MOST];
};

static void look(void *arg, int share, int64_t first, int64_t n)
{
	struct seen *s = arg;

	s->aligned[share] = !n || first % s->unit == 0;
	for (int64_t i = first; i < first + n; i++)
		s->times[i]++;
}

static void each_element_is_in_one_share(void **unused)
{
	static const struct {
		int64_t count, weight, unit;
		int most;
	} rows[] = {{0, 1, 1, 64}, {1, 1, 2, 64}, {7, 1 << 20, 1, 64}, {7, 1 << 20, 2, 3},
		{1000003, 1, 2, 8}, {65, 1 << 18, 1, 64}};

	(void)unused;
	for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
		struct seen s = {
			.times = calloc((size_t)rows[r].count + 1, 1), .unit = rows[r].unit};
		int n = jm_shares_run(&(struct jm_shares){
			rows[r].count, rows[r].weight, rows[r].unit, rows[r].most, look, &s});

		assert_in_range(n, 1, rows[r].most);
		for (int i = 0; i < n; i++)
			assert_true(s.aligned[i]);
		for (int64_t i = 0; i < rows[r].count; i++)
			assert_int_equal(s.times[i], 1);
		free(s.times);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_element_is_in_one_share)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
