/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normal values from counters, with a logarithm, sine and cosine of their own: the compiler turns
 * the loop over a block into vectors, and the bits depend on no library.
 */
#include "rng.h"

#include <math.h>
#include <string.h>

#define BLOCK 256 /* pairs */

/*
 * -2 log(k 2^-24) of k from 1 to 2^24, with a relative error below 3e-7. k = 2^e (1 + f), and
 * log(1 + f) = 2 atanh(s) of s = f / (2 + f), as the odd series up to s^9.
 */
static inline float minus_two_log(uint32_t k)
{
	float x = (float)(int32_t)k, f, s, z, series;
	uint32_t bits;
	int32_t e;

	memcpy(&bits, &x, sizeof(bits));
	bits += 0x3f800000 - 0x3f3504f3; /* 1 + f from sqrt(1/2) to sqrt(2) */
	e = (int32_t)(bits >> 23) - 127;
	bits = (bits & 0x7fffff) + 0x3f3504f3;
	memcpy(&f, &bits, sizeof(f));
	f -= 1;
	s = f / (2 + f);
	z = s * s;
	series = 2 + z * (0.666666667F + z * (0.4F + z * (0.285714286F + z * 0.222222222F)));
	return -2 * (s * series + (float)(e - 24) * 0.693147181F);
}

/* Sine and cosine of m 2^-24 turns, by Taylor's series over an eighth of a turn on either side of
 * a quarter. */
static inline void sine_cosine(uint32_t m, float *ret_sine, float *ret_cosine)
{
	uint32_t quarter = (m + (1 << 21)) >> 22;
	float x = (float)((int32_t)m - (int32_t)(quarter << 22)) * (0x1p-24F * 6.28318531F);
	float z = x * x;
	float sine = x + x * z * (-1 / 6.0F + z * (1 / 120.0F + z * (-1 / 5040.0F)));
	float cosine = 1 + z * (-0.5F + z * (1 / 24.0F + z * (-1 / 720.0F + z * (1 / 40320.0F))));
	float a = quarter & 1 ? cosine : sine, b = quarter & 1 ? sine : cosine;

	*ret_sine = quarter & 2 ? -a : a;
	*ret_cosine = (quarter + 1) & 2 ? -b : b;
}

static inline void normal_pair(uint32_t k, uint32_t m, float *ret)
{
	float radius = sqrtf(minus_two_log(k)), sine, cosine;

	sine_cosine(m, &sine, &cosine);
	ret[0] = radius * cosine;
	ret[1] = radius * sine;
}

void jm_rng_normal_pair(uint64_t seed, uint64_t counter, float *ret)
{
	uint64_t bits = jm_rng(seed, counter);

	normal_pair((uint32_t)(bits >> 40) + 1, (uint32_t)(bits & 0xffffff), ret);
}

/* A whole block: the compiler makes vectors of a loop whose length it knows. */
static void draw_block(uint64_t stream, uint64_t first, float *ret)
{
	uint32_t k[BLOCK], m[BLOCK];

	for (int i = 0; i < BLOCK; i++) {
		uint64_t bits = jm_rng_of(stream, first + (uint64_t)i);

		k[i] = (uint32_t)(bits >> 40) + 1;
		m[i] = (uint32_t)(bits & 0xffffff);
	}
	for (int i = 0; i < BLOCK; i++)
		normal_pair(k[i], m[i], ret + 2 * i);
}

void jm_rng_normals(uint64_t seed, uint64_t first, int64_t n, float *ret)
{
	uint64_t stream = jm_rng_stream(seed);
	float block[2 * BLOCK];

	for (; n >= BLOCK; n -= BLOCK, first += BLOCK, ret += 2 * BLOCK)
		draw_block(stream, first, ret);
	if (n > 0) {
		draw_block(stream, first, block);
		memcpy(ret, block, 2 * (size_t)n * sizeof(*ret));
	}
}
