/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group norm of x[batch,pixels,c] in 16 bits, which reads each operand once. A slice of an image's
 * channels, which are whole groups, belongs to a cluster of blocks, each of which keeps some pixels
 * in shared memory. A thread has one pack of channels of every rows-th pixel of its block and reads
 * only what it has copied itself. The sums of the blocks are added in their order, in f64.
 */
#include "groupnorm.cuh"
#include "../mma.cuh"

#define ROWS	    32 /* of threads along the pixels of a block; of small images half as many */
#define MOST_BATCH  65535 /* images along z of a grid */
#define SMALL	    64 /* pixels of a small image */
#define MOST_PACKS  16 /* of a slice */
#define LEAST_PACKS 8
#define SUMS	    (2 * PACK) /* of a pack of channels */
#define PITCH	    (SUMS + 4) /* floats from thread to thread, so that stores meet other banks */
#define QUARTERS    4	       /* in which the pixels of a thread arrive */
#define THREADS	    (ROWS * (MOST_PACKS - 1))
#define GRAD_THREADS 320 /* two blocks on a multiprocessor, limited by registers */

/* How an image is cut. */
struct slices {
	int packs, groups, n; /* of a slice; slices */
	int rows, kept;	      /* of threads; pixels that a thread keeps */
	int blocks;	      /* of a cluster */
};

/* What the threads of a block share besides the pixels. */
struct group_share {
	float own[SUMS * MOST_PACKS]; /* the block's sums, read by all blocks of the cluster */
	double all[SUMS * MOST_PACKS];
	float shift[PACK * MOST_PACKS];
	float line[2][PACK * MOST_PACKS]; /* of the slice's groups */
};

/* Where a thread is. */
struct spot {
	int column, row, at; /* at: its first channel */
	int pixel, step, n;  /* its first, from each to the next, how many */
	int64_t image, first; /* first: its first element */
};

__device__ __forceinline__ spot spot_of(const struct cuda_groups &p, const slices &q)
{
	spot ret;

	ret.column = threadIdx.x % q.packs;
	ret.row = threadIdx.x / q.packs;
	ret.at = (blockIdx.y * q.packs + ret.column) * PACK;
	ret.step = gridDim.x * q.rows;
	ret.image = blockIdx.z;
	ret.pixel = blockIdx.x * q.rows + ret.row;
	const int left = (int)p.pixels - ret.pixel;
	ret.n = left > 0 ? (left + ret.step - 1) / ret.step : 0;
	ret.first = (ret.image * p.pixels + ret.pixel) * p.c + ret.at;
	return ret;
}

/* The norm of a thread's channels: (x - mean) scale + beta. */
struct channel_lines {
	float mean[PACK], scale[PACK], beta[PACK];
};

/* Starts to copy the pixels of a thread, `each` at a time, with copy(i). */
template <class COPY> __device__ __forceinline__ void begin_copies(int n, int each, COPY copy)
{
	int i = 0;

	for (int k = 1; k <= QUARTERS; k++) {
		for (; i < min(n, k * each); i++)
			copy(i);
		copies_commit();
	}
}

/* Calls use(i) for the pixels of a thread as they arrive. */
template <int LEFT = QUARTERS - 1, class USE>
__device__ __forceinline__ void as_they_arrive(int n, int each, USE use, int i = 0)
{
	copies_wait<LEFT>();
#pragma unroll 2
	for (; i < min(n, (QUARTERS - LEFT) * each); i++)
		use(i);
	if constexpr (LEFT > 0)
		as_they_arrive<LEFT - 1>(n, each, use, i);
}

/* ---- sums of a cluster ----------------------------------------------------------------------- */

/* All threads of the cluster have come here. */
__device__ __forceinline__ void cluster_arrive()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

/* *own of block `rank` of the cluster. */
__device__ __forceinline__ float of_block(const float *own, int rank)
{
	float ret = *own;

#if __CUDA_ARCH__ >= 900
	asm volatile("{\n"
		     ".reg .b32 a;\n"
		     "mapa.shared::cluster.u32 a, %1, %2;\n"
		     "ld.shared::cluster.f32 %0, [a];\n"
		     "}"
		     : "=f"(ret)
		     : "r"(shared_at(own)), "r"(rank)
		     : "memory");
#endif
	return ret;
}

/* Adds up the two sums of each channel over the pixels of the image into s.all[pack][2][PACK].
 * space: PITCH floats for each thread. Ends with half a barrier of the cluster, for which
 * cluster_wait has to wait before the block ends, because others read its memory. */
