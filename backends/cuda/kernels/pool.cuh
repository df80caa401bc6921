/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of pooling share with the gradient of the norm before a max pooling. */
#ifndef JM_CUDA_POOL_CUH
#define JM_CUDA_POOL_CUH

#include "image_kernels.h"
#include "rows.cuh"

struct place {
	int b, y, x, c;
};

/* The position of thread `index` in batch x rows x columns x packs of N channels; below 2^32, where
 * division is fast. */
template <int N> __device__ __forceinline__ place place_of(int64_t index, const int *size, int c)
{
	unsigned packs = (c + N - 1) / N, i = (unsigned)index;
	place at;

	at.c = (int)(i % packs) * N;
	i /= packs;
	at.x = (int)(i % (unsigned)size[1]);
	i /= (unsigned)size[1];
	at.y = (int)(i % (unsigned)size[0]);
	at.b = (int)(i / (unsigned)size[0]);
	return at;
}

__device__ __forceinline__ int64_t offset(const int *size, int channels, int b, int y, int x, int c)
{
	return (((int64_t)b * size[0] + y) * size[1] + x) * channels + c;
}

/* Some images of a batch. */
static inline struct cuda_pool images_of(const struct cuda_pool *p, int64_t first, int images)
{
	const int64_t in = first * p->in[0] * p->in[1] * p->c,
		      out = first * p->out[0] * p->out[1] * p->c;
	struct cuda_pool some = *p;

	some.batch = images;
	some.x = from(p->x, in);
	some.dx = from(p->dx, in);
	some.y = from(p->y, out);
	if (p->place)
		some.place = p->place + out;
	return some;
}

/* A saved position has this bit if the maximum is not above 0. */
#define PLACE_CLOSED 0x80

/* The positions of a pack of channels, without that bit. */
__device__ __forceinline__ void load_places(const unsigned char *from, unsigned char (&ret)[PACK])
{
	uint2 v = *reinterpret_cast<const uint2 *>(from);

	v.x &= ~(PLACE_CLOSED * 0x01010101u);
	v.y &= ~(PLACE_CLOSED * 0x01010101u);
	*reinterpret_cast<uint2 *>(ret) = v;
}

/*
 * The gradient of max pooling with windows of 3 x 3 and stride 2 by the saved positions, for four
 * pixels, which lie in four windows: each window is read once. With pad 1 the pixels are (2y, 2x)
 * to (2y + 1, 2x + 1), without it (2y + 1, 2x + 1) to (2y + 2, 2x + 2).
 */
template <typename T>
__device__ __forceinline__ void four_gradients(
	const struct cuda_pool &p, const place &at, float (&sum)[2][2][PACK])
{
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int k = 0; k < PACK; k++)
			sum[i / 2][i % 2][k] = 0;
#pragma unroll
	for (int w = 0; w < 4; w++) {
		const int down = w / 2, right = w % 2;
		__align__(8) unsigned char v[PACK];
		float dy[PACK];

		if (at.y + down < 0 || at.y + down >= p.out[0] || at.x + right < 0 ||
			at.x + right >= p.out[1])
			continue;
		int64_t from = offset(p.out, p.c, at.b, at.y + down, at.x + right, at.c);
		load_places(p.place + from, v);
		load((const T *)p.y.data + from, dy);
#pragma unroll
		for (int i = down; i < 2; i++)
#pragma unroll
			for (int j = right; j < 2; j++)
#pragma unroll
				for (int k = 0; k < PACK; k++)
					sum[i][j][k] +=
						v[k] == (i + 1 - 2 * down) * 3 + j + 1 - 2 * right
							? dy[k]
							: 0;
	}
}

#endif
