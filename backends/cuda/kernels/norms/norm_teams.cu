/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of layer norm and RMS norm in 16 bits for rows of 256 to 1,536 elements. A team of 1, 2
 * or 4 warps has a row at a time, of which a lane keeps 4 to 6 pairs in registers, and loads those
 * of its next row before it waits for the others. A lane adds up its columns over all rows of the
 * team; the block leaves the sums of its teams in their order.
 */
#include "../common.cuh"
#include "../norm_teams.h"

#define WARPS 16 /* of a block, of which a multiprocessor has one */
#define MOST  4	 /* warps of a team */

/* Two neighbouring elements. */
template <typename T> struct pair {
	unsigned bits;

	__device__ __forceinline__ float at(int i) const;
};

template <> __device__ __forceinline__ float pair<bf16>::at(int i) const
{
	return __uint_as_float(i ? bits & 0xffff0000u : bits << 16);
}

template <> __device__ __forceinline__ float pair<half>::at(int i) const
{
	return __half2float(__ushort_as_half((unsigned short)(i ? bits >> 16 : bits)));
}

/* The pairs of a lane of one row. */
template <int K, typename T> struct team_row {
	pair<T> dy[K], x[K], dx[K]; /* dx: what the result is added to */
	float mean, rstd;
};

/* from: the lane's first element; its pairs are 2 WARP elements apart. */
template <bool CENTRED, int K, typename T>
__device__ __forceinline__ void load_row(
	const struct cuda_norm_grad &p, int64_t row, int from, team_row<K, T> &ret)
{
	const int64_t at = row * p.width + from;

	if (row >= p.rows)
		return;
	ret.rstd = p.rstd[row];
	ret.mean = CENTRED ? p.mean[row] : 0;
#pragma unroll
	for (int k = 0; k < K; k++) {
		const int64_t i = at + 2 * WARP * k;

		ret.dy[k] = *reinterpret_cast<const pair<T> *>(as<const T>(p.dy) + i);
		ret.x[k] = *reinterpret_cast<const pair<T> *>(as<const T>(p.x) + i);
		if (p.add_dx)
			ret.dx[k] = *reinterpret_cast<const pair<T> *>(as<const T>(p.dx) + i);
	}
}

/* The sums over a team's lanes; both: two values of each warp, which may be written again after the
 * barrier of another call. */
template <bool CENTRED, int TEAM>
__device__ __forceinline__ float2 team_sums(float2 x, float2 *both)
{
	const int warp = threadIdx.x / WARP, team = warp / TEAM;

	x = make_float2(CENTRED ? warp_sum(x.x) : 0, warp_sum(x.y));
	if constexpr (TEAM > 1) {
		if (threadIdx.x % WARP == 0)
			both[warp] = x;
		asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(TEAM * WARP) : "memory");
		x = make_float2(0, 0);
#pragma unroll
		for (int i = 0; i < TEAM; i++) {
			const float2 other = both[team * TEAM + i];

			x.x += other.x;
			x.y += other.y;
		}
	}
	return x;
}

/* Writes the sums of a block's teams to a vector of its part. */
template <int TEAM, int K>
__device__ __forceinline__ void leave_columns(
	const float (&sum)[K][2], int from, int64_t width, float *share, float *to)
{
	float *own = share + (threadIdx.x / WARP / TEAM) * width + from;

	__syncthreads();
#pragma unroll
	for (int k = 0; k < K; k++)
		*reinterpret_cast<float2 *>(own + 2 * WARP * k) =
			make_float2(sum[k][0], sum[k][1]);
	__syncthreads();
	for (int c = threadIdx.x; c < width; c += WARPS * WARP) {
		float all = 0;

#pragma unroll
		for (int team = 0; team < WARPS / TEAM; team++)
			all += share[team * width + c];
		to[c] = all;
	}
}

/* Adds a row to the columns' sums, and its g and g x_hat to `mean`, where g = dy gamma. */
template <bool CENTRED, int K, typename T>
__device__ __forceinline__ void add_row(const team_row<K, T> &row, const float (&gamma)[K][2],
	float (&dgamma)[K][2], float (&dbeta)[K][2], float2 &mean)
{
#pragma unroll
	for (int i = 0; i < 2 * K; i++) {
		const int k = i / 2, e = i % 2;
		const float dy = row.dy[k].at(e), g = dy * gamma[k][e];
		const float x_hat = (row.x[k].at(e) - row.mean) * row.rstd;

		dgamma[k][e] += dy * x_hat;
		mean.y += g * x_hat;
		if constexpr (CENTRED) {
			dbeta[k][e] += dy;
			mean.x += g;
		}
	}
}