__device__ __forceinline__ void cluster_sums(float (&first)[PACK], float (&second)[PACK],
	const slices &q, const spot &at, float *space, group_share &s)
{
	const int n = SUMS * q.packs, parts = blockDim.x / n, sum = threadIdx.x % n,
		  part = threadIdx.x / n;
	float *to = space + (at.row * q.packs + at.column) * PITCH, total = 0;

	store(to, first);
	store(to + PACK, second);
	__syncthreads();
	if (part < parts)
		for (int row = part; row < q.rows; row += parts)
			total += space[(row * q.packs + sum / SUMS) * PITCH + sum % SUMS];
	__syncthreads();
	if (part < parts)
		space[part * n + sum] = total;
	__syncthreads();
	if (part == 0) {
		total = 0;
		for (int i = 0; i < parts; i++)
			total += space[i * n + sum];
		s.own[sum] = total;
	}
	cluster_arrive();
	cluster_wait();
	if (part == 0) {
		double all = 0;

		for (int rank = 0; rank < (int)gridDim.x; rank++)
			all += (double)of_block(s.own + sum, rank);
		s.all[sum] = all;
	}
	cluster_arrive();
	__syncthreads();
}

/* The mean over a group, in all lanes of a warp, of what value(channel of the slice, its first sum,
 * its second) gives for each of its channels. */
