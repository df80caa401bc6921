/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention to keys and values in pages over several tiles of keys, for every instruction set that
 * this machine has, against plain loops in f64. Slots that no row may see are NaN.
 */
#include <stdlib.h>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/simd.h"
#include "kit/test.h"

enum { SLOTS = 16, EACH = 20, REQUESTS = 2, HEADS = 4, GROUPS = 2, MOST = 80, ROWS = 70 };
enum { PAGES = EACH * REQUESTS, WIDTH = GROUPS * MOST };

static float keys[PAGES * SLOTS * WIDTH], values[PAGES * SLOTS * WIDTH], x[ROWS * HEADS * MOST];
static uint16_t narrow_keys[PAGES * SLOTS * WIDTH], narrow_values[PAGES * SLOTS * WIDTH],
	narrow_x[ROWS * HEADS * MOST];
static int32_t page[PAGES], position[ROWS], request[ROWS];

static float number(void)
{
	static unsigned seed = 7;
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += (seed = seed * 1664525u + 1013904223u) / 4294967296.0;
	return jm_from_bf16(jm_to_bf16((float)sum)); /* the same in both types */
}

/* Rows of one request from position 90 on, which cross the end of a tile, a row of none, and of
 * another request one row behind two tiles and the first five. */
static void lay_out(void)
{
	for (int i = 0; i < ROWS; i++) {
		request[i] = i > 60;
		position[i] = i < 60 ? 90 + i : i == 60 ? -1 : i == 61 ? 299 : i - 62;
	}
	for (int i = 0; i < PAGES; i++)
		page[i] = PAGES - 1 - i;
}

static int64_t at(int64_t r, int64_t t, int64_t head)
{
	return (page[r * EACH + t / SLOTS] * SLOTS + t % SLOTS) * GROUPS * head;
}

static void fill(int64_t head)
{
	const int seen[REQUESTS] = {150, 300};

	for (int i = 0; i < PAGES * SLOTS * WIDTH; i++)
		keys[i] = values[i] = NAN;
	for (int r = 0; r < REQUESTS; r++)
		for (int t = 0; t < seen[r]; t++)
			for (int64_t i = 0; i < GROUPS * head; i++) {
				keys[at(r, t, head) + i] = number();
				values[at(r, t, head) + i] = number();
			}
	for (int i = 0; i < ROWS * HEADS * MOST; i++)
		x[i] = number();
	for (int i = 0; i < PAGES * SLOTS * WIDTH; i++) {
		narrow_keys[i] = jm_to_bf16(keys[i]);
		narrow_values[i] = jm_to_bf16(values[i]);
	}
	for (int i = 0; i < ROWS * HEADS * MOST; i++)
		narrow_x[i] = jm_to_bf16(x[i]);
}

/* Element i of the result of one head of one row. */
static double truth(int64_t row, int64_t h, int64_t head, int64_t i)
{
	const float *q = x + (row * HEADS + h) * head;
	double sum = 0, y = 0;

	for (int64_t t = 0; t <= position[row]; t++) {
		int64_t k = at(request[row], t, head) + h / (HEADS / GROUPS) * head;
		double z = 0;

		for (int64_t d = 0; d < head; d++)
			z += (double)q[d] * (double)keys[k + d];
		z = exp(z / sqrt((double)head));
		sum += z;
		y += z * (double)values[k + i];
	}
	return position[row] < 0 ? 0 : y / sum;
}

static void attend(
	const struct cpu_pages *set, int64_t head, bool bf16, int64_t first, int64_t rows, void *y)
{
	int64_t from = first * HEADS * head;
	struct cpu_paged p = {
		.bf16 = bf16,
		.tokens = rows,
		.pages_each = EACH,
		.slots = SLOTS,
		.heads = HEADS,
		.groups = GROUPS,
		.head = head,
		.scale = 1 / sqrt((double)head),
		.position = position + first,
		.request = request + first,
		.page = page,
		.x = bf16 ? (void *)(narrow_x + from) : x + from,
		.keys = bf16 ? (void *)narrow_keys : keys,
		.values = bf16 ? (void *)narrow_values : values,
		.y = bf16 ? (void *)((uint16_t *)y + from) : (float *)y + from,
	};
	size_t bytes = set->scratch(&p, 2);

	p.scratch = aligned_alloc(64, bytes / 64 * 64 + 64);
	memset(p.scratch, 0xff, bytes);
	set->attention(&p, 2);
	free(p.scratch);
}

static void compare(const struct cpu_pages *set, int64_t head, bool bf16)
{
	static float together[ROWS * HEADS * MOST], alone[ROWS * HEADS * MOST];
	size_t n = (size_t)(ROWS * HEADS * head);

	attend(set, head, bf16, 0, ROWS, together);
	for (int64_t row = 0; row < ROWS; row++)
		attend(set, head, bf16, row, 1, alone);
	assert_memory_equal(together, alone, n * (bf16 ? 2 : 4));
	for (int64_t i = 0; i < (int64_t)n; i += 3) {
		double want = truth(i / head / HEADS, i / head % HEADS, head, i % head);
		float got;

		jm_load(together, bf16, (size_t)i, 1, &got);
		if (!(fabs((double)got - want) <= (bf16 ? 4e-3 * fabs(want) + 1e-5 : 3e-6)))
			print_error("element %d: %g, not %g\n", (int)i, (double)got, want);
		assert_true(fabs((double)got - want) <= (bf16 ? 4e-3 * fabs(want) + 1e-5 : 3e-6));
	}
}

static void rows_are_right_and_the_same_alone(void **unused)
{
	static const int64_t heads[] = {8, 64, 80};
	const struct cpu_kernels *set;

	(void)unused;
	lay_out();
	for (int i = 0; i < 3; i++) {
		fill(heads[i]);
		for (int s = 0; (set = cpu_kernels_get(s)); s++) {
			print_message("%s, heads of %d\n", set->target, (int)heads[i]);
			compare(set->pages, heads[i], false);
			compare(set->pages, heads[i], true);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_right_and_the_same_alone)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
