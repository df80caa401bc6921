/* SPDX-License-Identifier: Apache-2.0 */
/* Sixteen lanes of an image at a time; the compiler splits them if vectors are shorter. */
#ifndef JM_CPU_VECTOR_LANES_H
#define JM_CPU_VECTOR_LANES_H

#include "image.h"
#include "simd.h"

#include <string.h>

#define LANES 16

typedef float jm_l16 __attribute__((vector_size(64)));
typedef float jm_l16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t jm_i16 __attribute__((vector_size(64)));
typedef uint32_t jm_u16 __attribute__((vector_size(64)));
typedef uint16_t jm_h16u __attribute__((vector_size(32), aligned(2), may_alias));

JM_INLINE jm_l16 jm_lanes_set(float x)
{
	return (jm_l16){0} + x;
}

/* Loads `width` lanes from element `at` on; the others are 0. */
JM_INLINE jm_l16 jm_lanes_load(const void *x, bool bf16, int64_t at, int width)
{
	const char *from = (const char *)x + at * (bf16 ? 2 : 4);
	char part[4 * LANES] = {0};

	if (width < LANES)
		from = memcpy(part, from, (size_t)width * (bf16 ? 2 : 4));
	if (bf16)
		return (jm_l16)(__builtin_convertvector(*(const jm_h16u *)from, jm_u16) << 16);
	return *(const jm_l16u *)from;
}

/* All bits set where x is not a number. */
JM_INLINE jm_i16 jm_lanes_nan(jm_l16 x)
{
	return x != x; /* NOLINT(misc-redundant-expression) */
}

JM_INLINE void jm_lanes_store(void *y, bool bf16, int64_t at, int width, jm_l16 x)
{
	char part[4 * LANES], *to = (char *)y + at * (bf16 ? 2 : 4);
	char *whole = width < LANES ? part : to;

	if (bf16) {
		jm_u16 u = (jm_u16)x, rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
		jm_u16 nan = (jm_u16)jm_lanes_nan(x);

		rounded = (nan & ((u >> 16) | 0x40u)) | (~nan & rounded);
		*(jm_h16u *)whole = __builtin_convertvector(rounded, jm_h16u);
	} else {
		*(jm_l16u *)whole = x;
	}
	if (width < LANES)
		memcpy(to, part, (size_t)width * (bf16 ? 2 : 4));
}

/* y += x or y = x */
JM_INLINE void jm_lanes_emit(void *y, bool bf16, bool add, int64_t at, int width, jm_l16 x)
{
	if (add)
		x += jm_lanes_load(y, bf16, at, width);
	jm_lanes_store(y, bf16, at, width, x);
}

/* `yes` where the mask is set, else `no` */
JM_INLINE jm_l16 jm_lanes_pick(jm_i16 mask, jm_l16 yes, jm_l16 no)
{
	return (jm_l16)((mask & (jm_i16)yes) | (~mask & (jm_i16)no));
}

#endif
