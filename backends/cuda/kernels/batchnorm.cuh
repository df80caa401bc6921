/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of batch norm share: its scratch memory, the norm itself, and the ReLU's mask in its
 * gradient. */
#ifndef JM_CUDA_BATCHNORM_CUH
#define JM_CUDA_BATCHNORM_CUH

#include "image_kernels.h"
#include "rows.cuh"

/*
 * The scratch memory, of cuda_bn_scratch bytes: two values for each channel, and parts of sums over
 * rows.
 * dx = scale (e - first - (x - mean) second): scale = rstd gamma, first = dbeta / n, second =
 * rstd^2 sum(e (x - mean)) / n.
 */
struct sums {
	float *parts, *first, *second;
};

static inline struct sums sums_of(void *scratch, int64_t c)
{
	float *at = (float *)scratch;

	return {at + 2 * c, at, at + c};
}

template <int N, typename T> struct packs {
	raw<N, T> x, add, dy, y;
	unsigned char open; /* a bit for each element: y > 0 */
};

template <int N> __device__ __forceinline__ unsigned char bits_of(const float (&y)[N])
{
	unsigned bits = 0;

#pragma unroll
	for (int k = 0; k < N; k++)
		bits |= (y[k] > 0 ? 1u : 0u) << k;
	return (unsigned char)bits;
}

/* Adds a row to the sums of x - shift and of its squares. */
template <int N>
__device__ __forceinline__ void add_shifted(
	const float (&x)[N], const float (&shift)[N], float (&sum)[N], float (&squares)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++) {
		float d = x[i] - shift[i];

		sum[i] += d;
		squares[i] += d * d;
	}
}

/* The norm of x. The explicit fma makes its rounding the same in every kernel. */
__device__ __forceinline__ float normed(float x, float mean, float scale, float shift)
{
	return __fmaf_rn(x - mean, scale, shift);
}

static __device__ __forceinline__ float rstd_of(const struct cuda_bn &p, double var)
{
	return (float)(1 / sqrt(var + p.eps));
}

/* Writes rstd and the running statistics of a channel. */
static __device__ __forceinline__ void finalize(
	const struct cuda_bn &p, int64_t at, double mean, double var)
{
	p.rstd[at] = rstd_of(p, var);
	if (p.running_mean)
		p.running_mean[at] += (float)(p.momentum * (mean - p.running_mean[at]));
	if (p.running_var && p.count > 1) {
		double n = (double)p.count;

		p.running_var[at] +=
			(float)(p.momentum * (var * (n / (n - 1)) - p.running_var[at]));
	}
}

/* scale = rstd gamma of a pack of channels. */
template <int N>
__device__ __forceinline__ void load_scale(
	const float *rstd, const float *gamma, int64_t at, float (&scale)[N])
{
	float g[N];

	load(rstd + at, scale);
	load(gamma + at, g);
#pragma unroll
	for (int i = 0; i < N; i++)
		scale[i] *= g[i];
}

/*
 * e is the gradient before the ReLU. It is dy without ReLU (NONE), else dy where y > 0 (Y), where
 * the bits of the forward pass are set (BITS), or where the recomputed norm of x is positive (X:
 * nothing was added to the norm, and y is not read). KEPT: the first pass stored e in dadd.
 */
enum mask { MASK_NONE, MASK_Y, MASK_BITS, MASK_X, MASK_KEPT };

template <int N> struct channels {
	float mean[N], scale[N], shift[N];
};

/* AGAIN: the norm is needed as well. */
template <int N, enum mask M, bool AGAIN = false>
__device__ __forceinline__ void load_channels(
	const struct cuda_bn_grad &p, int64_t at, channels<N> &ret)
{
	load(p.mean + at, ret.mean);
	load_scale(p.rstd, p.gamma, at, ret.scale);
	if (M == MASK_X || AGAIN)
		load(p.beta + at, ret.shift);
}

/* Loads e, and x - mean. */
template <enum mask M, int N, typename T>
__device__ __forceinline__ void widen_both(
	const packs<N, T> &t, const channels<N> &c, float (&e)[N], float (&v)[N])
{
	float w[N];

	load(t.dy.v, e);
	load(t.x.v, v);
	if (M == MASK_Y)
		load(t.y.v, w);
#pragma unroll
	for (int k = 0; k < N; k++) {
		if (M == MASK_Y)
			e[k] = w[k] > 0 ? e[k] : 0;
		if (M == MASK_BITS)
			e[k] = t.open >> k & 1 ? e[k] : 0;
		if (M == MASK_X)
			e[k] = normed(v[k], c.mean[k], c.scale[k], c.shift[k]) > 0 ? e[k] : 0;
		v[k] -= c.mean[k];
	}
}

/* Writes the norm with ReLU of a pack of channels; v: x - mean. */
template <int N, typename T>
__device__ __forceinline__ void store_normed(T *y, const channels<N> &c, const float (&v)[N])
{
	float w[N];

#pragma unroll
	for (int k = 0; k < N; k++) {
		w[k] = __fmaf_rn(v[k], c.scale[k], c.shift[k]);
		w[k] = w[k] < 0 ? 0 : w[k];
	}
	store(y, w);
}

/*
 * Rows that a thread loads before it uses the first, and blocks of a multiprocessor: with 3 blocks
 * the constants of the channels do not fit in the registers.
 */
#define GRAD_AHEAD(T) (sizeof(T) == 2 ? 4 : 2)
#define GRAD_RESIDENT 2

/* Finishes what starts with gather_parts: a warp has a channel. */
template <class... P, class... A>
static inline void start_finish(
	void (*kernel)(P...), int64_t c, cudaStream_t stream, const A &...operands)
{
	start_overlapping(kernel, blocks_for(c, WARP), dim3(WARP, WARP), 0, stream, operands...);
}

/* dgamma and dbeta of a channel. */
static __device__ __forceinline__ void leave_grads(
	const struct cuda_bn_grad &p, const two_sums &s, double rstd, int64_t at)
{
	float dgamma = (float)(s.second * rstd), dbeta = (float)s.first;

	p.dgamma[at] = dgamma + (p.accumulate & JM_ADD_NORM_DGAMMA ? p.dgamma[at] : 0);
	p.dbeta[at] = dbeta + (p.accumulate & JM_ADD_NORM_DBETA ? p.dbeta[at] : 0);
}

/* From the parts of grad_sums to the sums of all rows, dgamma and dbeta. */
static __global__ void grad_finish(struct cuda_bn_grad p, struct sums to, int n)
{
	__shared__ double share[WARP][WARP + 1];
	wait_for_previous();
	two_sums s = gather_parts(to.parts, n, p.c, share);
	int64_t at = gathered_channel();
	double rstd;

	if (threadIdx.x || at >= p.c)
		return;
	rstd = p.rstd[at];
	to.first[at] = (float)(s.first / (double)p.rows);
	to.second[at] = (float)(s.second * rstd * rstd / (double)p.rows);
	leave_grads(p, s, rstd, at);
}

#endif
