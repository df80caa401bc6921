/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The norm of all gradients in two kernels, and the updates of optimizers in one pass over n
 * elements. A thread handles one pack; results in bf16 are rounded stochastically.
 */
#include "common.cuh"

#define JM_RNG_INLINE static __device__ __forceinline__
#include "engine/graph/rng.h"

#define THREADS	    256
#define QUAD	    4 /* elements of an update in f32 that a thread handles: 16 bytes */
#define BLOCKS_BF16 6 /* of the update in bf16 that fit a multiprocessor: at most 40 registers */

/* ---- norm ------------------------------------------------------------------------------------ */

/* The square of an f32 is exact in f64. */
template <typename T> __global__ void squares_kernel(const T *x, int64_t n, double *partial)
{
	__shared__ double share[WARP];
	int64_t step = (int64_t)PACK * blockDim.x * gridDim.x;
	double sum = 0;

	for (int64_t i = PACK * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x); i < n;
		i += step) {
		float v[PACK];

		load_some(x + i, v, n - i);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			sum += (double)v[k] * (double)v[k];
	}
	sum = block_sum(sum, share);
	if (threadIdx.x == 0)
		partial[blockIdx.x] = sum;
}

__global__ void root_kernel(const double *partial, int n, float *y, bool add)
{
	__shared__ double share[WARP];
	double sum = 0;

	for (int i = threadIdx.x; i < n; i += blockDim.x)
		sum += partial[i];
	sum = block_sum(sum, share);
	if (threadIdx.x == 0)
		*y = (float)(sqrt(sum) + (add ? (double)*y : 0));
}

static void squares(const struct cuda_vec &x, int64_t n, double *partial, cudaStream_t stream)
{
	with_type(x, [&](auto t) {
		squares_kernel<<<CUDA_NORM_PARTS, THREADS, 0, stream>>>(
			as<const decltype(t)>(x), n, partial);
	});
}

void cuda_norm_all(const struct cuda_norm_all *p, cudaStream_t stream)
{
	int parts = CUDA_NORM_PARTS * (p->more.data ? 2 : 1);

	squares(p->x, p->n, p->partial, stream);
	if (p->more.data)
		squares(p->more, p->n_more, p->partial + CUDA_NORM_PARTS, stream);
	root_kernel<<<1, THREADS, 0, stream>>>(p->partial, parts, p->y, p->accumulate);
}

/* ---- updates --------------------------------------------------------------------------------- */

/* The factor of the gradient; NaN: the norm is not finite, and the update is skipped. */
__device__ __forceinline__ float clip_factor(const struct cuda_update &p)
{
	const float unscale = p.scale ? p.scale[1] : 1;
	float norm;

	if (!p.norm)
		return unscale;
	norm = *p.norm;
	if (!isfinite(norm))
		return NAN;
	return p.clip > 0 ? unscale * fminf(1, p.clip / (norm * unscale + 1e-6f)) : unscale;
}

/* which: 0 = p, 1 = m, 2 = v. */
template <int N>
__device__ __forceinline__ void store_result(
	float *p, int64_t i, float (&v)[N], int64_t left, const uint64_t (&)[PACK / 2], int)
{
	store_some(p + i, v, left, false);
}

/* Returns the bits of x plus 16 random bits; the upper half is the bf16. Not finite values are
 * kept. */
__device__ __forceinline__ unsigned raise_by(float x, unsigned random)
{
	const unsigned bits = __float_as_uint(x), infinite = 0x7f800000u;

	return (bits & infinite) == infinite ? bits : bits + random;
}

__device__ __forceinline__ void store_result(bf16 *p, int64_t i, float (&v)[PACK], int64_t left,
	const uint64_t (&random)[PACK / 2], int which)
{
	unsigned raised[PACK];

#pragma unroll
	for (int k = 0; k < PACK; k++)
		raised[k] = raise_by(v[k], jm_rng_rounding(random[k / 2], k, which));
	if (left >= PACK) {
		const unsigned upper = 0x7632; /* selects the upper halves of two words */

		*reinterpret_cast<uint4 *>(p + i) =
			make_uint4(__byte_perm(raised[0], raised[1], upper),
				__byte_perm(raised[2], raised[3], upper),
				__byte_perm(raised[4], raised[5], upper),
				__byte_perm(raised[6], raised[7], upper));
		return;
	}
#pragma unroll
	for (int k = 0; k < PACK; k++)
		if (k < left)
			p[i + k] = __ushort_as_bfloat16((unsigned short)(raised[k] >> 16));
}

