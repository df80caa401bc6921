/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in fp16: 5 bits of exponent, 10 of mantissa. */
#ifndef JM_F16_H
#define JM_F16_H

#include <stdint.h>
#include <string.h>

static inline float jm_f16_get(uint16_t x)
{
	uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7fff, bits;
	float f;

	if (rest < 0x400) { /* 2^-24 times the mantissa */
		f = (float)rest * 0x1p-24F;
		return sign ? -f : f;
	}
	bits = sign | (rest < 0x7c00 ? (rest << 13) + (112U << 23) : rest << 13 | 255U << 23);
	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Rounds to nearest even; what is too large becomes infinite. */
static inline uint16_t jm_f16_set(float f)
{
	uint32_t bits, sign;

	memcpy(&bits, &f, sizeof(bits));
	sign = bits >> 16 & 0x8000;
	bits &= 0x7fffffff;
	if (bits > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (bits >= 0x477ff000)
		return (uint16_t)(sign | 0x7c00);
	if (bits < 0x38800000) { /* below 2^-14; the sum has a unit of 2^-24 */
		memcpy(&f, &bits, sizeof(f));
		f += 0.5F;
		memcpy(&bits, &f, sizeof(bits));
		return (uint16_t)(sign | (bits - 0x3f000000));
	}
	bits += 0xfff + (bits >> 13 & 1) - (112U << 23);
	return (uint16_t)(sign | bits >> 13);
}

#endif
