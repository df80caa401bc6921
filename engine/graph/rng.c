/* SPDX-License-Identifier: Apache-2.0 */
/* Random values from counters. */
#include "rng.h"

#include <math.h>

void jm_rng_normal_pair(uint64_t seed, uint64_t counter, float *ret)
{
	uint64_t bits = jm_rng(seed, counter);
	float u = ((float)(bits >> 40) + 1) * 0x1p-24f; /* (0, 1] */
	float angle = (float)(bits & 0xffffff) * (0x1p-24f * 6.28318530718f);
	float radius = sqrtf(-2 * logf(u)), sine, cosine;

	sincosf(angle, &sine, &cosine);
	ret[0] = radius * cosine;
	ret[1] = radius * sine;
}