/* The random stream of a step, the same in all threads. It contains a barrier, before which threads
 * should have begun to load. */
template <typename T> __device__ __forceinline__ uint64_t stream_of(const struct cuda_update &p)
{
	__shared__ uint64_t stream;

	if constexpr (sizeof(T) != sizeof(float)) {
		if (threadIdx.x == 0)
			stream = jm_rng_stream(jm_rng(0, (uint64_t)p.now[p.n_now - 1]));
		__syncthreads();
		return stream;
	}
	return 0;
}

template <typename T>
__device__ __forceinline__ void draw(uint64_t stream, int64_t i, uint64_t (&random)[PACK / 2])
{
	if constexpr (sizeof(T) != sizeof(float)) {
#pragma unroll
		for (int k = 0; k < PACK / 2; k++)
			random[k] = jm_rng_of(stream, (uint64_t)(i / 2 + k));
	}
}

template <int N>
__device__ __forceinline__ void load_gradient(
	const struct cuda_vec &g, int64_t i, float (&v)[N], int64_t left)
{
	if (g.type == CUDA_BF16)
		load_some(as<const bf16>(g) + i, v, left);
	else
		load_some(as<const float>(g) + i, v, left);
}

/* m / (sqrt(v / bias) + eps). */
__device__ __forceinline__ float direction(float, float m, float v, float bias, float eps)
{
	return m / (sqrtf(v / bias) + eps);
}

/* Its relative error is about 2^-21, far below that of stochastic rounding to bf16. */
__device__ __forceinline__ float direction(bf16, float m, float v, float bias, float eps)
{
	float root;

	asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(__fdividef(v, bias)));
	return __fdividef(m, root + eps);
}

/* Copies the elements i, i + 1... of p that have a place in the slab of copies. */
template <int N>
__device__ __forceinline__ void store_copy(const struct cuda_update &p, int64_t i, float (&w)[N])
{
	const int64_t at = i - p.copy_first, left = p.n_copy - at;

	if (at < 0 || left <= 0)
		return;
	if (p.copy.type == CUDA_BF16)
		store_some(as<bf16>(p.copy) + at, w, left, false);
	else
		store_some(as<half>(p.copy) + at, w, left, false);
}

/* COUPLED: weight decay is added to the gradient (Adam); else it scales the parameter directly
 * (AdamW). */
template <int N, typename T, bool COUPLED>
__global__ void adam_kernel(struct cuda_update p, int64_t from)
{
	const int64_t i = from + N * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x);
	const int64_t left = p.n - i;
	float g[N], w[N], m[N], v[N];
	uint64_t random[PACK / 2];

	load_gradient(p.g, i, g, left);
	load_some(as<const T>(p.p) + i, w, left);
	load_some(as<const T>(p.m) + i, m, left);
	load_some(as<const T>(p.v) + i, v, left);
	const float factor = clip_factor(p), lr = p.now[0], step = lr / p.now[1], bias2 = p.now[2];
	const uint64_t stream = stream_of<T>(p);
	if (left <= 0 || isnan(factor))
		return;
#pragma unroll
	for (int k = 0; k < N; k++) {
		const float decay = i + k < p.n_decay ? p.weight_decay : 0;

		g[k] *= factor;
		if (COUPLED)
			g[k] += decay * w[k];
		else
			w[k] -= lr * decay * w[k];
		m[k] = p.beta1 * m[k] + p.one_beta1 * g[k];
		v[k] = p.beta2 * v[k] + p.one_beta2 * g[k] * g[k];
		w[k] -= step * direction(T(), m[k], v[k], bias2, p.eps);
	}
	draw<T>(stream, p.first + i, random);
	store_result(as<T>(p.p), i, w, left, random, 0);
	store_result(as<T>(p.m), i, m, left, random, 1);
	store_result(as<T>(p.v), i, v, left, random, 2);
	if constexpr (sizeof(T) == sizeof(float))
		store_copy(p, i, w);
}

template <typename T> __global__ void sgd_kernel(struct cuda_update p)
{
	const int64_t i = PACK * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x), left = p.n - i;
	float g[PACK], w[PACK], m[PACK];
	uint64_t random[PACK / 2];

	load_gradient(p.g, i, g, left);
	load_some(as<const T>(p.p) + i, w, left);
	load_some(as<const T>(p.m) + i, m, left);
	const float factor = clip_factor(p), lr = p.now[0];
	const uint64_t stream = stream_of<T>(p);
	if (left <= 0 || isnan(factor))
		return;
