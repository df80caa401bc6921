/* SPDX-License-Identifier: Apache-2.0 */
/* The softmax of scores in memory, as kernels.h declares other kernels; in attention.cu. */
#ifndef JM_CUDA_SOFTMAX_H
#define JM_CUDA_SOFTMAX_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The softmax of each row of scale scores[sequences,rows,keys], in place: elements of `type` from
 * the start of a row on, with 0 for keys that a causal row does not see.
 */
struct cuda_softmax {
	int64_t sequences, rows, keys;
	int64_t pitch; /* f32 from one row to the next, a multiple of 8 */
	int64_t first; /* the position of row 0 */
	float scale;
	bool causal;
	float *scores;
	enum cuda_type type;
	float *lse;
	int64_t lse_each; /* from one sequence to the next */
};
void cuda_softmax(const struct cuda_softmax *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
