/* SPDX-License-Identifier: Apache-2.0 */
/* The test of Mann and Whitney, by the exact distribution of the sum of ranks where there are few
 * values. */
#include "stat_ranks.h"
#include "stat_compare.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define EXACT_MOST 60

struct ranked {
	double value;
	bool of_a;
	int rank; /* twice the rank, so that the mean of two is whole */
};

static int compare(const void *pa, const void *pb)
{
	const struct ranked *a = pa, *b = pb;

	return (a->value > b->value) - (a->value < b->value);
}

static int add_known(struct ranked *list, int n, const double *values, int n_values, bool of_a)
{
	for (int i = 0; i < n_values; i++)
		if (isfinite(values[i]))
			list[n++] = (struct ranked){values[i], of_a, 0};
	return n;
}

/* Sets the ranks; returns the sum of t^3 - t over groups of t ties. */
static double rank(struct ranked *list, int n)
{
	double ties = 0;

	qsort(list, (size_t)n, sizeof(*list), compare);
	for (int i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && !compare(&list[i], &list[end]);)
			end++;
		for (int k = i; k < end; k++)
			list[k].rank = i + 1 + end;
		ties += pow(end - i, 3) - (end - i);
	}
	return ties;
}

/* Among all choices of n_a values, the share whose sum of ranks is at least `away` from the
 * mean. */
static double exact(const struct ranked *list, int n, int n_a, int away)
{
	int most = n * (n + 1), mean = n_a * (n + 1); /* of doubled ranks */
	size_t width = (size_t)most + 1;
	double *count = calloc((size_t)(n_a + 1) * width, sizeof(*count)), all = 0, far = 0;

	if (!count)
		return NAN;
	count[0] = 1;
	for (int i = 0; i < n; i++)
		for (int k = n_a; k > 0; k--)
			for (int sum = most; sum >= list[i].rank; sum--)
				count[(size_t)k * width + (size_t)sum] +=
					count[(size_t)(k - 1) * width +
						(size_t)(sum - list[i].rank)];
	for (int sum = 0; sum <= most; sum++) {
		double c = count[(size_t)n_a * width + (size_t)sum];

		all += c;
		far += abs(sum - mean) >= away ? c : 0;
	}
	free(count);
	return far / all;
}

/* away: of doubled ranks; half a rank is taken off for continuity. */
static double normal(double ties, double n, double n_a, double away)
{
	double n_b = n - n_a;
	double variance = n_a * n_b / 12 * (n + 1 - ties / (n * (n - 1)));

	return variance > 0 ? erfc(fmax(0, away / 2 - 0.5) / sqrt(2 * variance)) : 1;
}

double jm_stat_mann_whitney(const double *a, int n_a, const double *b, int n_b)
{
	struct ranked *list = calloc((size_t)(n_a + n_b) + 1, sizeof(*list));
	int known_a, n, sum = 0, away;
	double ties, p;

	if (!list)
		return NAN;
	known_a = add_known(list, 0, a, n_a, true);
	n = add_known(list, known_a, b, n_b, false);
	ties = rank(list, n);
	for (int i = 0; i < n; i++)
		sum += list[i].of_a ? list[i].rank : 0;
	away = abs(sum - known_a * (n + 1));
	if (!known_a || known_a == n)
		p = NAN;
	else
		p = n <= EXACT_MOST ? exact(list, n, known_a, away)
				    : normal(ties, n, known_a, away);
	free(list);
	return p;
}
