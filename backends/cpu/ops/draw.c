/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stays of the logits is found without sorting: their bits, as numbers in the same order, are
 * narrowed down byte by byte to the last one that stays (radix selection).
 */
#include "draw.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The last logit that stays: those with a larger key, and the first `equals` of those with the
 * same. */
struct cut {
	uint32_t key;
	int64_t equals;
};

struct logits {
	const float *x;
	int64_t n;
	double largest, t;
};

/* In the order of the floats. */
static uint32_t key_of(float x)
{
	uint32_t bits;

	x += 0.0F; /* -0 is 0 */
	memcpy(&bits, &x, sizeof(bits));
	return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}

static double weight(const struct logits *l, int64_t i)
{
	return exp(((double)l->x[i] - l->largest) / l->t);
}

/* Does logit i stay? equals: how many with the key of the cut came before it; counted on. */
static bool stays(const struct logits *l, const struct cut *cut, int64_t i, int64_t *equals)
{
	uint32_t key = key_of(l->x[i]);

	return key > cut->key || (key == cut->key && (*equals)++ < cut->equals);
}

static double sum_of(const struct logits *l, const struct cut *cut)
{
	int64_t equals = 0;
	double sum = 0;

	for (int64_t i = 0; i < l->n; i++)
		sum += stays(l, cut, i, &equals) ? weight(l, i) : 0;
	return sum;
}

/* Amounts of those that stay by one byte of their keys, whose higher bytes are those of
 * `prefix`. */
static void tally(const struct logits *l, const struct cut *within, bool by_weight, uint32_t prefix,
	int shift, double *amount)
{
	int64_t equals = 0;

	memset(amount, 0, 256 * sizeof(*amount));
	for (int64_t i = 0; i < l->n; i++) {
		uint32_t key = key_of(l->x[i]);

		if (!stays(l, within, i, &equals) || (uint64_t)key >> (shift + 8) != prefix)
			continue;
		amount[key >> shift & 0xff] += by_weight ? weight(l, i) : 1;
	}
}

/* The first ones in order, within a cut, whose amount (their number, or their weights) reaches
 * `wanted`. */
static struct cut narrow(
	const struct logits *l, const struct cut *within, bool by_weight, double wanted)
{
	double amount[256], above = 0, each = 1;
	uint32_t prefix = 0;

	for (int shift = 24; shift >= 0; shift -= 8) {
		uint32_t byte = 255, last = 255;

		tally(l, within, by_weight, prefix, shift, amount);
		for (;; byte--) {
			last = amount[byte] > 0 ? byte : last;
			if ((amount[byte] > 0 && above + amount[byte] >= wanted) || !byte)
				break;
			above += amount[byte];
		}
		if (!(amount[byte] > 0)) { /* by rounding nothing reaches it */
			byte = last;
			above -= amount[last];
		}
		prefix = prefix << 8 | byte;
	}
	for (int64_t i = 0; i < l->n && by_weight; i++)
		each = key_of(l->x[i]) == prefix ? weight(l, i) : each;
	above = ceil((wanted - above) / each);
	return (struct cut){prefix, above > 1 ? (int64_t)above : 1};
}

int32_t cpu_draw(const float *x, int64_t n, const float *rule, uint64_t bits)
{
	struct logits l = {x, n, x[0], (double)rule[0]};
	struct cut cut = {0, n};
	double u = (double)(bits >> 11) * 0x1p-53, sum = 0, at;
	int64_t k = (int64_t)rule[2], equals = 0, token = 0;

	for (int64_t i = 1; i < n; i++)
		l.largest = (double)x[i] > l.largest ? (double)x[i] : l.largest;
	if (k > 0 && k < n)
		cut = narrow(&l, &cut, false, (double)k);
	if (rule[1] < 1)
		cut = narrow(&l, &cut, true, (double)rule[1] * sum_of(&l, &cut));
	at = u * sum_of(&l, &cut);
	for (int64_t i = 0; i < n && sum <= at; i++) {
		if (!stays(&l, &cut, i, &equals))
			continue;
		sum += weight(&l, i);
		token = i;
	}
	return (int32_t)token;
}
