/* SPDX-License-Identifier: Apache-2.0 */
/* Activations and their slopes. `act` must be a constant where these are inlined, otherwise the
 * compiler does not vectorise the loops. */
#ifndef JM_CPU_ACT_H
#define JM_CPU_ACT_H

#include "kernel_set.h"
#include "simd.h"

/* Like jm_inverse: 1/x for 1 <= x <= 4.2, and a finite number for larger x. */
JM_INLINE float jm_inverse4(float x)
{
	float in = x > 4.2f ? 4.2f : x;
	float y = ((-0.03423328f * in + 0.3560268f) * in - 1.30086932f) * in + 1.95103234f;

	y = y * (2.f - in * y);
	y = y * (2.f - in * y);
	return y * (2.f - in * y);
}

/* The normal distribution function (1 + erf(x/sqrt 2)) / 2 by Abramowitz and Stegun 7.1.26. */
JM_INLINE float jm_phi(float x, float bell /* e^(-x^2/2) */)
{
	float z = (x < 0 ? -x : x) * 0.70710678f, t = jm_inverse4(1.f + 0.3275911f * z), tail;

	tail = 1.061405429f;
	tail = tail * t - 1.453152027f;
	tail = tail * t + 1.421413741f;
	tail = tail * t - 0.284496736f;
	tail = tail * t + 0.254829592f;
	tail *= 0.5f * t * bell;
	return x < 0 ? tail : 1.f - tail;
}

JM_INLINE float jm_act(enum cpu_act act, float x)
{
	switch (act) {
	case CPU_RELU:
		return x > 0 || x != x ? x : 0.f;
	case CPU_SILU:
		return x * jm_sigmoid(x, NULL);
	case CPU_GELU_QUICK:
		return x * jm_sigmoid(1.702f * x, NULL);
	case CPU_GELU:
		return jm_gelu(x);
	default:
		return x * jm_phi(x, jm_exp(-0.5f * x * x));
	}
}

/* for relu, x may also be its result y, which has the same sign */
JM_INLINE float jm_act_slope(enum cpu_act act, float x)
{
	float s, bell;

	switch (act) {
	case CPU_RELU:
		return x > 0 ? 1.f : 0.f;
	case CPU_SILU:
		s = jm_sigmoid(x, NULL);
		return s * (1.f + x * (1.f - s));
	case CPU_GELU_QUICK:
		s = jm_sigmoid(1.702f * x, NULL);
		return s * (1.f + 1.702f * x * (1.f - s));
	case CPU_GELU:
		return jm_gelu_slope(x);
	default:
		bell = jm_exp(-0.5f * x * x);
		return jm_phi(x, bell) + x * 0.39894228f * bell;
	}
}

#endif
