/* SPDX-License-Identifier: Apache-2.0 */
/* Values that become codes of 8 bits: their factor, as jm_f8_scale has it, and packs of codes. */
#ifndef JM_CUDA_F8_CUH
#define JM_CUDA_F8_CUH

#include <cuda_fp8.h>

#include "common.cuh"

/* top: the largest value of the type. */
__device__ __forceinline__ float scale_of(float limit, float top)
{
	return fminf(__fdiv_rn(top, limit > 0 ? limit : 1), 0x1p100f);
}

/* left: elements from v[0] to the end of y. */
template <__nv_fp8_interpretation_t TYPE>
__device__ __forceinline__ void store_codes(uint8_t *y, const float (&v)[PACK], int64_t left)
{
	uint16_t two[PACK / 2];

#pragma unroll
	for (int k = 0; k < PACK / 2; k++)
		two[k] = __nv_cvt_float2_to_fp8x2(
			make_float2(v[2 * k], v[2 * k + 1]), __NV_SATFINITE, TYPE);
	if (left >= PACK) {
		*reinterpret_cast<uint2 *>(y) = make_uint2(
			two[0] | (unsigned)two[1] << 16, two[2] | (unsigned)two[3] << 16);
		return;
	}
#pragma unroll
	for (int k = 0; k < PACK; k++)
		if (k < left)
			y[k] = (uint8_t)(two[k / 2] >> (k & 1 ? 8 : 0));
}

#endif
