/* SPDX-License-Identifier: Apache-2.0 */
/* Types of 8 bits: the factor of values that become codes, as jm_f8_scale has it; packs of codes;
 * codes as elements of other types. */
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

struct e4m3 {
	unsigned char code;
};

template <typename K> constexpr bool is_f8 = std::is_same_v<K, e4m3>;

template <typename K> __device__ __forceinline__ float widened(K x)
{
	if constexpr (is_f8<K>)
		return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.code, __NV_E4M3)));
	else
		return (float)x;
}

/* Two codes of e4m3 (bits 0 to 15) as two elements of T, which are exact. */
template <typename T> __device__ __forceinline__ unsigned two_of(unsigned codes)
{
	const __half2 two_halves =
		__half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)codes, __NV_E4M3));

	if constexpr (std::is_same_v<T, half>) {
		return *reinterpret_cast<const unsigned *>(&two_halves);
	} else {
		const float2 f = __half22float2(two_halves);

		return two((const T *)nullptr, f.x, f.y);
	}
}

/* The type of factors on tensor cores where keys and values have type K, and all else T: codes
 * become halves in one instruction, and bf16 in four. */
template <typename T, typename K> using factor = std::conditional_t<is_f8<K>, half, T>;

/* Two elements of T, 16 bits each, as the nearest codes of e4m3 (bits 0 to 15). */
template <typename T> __device__ __forceinline__ unsigned codes_of(unsigned pair)
{
	if constexpr (std::is_same_v<T, half>)
		return __nv_cvt_halfraw2_to_fp8x2(
			*reinterpret_cast<const __half2_raw *>(&pair), __NV_SATFINITE, __NV_E4M3);
	else
		return __nv_cvt_float2_to_fp8x2(make_float2(__uint_as_float(pair << 16),
							__uint_as_float(pair & 0xffff0000u)),
			__NV_SATFINITE, __NV_E4M3);
}

#endif
