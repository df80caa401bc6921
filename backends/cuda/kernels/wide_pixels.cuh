/* SPDX-License-Identifier: Apache-2.0 */
/* What wide_pixels.cu does with the results of its products: they reach their packs of a row
 * through shared memory of a warp, are written, and summed for a batch norm or its gradient. */
#ifndef JM_CUDA_WIDE_PIXELS_CUH
#define JM_CUDA_WIDE_PIXELS_CUH

#include "batchnorm.cuh"
#include "hopper.cuh"

#define COLUMNS	   256 /* of a block */
#define ROWS	   64  /* of a tile */
#define CHUNK	   64  /* columns of 128 bytes */
#define STEP	   16  /* channels that an instruction sums over */
#define GROUP	   128
#define PAIR	   (2 * GROUP)
#define THREADS	   (2 * PAIR)
#define OWN	   (COLUMNS / 2) /* of a warp group */
#define HALVES	   (OWN / CHUNK)
#define X_CHUNK	   (ROWS * CHUNK_ROW)
#define STAGE	   2048 /* bytes of a warp */
#define STAGES	   (THREADS / WARP * STAGE)
#define SLOTS	   3		  /* stages of a warp in gradients */
#define PACKS	   (CHUNK / PACK) /* of a row of a chunk */
#define LANES_DOWN (WARP / PACKS)

/* True if two of three stages of a gradient lie in the tile of x, whose products are done. */
#define IN_TILE(grad, k) ((grad) && ROWS * (k)*2 == PAIR / WARP * 2 * STAGE)
#define STAGED(grad, k)	 ((grad) && !IN_TILE(grad, k) ? SLOTS : 1)

__device__ __forceinline__ int lane_of()
{
	return (int)threadIdx.x % WARP;
}

/* The lane, of which the compiler does not know that it was needed before: places that follow from
 * it are found again, since few registers are free. */
__device__ __forceinline__ int lane_again()
{
	int lane = lane_of();

	asm volatile("" : "+r"(lane));
	return lane;
}

/* ---- results of a warp as tensor cores keep them: 16 rows, 128 columns ----------------------- */

typedef float fragments[OWN / 2];

/* Two neighbouring columns of a row of 64, in 16 bits; their packs lie in different banks in 8
 * rows. */
template <typename T>
__device__ __forceinline__ void put_pair(
	T *stage, int lane, int row, int pack, float low, float high)
{
	char *to = (char *)stage + row * CHUNK_ROW + (pack ^ row % 8) * 16 + lane % 4 * 4;

	*reinterpret_cast<unsigned *>(to) = two(stage, low, high);
}

template <typename T>
__device__ __forceinline__ raw<PACK, T> get_pack(const T *stage, int lane, int row)
{
	const char *from = (const char *)stage + row * CHUNK_ROW + (lane % PACKS ^ row % 8) * 16;

	return *reinterpret_cast<const raw<PACK, T> *>(from);
}

/*
 * The same in f32 for 8 rows of 256 bytes; the second half of a pack lies 128 bytes behind the
 * first. Places differ in bits 4 to 6, so that the place of another pack, half or row follows from
 * one by an exclusive or.
 */
__device__ __forceinline__ uint32_t place_of(int row, int pack, int half)
{
	return row * 2 * CHUNK_ROW + half * CHUNK_ROW + (pack ^ row ^ 4 * half) * 16;
}

__device__ __forceinline__ void put_pair(uint32_t to, float low, float high)
{
	asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(low), "f"(high));
}

template <int BEHIND> __device__ __forceinline__ void get_four(uint32_t from, float (&ret)[4])
{
	asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4 + %5];"
		     : "=f"(ret[0]), "=f"(ret[1]), "=f"(ret[2]), "=f"(ret[3])
		     : "r"(from), "n"(BEHIND));
}

/* ---- what is done with them ------------------------------------------------------------------ */

/* The first or second of two elements. */
__device__ __forceinline__ float widened(const bf16 *, unsigned word, int second)
{
	return __uint_as_float(second ? word & 0xffff0000u : word << 16);
}

__device__ __forceinline__ float widened(const half *, unsigned word, int second)
{
	const half2 both = *reinterpret_cast<const half2 *>(&word);

	return second ? __high2float(both) : __low2float(both);
}

