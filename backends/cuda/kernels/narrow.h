/* SPDX-License-Identifier: Apache-2.0 */
/* What narrow.cu computes: linear layers of few channels over many rows in f32. */
#ifndef JM_CUDA_NARROW_H
#define JM_CUDA_NARROW_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[rows,to] = x[rows,from] m[from,to] + bias + add; gelu-erf(y) beside it, or y times a slope. */
struct cuda_narrow {
	int64_t rows;
	int from, to;
	const float *x, *m, *bias; /* bias: NULL = none */
	bool turned;		   /* m is [to,from] in memory */
	const float *add;	   /* NULL = none */
	const float *open; /* NULL = none; y is multiplied by the derivative of gelu-erf there */
	float *y;	   /* NULL = not wanted */
	float *gelu;	   /* NULL = not wanted; gelu-erf(y) */
	bool accumulate;   /* y is added to what is there */
};
/* Of the layer and of its gradients. */
bool cuda_narrow_knows(int64_t rows, int64_t from, int64_t to);
void cuda_narrow(const struct cuda_narrow *p, int processors, cudaStream_t stream);

/* dw[to,from] and db[to] (NULL: none) of such a layer. */
struct cuda_narrow_grad {
	int64_t rows;
	int from, to;
	const float *dy, *x;
	float *dw, *db;
	bool add_dw, add_db;
	int parts;
	float *partial; /* [parts,to,from+1]: scratch */
};
int cuda_narrow_grad_parts(int processors, int64_t rows);
void cuda_narrow_grad(const struct cuda_narrow_grad *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
