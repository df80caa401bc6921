/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in bf16 or f16 on compute capability 9.0 (attention_forward.cu). */
#ifndef JM_CUDA_ATTENTION_FORWARD_H
#define JM_CUDA_ATTENTION_FORWARD_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* depth is 64 or 128. Same results in every run. */
struct cuda_attention_forward {
	int batch, seq, keys, heads, groups, depth;
	enum cuda_type type;		 /* bf16 or f16 */
	float scale;			 /* above 0 */
	bool causal;			 /* keys = seq */
	struct cuda_tensor_map boxes[3]; /* of q, k and v: dims [batch,rows,heads depth] */
	void *y;			 /* [batch,seq,heads depth] */
	float *lse;			 /* [batch,heads,seq] */
	int processors;
};
void cuda_attention_forward(const struct cuda_attention_forward *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
