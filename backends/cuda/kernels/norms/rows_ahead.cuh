/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of images[pixels,c] that threads read as in rows.cuh, some of them while they are on their
 * way to shared memory. A thread reads only what it has copied itself, so that none waits for
 * others, and what is on its way needs no registers. */
#ifndef JM_CUDA_ROWS_AHEAD_CUH
#define JM_CUDA_ROWS_AHEAD_CUH

#include "../mma.cuh"
#include "../rows.cuh"

#define AHEAD_MOST  8	       /* rows of a thread */
#define AHEAD_BYTES (48 << 10) /* of a block */

/* N channels of each of OPERANDS images. */
template <int OPERANDS, int N, typename T> struct rows_ahead {
	static constexpr int ROW = OPERANDS * COLUMN_THREADS * (int)sizeof(packed<N, T>);
	static constexpr int FIT = AHEAD_BYTES / ROW;
	static constexpr int N_ROWS = FIT < AHEAD_MOST ? FIT : AHEAD_MOST;

	packed<N, T> row[N_ROWS][OPERANDS][COLUMN_THREADS];
};

/* Elements of two bytes alone are copied at once. */
template <int N, typename T>
__device__ __forceinline__ void copy_row(const T *from, packed<N, T> *to)
{
	constexpr int BYTES = sizeof(*to), PIECE = BYTES % 16 ? BYTES : 16;

	if constexpr (BYTES == 2)
		fetch(from, *to);
	else
#pragma unroll
		for (int i = 0; i < BYTES; i += PIECE)
			copy_async<PIECE>(shared_at(to) + i, from + i / sizeof(T), true);
}

template <int N, typename T>
__device__ __forceinline__ void add_row(const packed<N, T> &row, float (&v)[N])
{
#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] += row.at(k);
}

/* Calls use(row) for all rows of a thread: its packs of channels of the images that are not NULL.
 * These begin at the thread's channels of the first pixel; c: from pixel to pixel. */
template <int OPERANDS, int N, typename T, class USE>
__device__ __forceinline__ void over_ahead(int64_t pixels, int64_t c,
	const T *const (&images)[OPERANDS], rows_ahead<OPERANDS, N, T> &ahead, USE use)
{
	constexpr int N_ROWS = ahead.N_ROWS, SLOT = OPERANDS * COLUMN_THREADS;
	const int step = (int)row_step(), end = (int)pixels;
	packed<N, T> *const own = &ahead.row[0][0][threadIdx.y * blockDim.x + threadIdx.x];
	int64_t next = first_row() * c;
	int slot = 0;
	auto begin = [&](int r) {
		if (r < end)
#pragma unroll
			for (int k = 0; k < OPERANDS; k++)
				if (images[k])
					copy_row(images[k] + next, own + slot + k * COLUMN_THREADS);
		copies_commit();
		next += step * c;
		slot = slot + SLOT < N_ROWS * SLOT ? slot + SLOT : 0;
	};

	for (int k = 0; k < N_ROWS; k++)
		begin((int)first_row() + k * step);
	for (int r = (int)first_row(); r < end; r += step) {
		packed<N, T> row[OPERANDS];

		copies_wait<N_ROWS - 1>();
#pragma unroll
		for (int k = 0; k < OPERANDS; k++)
			if (images[k])
				fetch(reinterpret_cast<const T *>(own + slot + k * COLUMN_THREADS),
					row[k]);
		use(row);
		begin(r + N_ROWS * step);
	}
}

#endif