#pragma unroll
	for (int k = 0; k < PACK; k++) {
		g[k] = g[k] * factor + (i + k < p.n_decay ? p.weight_decay * w[k] : 0);
		m[k] = p.beta1 * m[k] + g[k];
		w[k] -= lr * (p.nesterov ? g[k] + p.beta1 * m[k] : m[k]);
	}
	draw<T>(stream, p.first + i, random);
	store_result(as<T>(p.p), i, w, left, random, 0);
	store_result(as<T>(p.m), i, m, left, random, 1);
}

/* ---- adam of parameters, moments and gradients in bf16 --------------------------------------- */

/* What all elements of a step have in common. */
struct adam_step {
	float factor, shrink, step, inverse_bias2;
	uint64_t stream;
};

template <bool COUPLED>
__device__ __forceinline__ struct adam_step step_of(const struct cuda_update &p)
{
	const float lr = p.now[0], decay = p.n_decay ? p.weight_decay : 0;

	return {clip_factor(p), COUPLED ? decay : -lr * decay, -lr / p.now[1], 1 / p.now[2],
		jm_rng_stream(jm_rng(0, (uint64_t)p.now[p.n_now - 1]))};
}

__device__ __forceinline__ float lower(unsigned pair)
{
	return __uint_as_float(pair << 16);
}

__device__ __forceinline__ float upper(unsigned pair)
{
	return __uint_as_float(pair & 0xffff0000u);
}

template <bool COUPLED>
__device__ __forceinline__ void adam(const struct cuda_update &p, const struct adam_step &s,
	float g, float &w, float &m, float &v)
{
	g *= s.factor;
	if (COUPLED)
		g = fmaf(s.shrink, w, g);
	else
		w = fmaf(s.shrink, w, w);
	m = fmaf(p.beta1, m, p.one_beta1 * g);
	v = fmaf(p.beta2, v, p.one_beta2 * g * g);
	w = fmaf(s.step, m * fast_inverse(fast_root(v * s.inverse_bias2) + p.eps), w);
}

/* Two elements after stochastic rounding by the random bits of each, which are 0 where an element
 * may be NaN; infinity plus less than 2^16 keeps its upper half. */
__device__ __forceinline__ unsigned round_two(
	float a, float b, unsigned bits_a, unsigned bits_b, int which)
{
	return __byte_perm(__float_as_uint(a) + jm_rng_rounding(bits_a, 0, which),
		__float_as_uint(b) + jm_rng_rounding(bits_b, 0, which), 0x7632);
}

/* Two elements of a word. A moment that is NaN makes its parameter NaN. */
template <bool COUPLED>
__device__ __forceinline__ void adam_pair(const struct cuda_update &p, const struct adam_step &s,
	uint64_t at, unsigned g, unsigned &w, unsigned &m, unsigned &v)
{
	const uint64_t random = jm_rng_mix(s.stream ^ at);
	float wa = lower(w), ma = lower(m), va = lower(v), wb = upper(w), mb = upper(m),
	      vb = upper(v);

	adam<COUPLED>(p, s, lower(g), wa, ma, va);
	adam<COUPLED>(p, s, upper(g), wb, mb, vb);
	const unsigned bits_a = isnan(wa) ? 0 : (unsigned)random;
	const unsigned bits_b = isnan(wb) ? 0 : (unsigned)(random >> 32);
	w = round_two(wa, wb, bits_a, bits_b, 0);
	m = round_two(ma, mb, bits_a, bits_b, 1);
	v = round_two(va, vb, bits_a, bits_b, 2);
}

__device__ __forceinline__ uint4 *pack_at(const struct cuda_vec &v, int64_t i)
{
	return reinterpret_cast<uint4 *>(as<bf16>(v) + i);
}

__device__ __forceinline__ uint4 load_pack(const struct cuda_vec &v, int64_t i, bool inside)
{
	return inside ? *pack_at(v, i) : make_uint4(0, 0, 0, 0);
}

