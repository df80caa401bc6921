/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in bf16. */
#ifndef JM_BF16_H
#define JM_BF16_H

#include <stdint.h>
#include <string.h>

/* A bf16 is the upper half of an f32. Conversion to bf16 rounds to nearest even and keeps NaN. */
static inline float jm_bf16_get(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline uint16_t jm_bf16_set(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