/* The stages of a warp: the first one, the second one `step` behind it, and the last. */
struct stages {
	char *first, *last;
	int step;
};

/* The sums of a thread for its packs of both halves. */
struct own_sums {
	float first[HALVES][PACK], second[HALVES][PACK];
};

/* Writes y, and sums it and its squares, less the first row of the pair; row, column: of the
 * warp. */
template <typename T> struct take_stats {
	template <class NEXT>
	static __device__ __forceinline__ void take(const struct cuda_pixels &p,
		const struct cuda_bn_grad &, const fragments &d, const struct stages &stage,
		const float *less, int row, int column, struct own_sums &sums, const NEXT &)
	{
		T *own = (T *)stage.first;

#pragma unroll
		for (int h = 0; h < HALVES; h++) {
			const int lane = lane_again();
			float shift[PACK];

			__syncwarp();
#pragma unroll
			for (int i = 0; i < 2 * PACKS; i++)
				put_pair(own, lane, lane / 4 + i % 2 * 8, i / 2, d[h * 32 + 2 * i],
					d[h * 32 + 2 * i + 1]);
			__syncwarp();
			load(less + h * CHUNK + lane % PACKS * PACK, shift);
#pragma unroll
			for (int u = 0; u < 16 / LANES_DOWN; u++) {
				int r = lane / PACKS + u * LANES_DOWN;
				raw<PACK, T> y = get_pack(own, lane, r);
				float v[PACK];

				if (row + r >= (int)p.rows)
					continue;
				*reinterpret_cast<raw<PACK, T> *>(
					(T *)p.y.data + ((row + r) * p.n + column + h * CHUNK)) = y;
				load(y.v, v);
				add_shifted(v, shift, sums.first[h], sums.second[h]);
			}
		}
	}
	/* The sums of a column less shift in `rows` rows. */
	static __device__ __forceinline__ void leave(void *parts, int64_t at, int64_t n,
		float first, float second, float shift, int64_t rows)
	{
		double *own = (double *)parts + at;
		double s = shift, all = (double)rows * s;

		own[0] = first + all;
		own[n] = second + s * (2.0 * first + all);
	}
};

/*
 * The sums of a norm's gradient, whose result y is: e is y plus the gradient of another branch
 * where the ReLU's bit is set, and is written in place of y.
 */
