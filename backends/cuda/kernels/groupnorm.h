/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of groupnorm.cu and groupnorm_cluster.cu. */
#ifndef JM_CUDA_GROUPNORM_H
#define JM_CUDA_GROUPNORM_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_GROUP_PARTS 4

/* Group norm of x[batch,pixels,c]. In the gradient y is dy, mean and rstd are read, and dx, dgamma
 * and dbeta are written. */
struct cuda_groups {
	int batch, c, groups;
	int64_t pixels;
	bool silu;
	bool clusters; /* the device has clusters of blocks */
	float eps;
	struct cuda_vec x, y, dx; /* all of one type */
	/* If the first is given, x is written, too, as the sum of both; the second has one pixel or
	 * as many as x. */
	struct cuda_vec sum[2];
	bool grows; /* it has one */
	/* If there are any: images of this many channels each, side by side. x is written, too,
	 * from these; in the gradient they get dx in place of its own memory, which is only read,
	 * and one without data is left out. */
	int n_parts, width[CUDA_GROUP_PARTS];
	struct cuda_vec part[CUDA_GROUP_PARTS];
	const float *gamma, *beta;
	float *mean, *rstd; /* [batch,groups] */
	float *dgamma, *dbeta;
	unsigned accumulate; /* bits of the results: y; or dx, dgamma, dbeta */
	float *scratch;	     /* of cuda_groups_scratch bytes */
};
size_t cuda_groups_scratch(const struct cuda_groups *p);
void cuda_groupnorm(const struct cuda_groups *p, cudaStream_t stream);
void cuda_groupnorm_grad(const struct cuda_groups *p, cudaStream_t stream);
/* The same in one pass over images that fit the shared memory of a cluster; the gradient leaves the
 * sums of each image as scratch[batch][2][c]. False: other kernels have to be used. */
bool cuda_groups_cluster(const struct cuda_groups *p, cudaStream_t stream);
bool cuda_groups_cluster_grad(const struct cuda_groups *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
