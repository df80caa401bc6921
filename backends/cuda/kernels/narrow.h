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
int cuda_narrow_grad_parts(int processors, int64_t rows, int from, int to);
void cuda_narrow_grad(const struct cuda_narrow_grad *p, cudaStream_t stream);
/* The sums of the parts of one layer or two. */
void cuda_narrow_sums(const struct cuda_narrow_grad *p, int layers, cudaStream_t stream);

/* y[rows,to] = gelu-erf(x[rows,from] in^T + in_bias) out^T + out_bias; the hidden values are not
 * stored. */
struct cuda_hidden {
	int64_t rows;
	int from, hidden, to;
	const float *x;
	const float *in, *in_bias;   /* [hidden,from], [hidden]; bias: NULL = none */
	const float *out, *out_bias; /* [to,hidden], [to] */
	float *y;
};
/* Of both layers and their gradients. */
bool cuda_hidden_knows(int64_t rows, int64_t from, int64_t hidden, int64_t to);
void cuda_hidden(const struct cuda_hidden *p, int processors, cudaStream_t stream);

/* The gradients; the hidden values are computed again. in.x and out.dy are given, in.dy and out.x
 * are not used; both have cuda_hidden_parts parts. */
struct cuda_hidden_grad {
	struct cuda_hidden layers; /* without y */
	struct cuda_narrow_grad in, out;
	float *dx;
	bool add_dx;
	const float *open; /* NULL = none; dx is multiplied by the derivative of gelu-erf there */
};
int cuda_hidden_parts(int processors, int64_t rows);
size_t cuda_hidden_grad_shared(int from, int hidden, int to); /* bytes of a block */
void cuda_hidden_grad(const struct cuda_hidden_grad *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
