/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of noise.cu; all tensors are plain. */
#ifndef JM_CUDA_NOISE_H
#define JM_CUDA_NOISE_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y and the target, which may be absent, of x and e [batch,each] */
struct cuda_noise {
	int64_t batch, each;
	struct cuda_vec x, e, y; /* of one type */
	float *target;
	const int32_t *t;   /* [batch] */
	const float *parts; /* [steps,2]: the factors of x and e */
	bool velocity, add_y, add_target;
};
void cuda_noise(const struct cuda_noise *p, cudaStream_t stream);

/* y [batch,each] of the moments [batch,2,each] and the noise e [batch,each] */
struct cuda_draw {
	int64_t batch, each;
	struct cuda_vec moments, e, y; /* of one type */
	float factor, least, most;     /* between the latter logarithms of variances are used */
	bool accumulate;
};
void cuda_draw(const struct cuda_draw *p, cudaStream_t stream);

/* y [batch,width] of t [batch]: cosines, then sines */
struct cuda_waves {
	int64_t batch, width;
	const int32_t *t;
	struct cuda_vec y;
	bool accumulate;
};
void cuda_waves(const struct cuda_waves *p, cudaStream_t stream);

/* y [planes,each] of bytes, whose planes are three channels in turn */
struct cuda_colours {
	int64_t planes, each;
	const uint8_t *x;
	struct cuda_vec y;
	float factor[3], shift[3];
	bool accumulate;
};
void cuda_colours(const struct cuda_colours *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
