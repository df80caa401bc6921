/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of norm_teams.cu. */
#ifndef JM_CUDA_NORM_TEAMS_H
#define JM_CUDA_NORM_TEAMS_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The blocks that run at a time, as cuda_norm_grad_blocks; 0 = rows of this width or of these types
 * have no teams. */
int cuda_norm_teams_blocks(int processors, const struct cuda_norm_grad *p);
/* As cuda_norm_grad, up to the sums of the parts. */
void cuda_norm_teams(const struct cuda_norm_grad *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
