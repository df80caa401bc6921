/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with heads of 512 in bf16 or f16 on compute capability 9.0 (attention_512.cu). */
#ifndef JM_CUDA_ATTENTION_512_H
#define JM_CUDA_ATTENTION_512_H

#include "backends/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_ATTENTION_512	  512
#define CUDA_ATTENTION_512_VALUES 32 /* rows of a box of values; of the others 64 */

/* Not causal. Same results in every run. */
struct cuda_attention_512 {
	int batch, seq, keys, heads, groups;
	enum cuda_type type;		 /* bf16 or f16 */
	float scale;			 /* above 0 */
	struct cuda_tensor_map boxes[3]; /* of q, k and v: dims [batch,rows,heads depth] */
	void *y;			 /* [batch,seq,heads depth] */
	float *lse;			 /* [batch,heads,seq] */
};
void cuda_attention_512(const struct cuda_attention_512 *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
