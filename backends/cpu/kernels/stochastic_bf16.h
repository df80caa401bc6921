/* SPDX-License-Identifier: Apache-2.0 */
/* Stochastic rounding for updates of bf16 slabs, which are widened, updated as f32 and rounded in
 * pieces. */
#ifndef JM_CPU_STOCHASTIC_BF16_H
#define JM_CPU_STOCHASTIC_BF16_H

#include <math.h>
#include <string.h>

#include "engine/graph/rng.h"
#include "kernel_set.h"

enum { SIXTEEN_PIECE = 1024 };

/* The key of the random bits of a step; now[n_now]: the operand of the update, whose last element
 * is the step number. */
static inline uint64_t stochastic_bf16_key(const float *now, int n_now)
{
	return jm_rng(0, (uint64_t)now[n_now - 1]);
}

static inline void stochastic_bf16_widen(const float *slab, int64_t at, int64_t n, float *x)
{
	const uint16_t *from = (const uint16_t *)(const void *)slab + at;

	for (int64_t i = 0; i < n; i++) {
		uint32_t bits = (uint32_t)from[i] << 16;

		memcpy(&x[i], &bits, sizeof(bits));
	}
}

/* which: 0 = p, 1 = m, 2 = v; first: the number of the slab's element 0. Values that are not finite
 * are kept. */
static inline void stochastic_bf16_round(
	const float *x, int64_t at, int64_t n, int which, uint64_t key, int64_t first, float *slab)
{
	uint16_t *to = (uint16_t *)(void *)slab + at;

	for (int64_t i = 0; i < n; i++) {
		const uint64_t element = (uint64_t)(first + at + i);
		uint32_t random = jm_rng_rounding(jm_rng(key, element / 2), element, which), bits;

		memcpy(&bits, &x[i], sizeof(bits));
		to[i] = (uint16_t)((bits + (isfinite(x[i]) ? random : 0)) >> 16);
	}
}

#endif
