/* SPDX-License-Identifier: Apache-2.0 */
#include "sum_ranks.h"
#include "base/bf16.h"
#include "base/f16.h"

#include <string.h>

#define WORDS 4 /* f32 elements of a vector */

typedef float floats __attribute__((vector_size(4 * WORDS)));

static floats load(const char *at)
{
	floats x;

	memcpy(&x, at, sizeof(x));
	return x;
}

static void sum_f32(char *to, const char *const *from, int world, size_t n)
{
	size_t i = 0;

	for (; i + sizeof(floats) <= n; i += sizeof(floats)) {
		floats sum = load(from[0] + i);

		for (int r = 1; r < world; r++)
			sum += load(from[r] + i);
		memcpy(to + i, &sum, sizeof(sum));
	}
	for (; i < n; i += sizeof(float)) {
		float sum = 0, x;

		for (int r = 0; r < world; r++) {
			memcpy(&x, from[r] + i, sizeof(x));
			sum = r ? sum + x : x;
		}
		memcpy(to + i, &sum, sizeof(sum));
	}
}

static void sum_f64(char *to, const char *const *from, int world, size_t n)
{
	for (size_t i = 0; i < n; i += sizeof(double)) {
		double sum = 0, x;

		for (int r = 0; r < world; r++) {
			memcpy(&x, from[r] + i, sizeof(x));
			sum = r ? sum + x : x;
		}
		memcpy(to + i, &sum, sizeof(sum));
	}
}

/* Types of 16 bits: added in f32 and rounded once. */
static inline void sum_16(char *to, const char *const *from, int world, size_t n,
	float (*get)(uint16_t), uint16_t (*set)(float))
{
	for (size_t i = 0; i < n; i += sizeof(uint16_t)) {
		float sum = 0;
		uint16_t x;

		for (int r = 0; r < world; r++) {
			memcpy(&x, from[r] + i, sizeof(x));
			sum = r ? sum + get(x) : get(x);
		}
		x = set(sum);
		memcpy(to + i, &x, sizeof(x));
	}
}

static void sum_bf16(char *to, const char *const *from, int world, size_t n)
{
	sum_16(to, from, world, n, jm_bf16_get, jm_bf16_set);
}

static void sum_f16(char *to, const char *const *from, int world, size_t n)
{
	sum_16(to, from, world, n, jm_f16_get, jm_f16_set);
}

int jm__sum_check(const struct jm_transfer *t, const char *transport, struct jm_err *err)
{
	bool sums = t->kind == JM_ALL_REDUCE || t->kind == JM_REDUCE_SCATTER;

	if (!sums || t->type != JM_COMM_BYTE)
		return 0;
	return jm_err_set(
		err, JM_ENOSUP, "Transport %s adds f32, f64, bf16 and f16 only.", transport);
}

void jm__sum_ranks(
	enum jm_comm_type type, char *to, const char *const *from, int world, size_t bytes)
{
	if (type == JM_COMM_F32)
		sum_f32(to, from, world, bytes);
	else if (type == JM_COMM_BF16)
		sum_bf16(to, from, world, bytes);
	else if (type == JM_COMM_F16)
		sum_f16(to, from, world, bytes);
	else
		sum_f64(to, from, world, bytes);
}
