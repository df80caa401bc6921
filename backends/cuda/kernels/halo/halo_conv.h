/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of halo_conv.cu: convolutions of 3 x 3 with stride 1 and pad 1 in 16 bits, for compute
 * capability 9.0. */
#ifndef JM_CUDA_HALO_CONV_H
#define JM_CUDA_HALO_CONV_H

#include "backends/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[B,Y,X,K] from x[B,Y,X,C]; all operands are of one type. */
struct cuda_halo_conv {
	int batch, in[2]; /* in: rows and columns of an image */
	int channels, filters, processors;
	bool turned; /* w[C,3,3,K] in memory, its taps in reverse: the gradient of an image */
	struct cuda_vec x, w, y;
	struct cuda_vec add; /* is added before sums are rounded, may lie in y; absent: nothing */
	const float *bias;   /* [K]; NULL = none */
	bool relu;	     /* of the sums */
};
/* True for channels and filters that are multiples of 8. */
bool cuda_halo_knows(const struct cuda_halo_conv *p);
cudaError_t cuda_halo_conv(const struct cuda_halo_conv *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
