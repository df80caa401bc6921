/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding to types of 8 bits, also for kernels. */
#ifndef JM_ROUND_F8_H
#define JM_ROUND_F8_H

#include <stdint.h>
#include <string.h>

/* Rounds to e4m3, to nearest even; what is larger than 448 becomes 448; keeps NaN. */
static inline uint8_t jm_f8e4m3_set(float f)
{
	uint32_t bits, sign;
	float small;

	memcpy(&bits, &f, sizeof(bits));
	sign = bits >> 24 & 0x80;
	bits &= 0x7fffffff;
	if (bits > 0x7f800000)
		return (uint8_t)(sign | 0x7f);
	if (bits >= 0x43e00000) /* 448 */
		return (uint8_t)(sign | 0x7e);
	if (bits >= 0x3c800000) /* 2^-6, the smallest normal number */
		return (uint8_t)(sign |
				 (((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - ((127 - 7) << 3)));
	memcpy(&small, &bits, sizeof(small));
	small += 0x1p14F; /* whose last bit is the smallest number, 2^-9 */
	memcpy(&bits, &small, sizeof(bits));
	return (uint8_t)(sign | (bits & 0xf));
}

#endif