/* The packs of [from, n), of which all elements decay or (n_decay 0) none. */
template <bool COUPLED>
__global__ void __launch_bounds__(THREADS, BLOCKS_BF16)
	adam_bf16_kernel(struct cuda_update p, int64_t from)
{
	__shared__ struct adam_step step;
	const int64_t i = from + PACK * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x);
	const bool inside = i < p.n;
	const uint4 g = load_pack(p.g, i, inside);
	uint4 w = load_pack(p.p, i, inside), m = load_pack(p.m, i, inside),
	      v = load_pack(p.v, i, inside);
	uint64_t at = (uint64_t)((p.first + i) / 2 + 1) * JM_RNG_STEP;

	if (threadIdx.x == 0)
		step = step_of<COUPLED>(p);
	__syncthreads();
	const struct adam_step s = step;
	if (!inside || isnan(s.factor))
		return;
	adam_pair<COUPLED>(p, s, at, g.x, w.x, m.x, v.x);
	adam_pair<COUPLED>(p, s, at + JM_RNG_STEP, g.y, w.y, m.y, v.y);
	adam_pair<COUPLED>(p, s, at + 2 * JM_RNG_STEP, g.z, w.z, m.z, v.z);
	adam_pair<COUPLED>(p, s, at + 3 * JM_RNG_STEP, g.w, w.w, m.w, v.w);
	*pack_at(p.p, i) = w;
	*pack_at(p.m, i) = m;
	*pack_at(p.v, i) = v;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Elements [from, to) of any types. */
template <typename T, bool COUPLED>
static void adam_any(struct cuda_update p, int64_t from, int64_t to, cudaStream_t stream)
{
	constexpr int N = sizeof(T) == sizeof(float) ? QUAD : PACK;

	p.n = to;
	if (from < to)
		adam_kernel<N, T, COUPLED>
			<<<blocks_for(to - from, N * THREADS), THREADS, 0, stream>>>(p, from);
}

/* Elements [from, to) of whole packs in bf16. */
template <bool COUPLED>
static void adam_packs(
	struct cuda_update p, int64_t from, int64_t to, bool decay, cudaStream_t stream)
{
	p.n = to;
	p.n_decay = decay ? to : 0;
	if (from < to)
		adam_bf16_kernel<COUPLED>
			<<<blocks_for(to - from, PACK * THREADS), THREADS, 0, stream>>>(p, from);
}

/* A pack of which some elements decay, and elements behind the last whole pack, are updated by
 * themselves. */
template <typename T, bool COUPLED>
static void adam_of(const struct cuda_update *p, cudaStream_t stream)
{
	const int64_t end = p->n / PACK * PACK, decayed = min(p->n_decay / PACK * PACK, end),
		      rest = min((p->n_decay + PACK - 1) / PACK * PACK, end);

	if (sizeof(T) == sizeof(float) || p->g.type != CUDA_BF16)
		return adam_any<T, COUPLED>(*p, 0, p->n, stream);
	adam_packs<COUPLED>(*p, 0, decayed, true, stream);
	adam_any<T, COUPLED>(*p, decayed, rest, stream);
	adam_packs<COUPLED>(*p, rest, end, false, stream);
	adam_any<T, COUPLED>(*p, end, p->n, stream);
}

template <typename T> static void update_of(const struct cuda_update *p, cudaStream_t stream)
{
	switch (p->rule) {
	case CUDA_ADAMW:
		return adam_of<T, false>(p, stream);
	case CUDA_ADAM:
		return adam_of<T, true>(p, stream);
	case CUDA_SGD:
		sgd_kernel<T><<<blocks_for(p->n, PACK * THREADS), THREADS, 0, stream>>>(*p);
	}
}

void cuda_update(const struct cuda_update *p, cudaStream_t stream)
{
	p->p.type == CUDA_BF16 ? update_of<bf16>(p, stream) : update_of<float>(p, stream);
}

/* ---- mean of the parameters ------------------------------------------------------------------ */

template <typename T>
__global__ void average_kernel(
	const T *p, const float *weight, const float *norm, float *e, int64_t n)
{
	const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

	if (i < n && (*weight == 1 || !norm || isfinite(*norm)))
		e[i] = *weight == 1 ? (float)p[i] : e[i] + *weight * ((float)p[i] - e[i]);
}

void cuda_average(struct cuda_vec p, const float *weight, const float *norm, float *e, int64_t n,
	cudaStream_t stream)
{
	with_type(p, [&](auto t) {
		average_kernel<<<blocks_for(n, THREADS), THREADS, 0, stream>>>(
			as<decltype(t)>(p), weight, norm, e, n);
	});
}
