/* SPDX-License-Identifier: Apache-2.0 */
/* gelu with the normal distribution function, and its gradient, as factors. */
#ifndef JM_CUDA_GELU_CUH
#define JM_CUDA_GELU_CUH

/*
 * The normal distribution function: gelu-erf(x) / x; ret_bell: exp(-x^2/2). Its absolute error is
 * below 1e-7, which suffices because it is multiplied by x. For x < 0 it is exp(-x^2/2) times a
 * polynomial in -0.31|x| / (1 + 0.31|x|), which was fitted for a small absolute error of the
 * product (2e-8, the rest is rounding); it takes half the instructions of erff.
 */
__device__ __forceinline__ float normal_below(float x, float &ret_bell)
{
	/* exp(-x^2/2) is 0 long before 64; z must be finite, too */
	const float z = fminf(fabsf(x), 64.f) * -0.31f;
	float inverse, u, s = -0.1408756999f;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1 - z));
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(ret_bell) : "f"(x * x * -0.7213475204f));
	u = z * inverse;
	s = s * u - 0.1115035036f;
	s = s * u + 0.5473906961f;
	s = s * u + 1.3145498f;
	s = s * u + 1.286911557f;
	s = s * u + 0.5f;
	s *= ret_bell;
	return x < 0 ? s : 1 - s;
}

__device__ __forceinline__ float normal_below(float x)
{
	float bell;

	return normal_below(x, bell);
}

/* The derivative of gelu-erf, of the two results of normal_below. */
__device__ __forceinline__ float gelu_erf_slope(float x, float below, float bell)
{
	return below + x * 0.3989422804f * bell;
}

__device__ __forceinline__ float gelu_erf_slope(float x)
{
	float bell, below = normal_below(x, bell);

	return gelu_erf_slope(x, below, bell);
}

#endif