template <typename T> struct take_grad {
	struct operands {
		packed<PACK, T> x, add;
		unsigned char open;
	};
	static __device__ __forceinline__ void fetch_operands(const struct cuda_pixels &p,
		const struct cuda_bn_grad &g, int at, struct operands &to)
	{
		fetch<PACK>((const T *)g.x.data + at, to.x);
		fetch<PACK>((const T *)p.add.data + at, to.add);
		to.open = g.mask[at / PACK];
	}
	/* Returns half a pack of e; v: of y. */
	template <int HALF>
	static __device__ __forceinline__ uint2 take_half(float (&v)[4], const struct operands &t,
		const float (&mean)[4], float *first, float *second)
	{
		uint2 e;

#pragma unroll
		for (int k = 0; k < 4; k++) {
			v[k] += t.add.at(HALF * 4 + k);
			v[k] = t.open >> (HALF * 4 + k) & 1 ? v[k] : 0;
		}
		e = make_uint2(two((const T *)NULL, v[0], v[1]), two((const T *)NULL, v[2], v[3]));
#pragma unroll
		for (int k = 0; k < 4; k++) {
			const unsigned word = k < 2 ? e.x : e.y;
			const float w = widened((const T *)NULL, word, k % 2);

			first[HALF * 4 + k] += w;
			second[HALF * 4 + k] += w * (t.x.at(HALF * 4 + k) - mean[k]);
		}
		return e;
	}
	/* Of a quarter of the warp's results, 8 rows of 64 columns. */
	struct quarter {
		struct operands row[8 / LANES_DOWN];
	};
	/* What a thread has in a tile: the element with which its first pack begins, how many rows
	 * there are from there on, and places in a stage. */
	struct own {
		int at, left;
		uint32_t put, get, mean;
	};
	template <int I>
	static __device__ __forceinline__ void put_quarter(
		const fragments &d, uint32_t stage, const struct own &o)
	{
#pragma unroll
		for (int j = 0; j < PACKS; j++)
			put_pair(stage + (o.put ^ j * 16), d[I / 2 * 32 + 4 * j + I % 2 * 2],
				d[I / 2 * 32 + 4 * j + I % 2 * 2 + 1]);
	}
	static __device__ __forceinline__ int at(
		const struct cuda_pixels &p, const struct own &o, int i, int u)
	{
		return o.at + (i % 2 * 8 + u * LANES_DOWN) * p.n + i / 2 * CHUNK;
	}
	template <int I>
	static __device__ __forceinline__ void fetch_quarter(const struct cuda_pixels &p,
		const struct cuda_bn_grad &g, const struct own &o, struct quarter &to)
	{
#pragma unroll
		for (int u = 0; u < 8 / LANES_DOWN; u++) {
			const bool is = I % 2 * 8 + u * LANES_DOWN < o.left;

			/* Without a condition, as the compiler would keep registers for what it
			 * may not overwrite. */
			fetch_operands(p, g, is ? at(p, o, I, u) : 0, to.row[u]);
		}
	}
	template <int I>
	static __device__ __forceinline__ void take_quarter(const struct cuda_pixels &p,
		uint32_t stage, const struct own &o, const struct quarter &t, struct own_sums &sums)
	{
		constexpr int H = I / 2;

#pragma unroll
		for (int u = 0; u < 8 / LANES_DOWN; u++) {
			const uint32_t from = stage + u * LANES_DOWN * 2 * CHUNK_ROW;
			float v[4], m[4];
			uint2 low, high;

			if (I % 2 * 8 + u * LANES_DOWN >= o.left)
				continue;
			get_four<0>(from + (o.get ^ u * 64), v);
			get_four<H * CHUNK * 4>(o.mean, m);
			low = take_half<0>(v, t.row[u], m, sums.first[H], sums.second[H]);
			get_four<CHUNK_ROW>(from + (o.get ^ u * 64 ^ 64), v);
			get_four<H * CHUNK * 4 + 16>(o.mean, m);
			high = take_half<1>(v, t.row[u], m, sums.first[H], sums.second[H]);
			*reinterpret_cast<uint4 *>((T *)p.y.data + at(p, o, I, u)) =
				make_uint4(low.x, low.y, high.x, high.y);
		}
	}
	/* Results of three quarters go to stages first, so that their registers take operands.
	 * next(i) is called when the first i stages are free. */
	template <class NEXT>
	static __device__ __forceinline__ void take(const struct cuda_pixels &p,
		const struct cuda_bn_grad &g, const fragments &d, const struct stages &stage,
		const float *less, int row, int column, struct own_sums &sums, const NEXT &next)
	{
		const int lane = lane_of();
		const uint32_t first = shared_at(stage.first), last = shared_at(stage.last),
			       step = stage.step;
		const struct own o = {(row + lane / PACKS) * (int)p.n + column,
			(int)p.rows - row - lane / PACKS,
			place_of(lane / 4, 0, lane % 4 / 2) + lane % 2 * 8,
			place_of(lane / PACKS, lane % PACKS, 0),
			shared_at(less) + lane % PACKS * PACK * 4};
		struct quarter t0, t1, t2, t3;

		__syncwarp();
		put_quarter<0>(d, first, o);
		put_quarter<1>(d, first + step, o);
		put_quarter<2>(d, last, o);
		fetch_quarter<0>(p, g, o, t0);
		fetch_quarter<1>(p, g, o, t1);
		__syncwarp();
		take_quarter<0>(p, first, o, t0, sums);
		fetch_quarter<2>(p, g, o, t2);
		take_quarter<1>(p, first + step, o, t1, sums);
		fetch_quarter<3>(p, g, o, t3);
		next(2);
		take_quarter<2>(p, last, o, t2, sums);
		__syncwarp();
		put_quarter<3>(d, last, o);
		__syncwarp();
		next(3);
		take_quarter<3>(p, last, o, t3, sums);
	}
	static __device__ __forceinline__ void leave(
		void *parts, int64_t at, int64_t n, float first, float second, float, int64_t)
	{
		float *own = (float *)parts + at;

		own[0] = first;
		own[n] = second;
	}
};

#endif
