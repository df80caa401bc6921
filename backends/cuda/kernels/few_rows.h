/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 5 to 8 rows of some widths by blocks that stay, from compute capability 9.0 on. */
#ifndef JM_CUDA_FEW_ROWS_H
#define JM_CUDA_FEW_ROWS_H

#include "kernels.h"

struct cuda_few_held {
	struct cuda_few_rows of;
	int processors; /* multiprocessors; 0 = none that can */
	bool gated;	/* y[rows,to/2] is swiglu of the product, which has no factors of rows */
};

#ifdef __cplusplus
extern "C" {
#endif
bool cuda_few_held_knows(const struct cuda_few_held *p);
void cuda_few_held(const struct cuda_few_held *p, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
