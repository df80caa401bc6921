/* SPDX-License-Identifier: Apache-2.0 */
/* Random bits as a function of a seed and a counter. */
#ifndef JM_RNG_H
#define JM_RNG_H

#include <stdint.h>

/* A compiler for GPUs needs one more keyword. */
#ifndef JM_RNG_INLINE
#define JM_RNG_INLINE static inline
#endif

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014), twice, so that similar seeds give
 * independent streams. */
JM_RNG_INLINE uint64_t jm_rng_mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

#define JM_RNG_STEP UINT64_C(0x9e3779b97f4a7c15)

/* The state that all counters of a seed share. */
JM_RNG_INLINE uint64_t jm_rng_stream(uint64_t seed)
{
	return jm_rng_mix(seed + JM_RNG_STEP);
}

/* The values of successive counters are jm_rng_mix(stream ^ at) of an `at` that grows by
 * JM_RNG_STEP. */
JM_RNG_INLINE uint64_t jm_rng_of(uint64_t stream, uint64_t counter)
{
	return jm_rng_mix(stream ^ (counter + 1) * JM_RNG_STEP);
}

JM_RNG_INLINE uint64_t jm_rng(uint64_t seed, uint64_t counter)
{
	return jm_rng_of(jm_rng_stream(seed), counter);
}

/*
 * The 16 random bits by which an update rounds its result `which` (0, 1 or 2) of element i, from
 * `bits` of the counter i / 2, whose halves belong to two elements. The third result gets the
 * exclusive or of the others' bits, so that any two of the three are independent.
 */
JM_RNG_INLINE uint32_t jm_rng_rounding(uint64_t bits, uint64_t i, int which)
{
	const uint32_t own = (uint32_t)(i % 2 ? bits >> 32 : bits);

	return which == 0 ? own & 0xffff : which == 1 ? own >> 16 : (own ^ own >> 16) & 0xffff;
}

/* Two normal values by the method of Box and Muller (1958). */
void jm_rng_normal_pair(uint64_t seed, uint64_t counter, float *ret);
/* Those of the counters from `first` to first + n - 1, the same bits sooner. */
void jm_rng_normals(uint64_t seed, uint64_t first, int64_t n, float *ret);

#endif