template <int TEAM, int K, bool CENTRED, bool SUMS, typename T>
__global__ void __launch_bounds__(WARPS *WARP, 1) norm_teams_kernel(struct cuda_norm_grad p)
{
	__shared__ float share[WARPS * WARP * 2 * K];
	__shared__ float2 both[2][WARPS];
	const int warp = threadIdx.x / WARP;
	const int from = 2 * (warp % TEAM * WARP * K + threadIdx.x % WARP);
	const int64_t step = (int64_t)gridDim.x * (WARPS / TEAM);
	float gamma[K][2], dgamma[K][2] = {}, dbeta[K][2] = {}, sums[K][2] = {};
	team_row<K, T> now, next;
	int64_t row = (int64_t)blockIdx.x * (WARPS / TEAM) + warp / TEAM;
	int turn = 0;

#pragma unroll
	for (int k = 0; k < K; k++)
		load(p.gamma + from + 2 * WARP * k, gamma[k]);
	load_row<CENTRED>(p, row, from, next);
	for (; row < p.rows; row += step, turn ^= 1) {
		float2 mean = make_float2(0, 0);

		now = next;
		load_row<CENTRED>(p, row + step, from, next);
		add_row<CENTRED>(now, gamma, dgamma, dbeta, mean);
		mean = team_sums<CENTRED, TEAM>(mean, both[turn]);
		mean.x /= p.width;
		mean.y /= p.width;
#pragma unroll
		for (int k = 0; k < K; k++) {
			pair<T> result;
			float v[2];
#pragma unroll
			for (int e = 0; e < 2; e++) {
				const float x_hat = (now.x[k].at(e) - now.mean) * now.rstd;

				v[e] = now.rstd * (now.dy[k].at(e) * gamma[k][e] - mean.x -
							  x_hat * mean.y);
				if (p.add_dx)
					v[e] += now.dx[k].at(e);
			}
			result.bits = two((const T *)NULL, v[0], v[1]);
			*reinterpret_cast<pair<T> *>(
				as<T>(p.dx) + row * p.width + from + 2 * WARP * k) = result;
			if constexpr (SUMS) {
				sums[k][0] += result.at(0);
				sums[k][1] += result.at(1);
			}
		}
	}
	float *to = p.partial + (int64_t)(1 + CENTRED + SUMS) * blockIdx.x * p.width;

	leave_columns<TEAM>(dgamma, from, p.width, share, to);
	if constexpr (CENTRED)
		leave_columns<TEAM>(dbeta, from, p.width, share, to += p.width);
	if constexpr (SUMS)
		leave_columns<TEAM>(sums, from, p.width, share, to + p.width);
}

/* ---- starting -------------------------------------------------------------------------------- */

/* The warps that share a row of `width` elements; 0 = none, or the pairs do not come out even. */
static int team_of(int64_t width, int pairs)
{
	const int64_t team = width / (2 * WARP * pairs);

	return width % (2 * WARP * pairs) || team > MOST || team & (team - 1) ? 0 : (int)team;
}

/* The pairs of a row that a lane keeps; 0 = this is no way for the row. */
static int pairs_of(const struct cuda_norm_grad *p)
{
	if (p->x.type != p->dy.type || p->x.type == CUDA_F32)
		return 0;
	for (int pairs = 4; pairs <= 6; pairs++)
		if (team_of(p->width, pairs))
			return pairs;
	return 0;
}

int cuda_norm_teams_blocks(int processors, const struct cuda_norm_grad *p)
{
	const int pairs = pairs_of(p);

	if (!pairs)
		return 0;
	const int64_t teams = WARPS / team_of(p->width, pairs);
	const int64_t want = (p->rows + teams - 1) / teams;

	return want < processors ? (int)want : processors;
}

template <int TEAM, int K, bool CENTRED>
static void with_team(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	auto start = [&](auto t) {
		using T = decltype(t);

		if (CENTRED && p->sums)
			norm_teams_kernel<TEAM, K, CENTRED, CENTRED, T>
				<<<p->blocks, WARPS * WARP, 0, stream>>>(*p);
		else
			norm_teams_kernel<TEAM, K, CENTRED, false, T>
				<<<p->blocks, WARPS * WARP, 0, stream>>>(*p);
	};

	if (p->x.type == CUDA_BF16)
		start(bf16());
	else
		start(half());
}

template <int K, bool CENTRED>
static void with_pairs(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	const int team = team_of(p->width, K);

	if (team == 1)
		with_team<1, K, CENTRED>(p, stream);
	else if (team == 2)
		with_team<2, K, CENTRED>(p, stream);
	else
		with_team<4, K, CENTRED>(p, stream);
}

template <bool CENTRED> static void teams_of(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	const int pairs = pairs_of(p);

	if (pairs == 4)
		with_pairs<4, CENTRED>(p, stream);
	else if (pairs == 5)
		with_pairs<5, CENTRED>(p, stream);
	else
		with_pairs<6, CENTRED>(p, stream);
}

void cuda_norm_teams(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	p->centred ? teams_of<true>(p, stream) : teams_of<false>(p, stream);
}