template <class VALUE>
__device__ __forceinline__ double group_mean(
	const struct cuda_groups &p, const group_share &s, int group, VALUE value)
{
	const int each = p.c / p.groups;
	double sum = 0;

	for (int i = threadIdx.x % WARP; i < each; i += WARP) {
		const int c = group * each + i;
		const double *pair = s.all + c / PACK * SUMS + c % PACK;

		sum += value(c, pair[0], pair[PACK]);
	}
	return warp_sum(sum) / ((double)p.pixels * each);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Leaves mean and rstd of the slice's groups in s.line, and the first block in memory. */
__device__ __forceinline__ void find_means(
	const struct cuda_groups &p, const slices &q, group_share &s)
{
	const double pixels = (double)p.pixels;

	for (int g = threadIdx.x / WARP; g < q.groups; g += blockDim.x / WARP) {
		const double mean = group_mean(p, s, g, [&](int c, double first, double) {
			return first + pixels * (double)s.shift[c];
		});
		/* of (x - mean)^2 = (x - s)^2 - 2 d (x - s) + d^2, where d = mean - s */
		const double square =
			group_mean(p, s, g, [&](int c, double first, double second) {
				const double d = mean - (double)s.shift[c];

				return second - 2 * d * first + pixels * d * d;
			});
		const float rstd = rstd_of(square, p.eps);
		const int64_t group = blockIdx.z * p.groups + blockIdx.y * q.groups + g;

		if (threadIdx.x % WARP)
			continue;
		s.line[0][g] = (float)mean;
		s.line[1][g] = rstd;
		if (blockIdx.x == 0) {
			p.mean[group] = (float)mean;
			p.rstd[group] = rstd;
		}
	}
	__syncthreads();
}

/* The lines of a thread's channels by what find_means left; each: channels of a group. */
__device__ __forceinline__ void found_lines(const struct cuda_groups &p, const spot &at,
	const group_share &s, int each, channel_lines &line)
{
#pragma unroll
	for (int k = 0; k < PACK; k++) {
		const int group = (at.column * PACK + k) / each;

		line.mean[k] = s.line[0][group];
		line.scale[k] = s.line[1][group] * p.gamma[at.at + k];
		line.beta[k] = p.beta[at.at + k];
	}
}

/* Adds a pixel to the sums of x - shift and of its square. */
template <typename T>
__device__ __forceinline__ void add_moments(const packed<PACK, T> &part,
	const float (&shift)[PACK], float (&first)[PACK], float (&second)[PACK])
{
#pragma unroll
	for (int k = 0; k < PACK; k++) {
		const float d = part.at(k) - shift[k];

		first[k] += d;
		second[k] += d * d;
	}
}

/* y of a pixel. */
template <typename T>
__device__ __forceinline__ void norm_pack(
	const packed<PACK, T> &part, const channel_lines &line, bool silu, float (&y)[PACK])
{
#pragma unroll
	for (int k = 0; k < PACK; k++) {
		const float t = (part.at(k) - line.mean[k]) * line.scale[k] + line.beta[k];

		y[k] = silu ? t * sigmoid<T>(t) : t;
	}
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 2)
	group_cluster_kernel(struct cuda_groups p, slices q)
{
	extern __shared__ float4 memory[];
	__shared__ group_share s;
	const spot at = spot_of(p, q);
	const int quarter = (q.kept + QUARTERS - 1) / QUARTERS, each = p.c / p.groups;
	const T *x = as<const T>(p.x) + at.first;
	float4 *kept = memory + threadIdx.x;
	float *space = reinterpret_cast<float *>(memory + q.kept * blockDim.x);
	float first[PACK] = {}, second[PACK] = {}, shift[PACK];
	channel_lines line;
	auto part_of = [&](int i) {
		packed<PACK, T> part;

		fetch(reinterpret_cast<const T *>(kept + i * blockDim.x), part);
		return part;
	};

	begin_copies(at.n, quarter, [&](int i) {
		const T *from = x + (int64_t)i * at.step * p.c;

		copy_async<16>(shared_at(kept + i * blockDim.x), from, true);
	});
	shifts_of<PACK, T>(p, at.image, at.at, shift);
	as_they_arrive(at.n, quarter, [&](int i) {
		add_moments(part_of(i), shift, first, second);
	});
	if (at.row == 0)
		store(s.shift + at.column * PACK, shift);
	cluster_sums(first, second, q, at, space, s);
	find_means(p, q, s);
	found_lines(p, at, s, each, line);
	T *y = as<T>(p.y) + at.first;
#pragma unroll 2
	for (int i = 0; i < at.n; i++) {
		float v[PACK];

		norm_pack(part_of(i), line, p.silu, v);
		store_sum(y + (int64_t)i * at.step * p.c, v, p.accumulate & JM_ADD_OUT);
	}
	cluster_wait();
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Leaves the means of e gamma times rstd, and of e gamma h times rstd^2, of the slice's groups in
 * s.line; the first block leaves the sums of e and e h of each channel in memory. */
__device__ __forceinline__ void find_ends(
	const struct cuda_groups &p, const slices &q, group_share &s)
{
	const int from = blockIdx.y * q.packs * PACK;
	float *sums = p.scratch + blockIdx.z * 2 * p.c + from;

	for (int g = threadIdx.x / WARP; g < q.groups; g += blockDim.x / WARP) {
		const double rstd = p.rstd[blockIdx.z * p.groups + blockIdx.y * q.groups + g];
		const double mean = group_mean(p, s, g, [&](int c, double e, double ed) {
			if (blockIdx.x == 0) {
				sums[c] = (float)e;
				sums[p.c + c] = (float)(ed * rstd);
			}
			return (double)p.gamma[from + c] * e;
		});
		const double product = group_mean(p, s, g, [&](int c, double, double ed) {
			return (double)p.gamma[from + c] * ed * rstd;
		});

		if (threadIdx.x % WARP == 0) {
			s.line[0][g] = (float)(mean * rstd);
			s.line[1][g] = (float)(product * rstd * rstd);
		}
	}
	__syncthreads();
}

/* The lines of a thread's channels as the forward pass left them. */
__device__ __forceinline__ void saved_lines(
	const struct cuda_groups &p, const spot &at, int each, channel_lines &line)
{
#pragma unroll
	for (int k = 0; k < PACK; k++) {
		const int64_t group = at.image * p.groups + (at.at + k) / each;

		line.mean[k] = p.mean[group];
		line.scale[k] = p.rstd[group] * p.gamma[at.at + k];
		line.beta[k] = p.beta[at.at + k];
	}
}

/* Writes dx of a thread's pixels by what find_ends left. over_channels(i, use) calls use(k, d, e)
 * as the kernel says. */
template <typename T, class OVER>
__device__ __forceinline__ void write_gradient(const struct cuda_groups &p, const spot &at,
	const group_share &s, int each, const channel_lines &line, OVER over_channels)
{
	const group_place<T> dx = place_of<T>(p, p.dx, at.image, at.pixel, at.at);
	const T *old = as<const T>(p.dx) + at.first;

#pragma unroll 2
	for (int i = 0; i < at.n && dx.at; i++) {
		float v[PACK];

		over_channels(i, [&](int k, float d, float e) {
			const int group = (at.column * PACK + k) / each;

			v[k] = e * line.scale[k] - s.line[0][group] - d * s.line[1][group];
		});
		if (p.accumulate & JM_ADD_OUT)
			add_stored(old + (int64_t)i * at.step * p.c, v);
		store(dx.at + i * at.step * dx.c, v);
	}
}

template <typename T>
__global__ void __launch_bounds__(GRAD_THREADS, 2)
	group_cluster_grad_kernel(struct cuda_groups p, slices q)
{
	extern __shared__ float4 memory[];
	__shared__ group_share s;
	const spot at = spot_of(p, q);
	const int quarter = (q.kept + QUARTERS - 1) / QUARTERS, each = p.c / p.groups;
	const T *x = as<const T>(p.x) + at.first, *dy = as<const T>(p.y) + at.first;
	float4 *xs = memory + threadIdx.x, *dys = xs + q.kept * blockDim.x;
	float *space = reinterpret_cast<float *>(memory + 2 * q.kept * blockDim.x);
	float first[PACK] = {}, second[PACK] = {};
	channel_lines line;
	/* use(k, d, e) for the channels of pixel i: d = x - mean, e = dy silu'(t) */
	auto over_channels = [&](int i, auto use) {
		packed<PACK, T> part, dpart;

		fetch(reinterpret_cast<const T *>(xs + i * blockDim.x), part);
		fetch(reinterpret_cast<const T *>(dys + i * blockDim.x), dpart);
#pragma unroll
		for (int k = 0; k < PACK; k++) {
			const float d = part.at(k) - line.mean[k];

			use(k, d, slope_of<T>(p, dpart.at(k), d * line.scale[k] + line.beta[k]));
		}
	};

	begin_copies(at.n, quarter, [&](int i) {
		const int64_t pixel = (int64_t)i * at.step * p.c;

		copy_async<16>(shared_at(xs + i * blockDim.x), x + pixel, true);
		copy_async<16>(shared_at(dys + i * blockDim.x), dy + pixel, true);
	});
	saved_lines(p, at, each, line);
	as_they_arrive(at.n, quarter, [&](int i) {
		over_channels(i, [&](int k, float d, float e) {
			first[k] += e;
			second[k] += e * d;
		});
	});
	cluster_sums(first, second, q, at, space, s);
	find_ends(p, q, s);
	write_gradient<T>(p, at, s, each, line, over_channels);
	cluster_wait();
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Cuts images, of which a thread keeps at most `most` pixels; false = they are too large. */
static bool cut(const struct cuda_groups *p, int most, int most_blocks, slices *ret)
{
	const int each = p->groups ? p->c / p->groups : 0;

	*ret = {};
	for (int groups = 1; each && groups <= p->groups && !ret->packs; groups *= 2)
		if (groups * each % PACK == 0 && groups * each >= LEAST_PACKS * PACK &&
			groups * each < MOST_PACKS * PACK && p->groups % groups == 0)
			*ret = {groups * each / PACK, groups, p->groups / groups};
	for (int i = 0; i < p->n_parts; i++)
		if (p->width[i] % PACK)
			return false;
	if (!ret->packs || !p->clusters || p->x.type == CUDA_F32 || p->batch > MOST_BATCH)
		return false;
	ret->rows = p->pixels <= SMALL && ret->packs % 2 == 0 ? ROWS / 2 : ROWS;
	ret->blocks = 1;
	while (p->pixels > (int64_t)ret->rows * most * ret->blocks) {
		ret->blocks *= 2;
		if (ret->blocks > most_blocks)
			return false;
	}
	ret->kept = (int)(p->pixels + ret->rows * ret->blocks - 1) / (ret->rows * ret->blocks);
	return true;
}

/* images: of which a thread keeps pixels. False where a block of the device has less memory. */
static bool start_clusters(void (*kernel)(struct cuda_groups, slices), const struct cuda_groups *p,
	const slices &q, int images, cudaStream_t stream)
{
	const int threads = q.packs * q.rows,
		  bytes = threads * (q.kept * images * 16 + PITCH * (int)sizeof(float));
	cudaLaunchAttribute cluster = {};
	cudaLaunchConfig_t how = {};

	cluster.id = cudaLaunchAttributeClusterDimension;
	cluster.val.clusterDim = {(unsigned)q.blocks, 1, 1};
	how.gridDim = dim3((unsigned)q.blocks, (unsigned)q.n, (unsigned)p->batch);
	how.blockDim = dim3((unsigned)threads);
	how.dynamicSmemBytes = (size_t)bytes;
	how.stream = stream;
	how.attrs = &cluster;
	how.numAttrs = 1;
	if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) {
		cudaGetLastError(); /* clears the error: a later check must not report it */
		return false;
	}
	cudaLaunchKernelEx(&how, kernel, *p, q);
	return true;
}

/* Many packs leave room for one block on a multiprocessor only, which pays where an image has few
 * blocks. */
bool cuda_groups_cluster(const struct cuda_groups *p, cudaStream_t stream)
{
	slices q;

	if (!cut(p, 16, 8, &q) || (q.packs * ROWS > GRAD_THREADS && q.blocks > 2))
		return false;
	return start_clusters(p->x.type == CUDA_BF16 ? group_cluster_kernel<bf16>
						     : group_cluster_kernel<half>,
		p, q, 1, stream);
}

/* In the gradient one block has an image: what is larger is read twice as fast. */
bool cuda_groups_cluster_grad(const struct cuda_groups *p, cudaStream_t stream)
{
	slices q;

	if (!cut(p, 8, 1, &q) || q.packs * q.rows > GRAD_THREADS)
		return false;
	return start_clusters(p->x.type == CUDA_BF16 ? group_cluster_grad_kernel<bf16>
						     : group_cluster_grad_kernel<half>,
		p, q, 2, stream);
}
