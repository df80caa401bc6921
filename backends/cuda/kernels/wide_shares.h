/* SPDX-License-Identifier: Apache-2.0 */
/* How wide_grad.cu divides its work among blocks: tiles of the result, each of which is a sum over
 * chunks of pixels. Blocks that run at the same time are at the same pixels where that is possible,
 * so that they read them from the L2 cache. */
#ifndef JM_CUDA_WIDE_SHARES_H
#define JM_CUDA_WIDE_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define CUDA_BOTH_SIDES __host__ __device__
#else
#define CUDA_BOTH_SIDES
#endif

struct cuda_wide_shares {
	int tiles, chunks, blocks;
	int rounds; /* in which each block computes one whole tile */
	int left;   /* tiles that remain then */
	/* Of the chunks of each of these, `runs` blocks add `length` each; the rest, of all these
	 * tiles in turn, is shared among the helpers, which are the other blocks. */
	int runs, length, rest, helpers;
	int slots; /* for the sums of their parts; 0 = they have none */
};

/* The chunks of a tile that a block adds. */
struct cuda_wide_piece {
	int tile, begin, end;
	int slot; /* of the sums of parts of tiles; -1 = this is the whole tile */
};

#define CUDA_WIDE_LEAST 4 /* chunks for which a part of a tile is worth its sum */

static inline int cuda_wide_parts(int64_t n, int64_t of)
{
	return (int)((n + of - 1) / of);
}

static inline struct cuda_wide_shares cuda_wide_divide(int tiles, int chunks, int blocks)
{
	struct cuda_wide_shares s = {
		tiles, chunks, blocks, tiles / blocks, tiles % blocks, 0, 0, 0, 0, 0};
	const int most = chunks < CUDA_WIDE_LEAST ? 1 : chunks / CUDA_WIDE_LEAST;

	if (!s.left)
		return s;
	s.runs = blocks / s.left;
	s.length = cuda_wide_parts((int64_t)s.left * chunks, blocks);
	if (s.runs > most)
		s.runs = most, s.length = cuda_wide_parts(chunks, most);
	s.helpers = blocks - s.left * s.runs;
	if (!s.helpers)
		s.length = cuda_wide_parts(chunks, s.runs);
	if (s.runs * s.length < chunks)
		s.rest = chunks - s.runs * s.length;
	if (s.runs > 1 || s.rest)
		s.slots = s.left * (s.runs + 1) + s.helpers;
	return s;
}

/* The part of left tile `tile` that is run `run`. */
static inline CUDA_BOTH_SIDES bool cuda_wide_run(
	const struct cuda_wide_shares *s, int tile, int run, struct cuda_wide_piece *ret)
{
	const int begin = run * s->length, end = begin + s->length;

	ret->tile = s->rounds * s->blocks + tile;
	ret->begin = begin;
	ret->end = end < s->chunks ? end : s->chunks;
	ret->slot = s->slots ? tile * s->runs + run : -1;
	return begin < ret->end;
}

/* A helper near the first one that adds chunks of left tile `tile`, and at most that one. */
static inline CUDA_BOTH_SIDES int cuda_wide_helper(const struct cuda_wide_shares *s, int tile)
{
	const int helper = (int)((int64_t)tile * s->helpers / s->left);

	return helper ? helper - 1 : 0;
}

/* The part of left tile `tile` that is of the share of a helper; false also where there is no such
 * helper. */
static inline CUDA_BOTH_SIDES bool cuda_wide_help(
	const struct cuda_wide_shares *s, int tile, int helper, struct cuda_wide_piece *ret)
{
	const int64_t all = (int64_t)s->left * s->rest, first = (int64_t)tile * s->rest;

	if (helper >= s->helpers || !s->rest)
		return false;
	const int64_t from = all * helper / s->helpers - first,
		      to = all * (helper + 1) / s->helpers - first;
	const int skipped = s->chunks - s->rest;

	ret->tile = s->rounds * s->blocks + tile;
	ret->begin = skipped + (from > 0 ? (int)from : 0);
	ret->end = skipped + (to < s->rest ? (int)to : s->rest);
	ret->slot = s->left * s->runs + tile + helper;
	return tile < s->left && ret->begin < ret->end;
}

/* Piece k of a block; false = it has fewer. */
static inline CUDA_BOTH_SIDES bool cuda_wide_piece(
	const struct cuda_wide_shares *s, int block, int k, struct cuda_wide_piece *ret)
{
	const int helper = block - s->left * s->runs;

	if (k < s->rounds) {
		ret->tile = k * s->blocks + block;
		ret->begin = 0;
		ret->end = s->chunks;
		ret->slot = -1;
		return true;
	}
	if (!s->left)
		return false;
	if (helper < 0)
		return k == s->rounds && cuda_wide_run(s, block % s->left, block / s->left, ret);
	return cuda_wide_help(s,
		s->rest ? (int)((int64_t)s->left * s->rest * helper / s->helpers / s->rest) + k -
				  s->rounds
			: 0,
		helper, ret);
}

#endif
