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

/* The values of successive counters are jm_rng_mix(stream ^ at) of an `at` that grows by JM_RNG_STEP. */
JM_RNG_INLINE uint64_t jm_rng_of(uint64_t stream, uint64_t counter)
{
	return jm_rng_mix(stream ^ (counter + 1) * JM_RNG_STEP);
}

JM_RNG_INLINE uint64_t jm_rng(uint64_t seed, uint64_t counter)
{
	return jm_rng_of(jm_rng_stream(seed), counter);
}

/* Two normal values by the method of Box and Muller (1958). */
void jm_rng_normal_pair(uint64_t seed, uint64_t counter, float *ret);

#endif
