/* SPDX-License-Identifier: Apache-2.0 */
/* The places of an arena compared with a search that checks every place and every byte. */
#include "engine/plan/arena_places.h"
#include "kit/test.h"

#define MANY  3000
#define UNITS 200

static unsigned int state_of_random = 1;

static int draw(int below)
{
	state_of_random = state_of_random * 1664525U + 1013904223U;
	return (int)((state_of_random >> 8) % (unsigned int)below);
}

static bool meet(const struct jm_place *a, const struct jm_place *b)
{
	return a->first <= b->last && b->first <= a->last && a->from < b->to && b->from < a->to;
}

/* The lowest place is the start or the end of one that is held; each of them is tried. */
static size_t lowest(const struct jm_place *held, int n, size_t start, struct jm_place p)
{
	size_t bytes = p.to, best = (size_t)-1;

	for (int i = -1; i < n; i++) {
		bool is_free = true;

		p.from = i < 0 ? start : held[i].to;
		p.to = p.from + bytes;
		for (int k = 0; k < n && is_free; k++)
			is_free = !meet(&held[k], &p);
		if (is_free && p.from < best)
			best = p.from;
	}
	return best;
}

/* spread: how long a tensor lives at most; sizes: how many different ones, 0 = any. */
static void compare(int n, int spread, int sizes)
{
	static struct jm_place held[MANY];
	struct jm_places places = {0};

	for (int i = 0; i < n; i++) {
		int first = draw(UNITS), last = first + draw(spread);
		size_t bytes = sizes ? 64 * (size_t)(1 + i * sizes / n) : 1 + (size_t)draw(5000);
		size_t at = jm_places_find(&places, 64, bytes, first, last);

		assert_int_equal(at, lowest(held, i, 64, (struct jm_place){0, bytes, first, last}));
		held[i] = (struct jm_place){at, at + bytes, first, last};
		assert_true(jm_places_add(&places, &held[i]));
	}
	jm_places_done(&places);
}

static void test_finds_lowest_free_place(void **state)
{
	(void)state;
	compare(1500, 10, 0);
	compare(1500, UNITS, 0);
	compare(1500, 40, 3);
	compare(MANY, 2, 1);
}

/* As activations that are kept until their gradients: each lives within the one before it. */
static void test_nested_lives_are_stacked(void **state)
{
	struct jm_places places = {0};

	(void)state;
	for (int i = 0; i < MANY; i++) {
		struct jm_place p = {.first = i, .last = 2 * MANY - i};

		p.from = jm_places_find(&places, 0, 64, p.first, p.last);
		p.to = p.from + 64;
		assert_int_equal(p.from, 64 * (size_t)i);
		assert_true(jm_places_add(&places, &p));
	}
	/* after the first half of them only the outer half is still held */
	assert_int_equal(
		jm_places_find(&places, 0, 64, 2 * MANY - MANY / 2 + 1, 2 * MANY), 64 * MANY / 2);
	jm_places_done(&places);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finds_lowest_free_place),
		cmocka_unit_test(test_nested_lives_are_stacked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
