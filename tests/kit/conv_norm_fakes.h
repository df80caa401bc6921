/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels and the other rows of backend cuda that convolutions of single pixels together with a
 * batch norm need, without a GPU: they keep their arguments. */
#ifndef CONV_NORM_FAKES_H
#define CONV_NORM_FAKES_H

#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/kernels/image_kernels.h"

#define CONV_SCRATCH  1000
#define PIXEL_SCRATCH 4096
#define WIDE_SCRATCH  8192

extern struct conv_norm_fake {
	bool strided, unknown; /* what the convolution is not, and the kernel does not know */
	bool no_plan;	       /* for the convolution alone */
	bool wide;	       /* the kernel for 256 columns knows the convolution */
	bool once;	       /* there is a kernel for the whole norm and one for its gradient */
	cudaError_t rc;	       /* of that kernel */
	int way;	       /* that is chosen */
	char key[CUDA_PLAN_KEY];
	const void *conv_wrote;
	struct cuda_pixels pixels;
	struct cuda_bn stats;
	struct cuda_bn_grad grad;
	int fused, apart, wider, applied, whole;
} fake;

#endif
