/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own kernels: each function starts one or a few on a stream and returns; an error is what
 * cudaGetLastError says then. Shapes are in the comment on top of each file. Read as C and as C++.
 * Vectors of 16 bytes are used where widths allow; sums are in f32 or better, always in the same order.
 */
#ifndef JM_CUDA_KERNELS_H
#define JM_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Types of elements that kernels read and write. */
enum cuda_type { CUDA_F32, CUDA_BF16, CUDA_F16 };

/* An operand. data NULL: absent. */
struct cuda_vec {
	void *data;
	enum cuda_type type;
};

/* ---- pointwise.cu ------------------------------------------------------------------------------------- */

enum cuda_map {
	CUDA_GELU,
	CUDA_GELU_ERF,
	CUDA_SILU,
	CUDA_RELU,
	CUDA_GELU_GRAD,
	CUDA_GELU_ERF_GRAD,
	CUDA_SILU_GRAD,
	CUDA_RELU_GRAD,
	CUDA_ADD,
	CUDA_CAST,
};

/* y = f(a), or f(a, b) for gradients (dy, x) and sums; of n elements. */
struct cuda_pointwise {
	enum cuda_map map;
	int64_t n;
	struct cuda_vec a, b, y;
	bool accumulate;
};
/* Types: a and b alike but for add and cast; y as a but for cast. */
bool cuda_pointwise_knows(const struct cuda_pointwise *p);
void cuda_pointwise(const struct cuda_pointwise *p, cudaStream_t stream);

/* dx: of the gradient; else y. */
struct cuda_swiglu {
	int64_t rows, width;
	struct cuda_vec x, dy, y, dx;
	bool accumulate;
};
void cuda_swiglu(const struct cuda_swiglu *p, cudaStream_t stream);

/* Plain operands. */
struct cuda_dropout {
	int64_t n;
	struct cuda_vec x, y;
	const int32_t *now;
	uint64_t seed, least; /* kept: the 32 bits are >= least */
	float scale;
	bool accumulate;
};
void cuda_dropout(const struct cuda_dropout *p, cudaStream_t stream);

/* Copies elements between dense layouts: dim and strides from the slowest to the fastest of y. */
struct cuda_reorder {
	int rank;
	int64_t dim[6], x_stride[6], y_stride[6];
	struct cuda_vec x, y;
	bool accumulate;
};
void cuda_reorder(const struct cuda_reorder *p, cudaStream_t stream);

/* ---- norm.cu ------------------------------------------------------------------------------------------- */

#define CUDA_NORM_WIDEST 24576 /* a row as f32 in shared memory */

/* x is the residual stream (f32 or as y); b, of y's type, is added to it first where it is given. */
struct cuda_norm {
	int64_t rows, width;
	float eps;
	bool centred; /* layer norm; else RMS norm, without mean and beta */
	struct cuda_vec x, b, y;
	struct cuda_vec sum; /* x + b, of x's type; absent: it has no reader */
	const float *gamma, *beta;
	float *mean, *rstd;
};
bool cuda_norm_knows(const struct cuda_norm *p);
void cuda_norm(const struct cuda_norm *p, cudaStream_t stream);

struct cuda_norm_grad {
	int64_t rows, width;
	struct cuda_vec dy, x, dx;
	struct cuda_vec copy;		  /* dx once more, in any type; absent: not wanted */
	const float *gamma, *mean, *rstd; /* mean NULL: RMS norm */
	float *dgamma, *dbeta;
	bool add_dx, add_dgamma, add_dbeta;
	int blocks;
	float *partial; /* [blocks,2,width] */
};
int cuda_norm_grad_blocks(int processors, int64_t rows, int64_t width);
bool cuda_norm_grad_knows(const struct cuda_norm_grad *p);
void cuda_norm_grad(const struct cuda_norm_grad *p, cudaStream_t stream);

/* ---- embed.cu ------------------------------------------------------------------------------------------ */

struct cuda_embed {
	int64_t tokens, seq, width;
	const int32_t *ids;
	struct cuda_vec table, pos, y; /* table and pos of one type */
	bool accumulate;
};
void cuda_embed(const struct cuda_embed *p, cudaStream_t stream);

/* Of the table alone. */
struct cuda_embed_grad {
	int64_t tokens, width, rows;
	const int32_t *ids;
	struct cuda_vec dy, dtable;
	bool add_table;
	int32_t *order; /* [tokens]: scratch */
};
void cuda_embed_grad(const struct cuda_embed_grad *p, cudaStream_t stream);

/* The first `rows` rows of x[batch,seq,width], summed over the batch into y[rows,width]. */
struct cuda_batch_sum {
	int64_t batch, seq, rows, width;
	struct cuda_vec x, y;
	bool accumulate;
};
void cuda_batch_sum(const struct cuda_batch_sum *p, cudaStream_t stream);

/* angles: cosines, then sines, [seq,depth/2] each. x and y of one type; they may be the same. */
struct cuda_rope {
	int64_t tokens, seq;
	int heads, turned, depth;
	struct cuda_vec x, y;
	const float *angles;
	bool inverse, accumulate;
};
void cuda_rope(const struct cuda_rope *p, cudaStream_t stream);

/* ---- loss.cu ------------------------------------------------------------------------------------------- */

/* logits and dlogits of one type, rows `stride` elements apart; dlogits absent: loss only. */
struct cuda_xent {
	int64_t rows, classes, stride;
	float scale;		 /* of dlogits */
	const float *loss_scale; /* that too, read when it runs; NULL = 1 */
	struct cuda_vec logits, dlogits;
	const int32_t *targets;
	float *loss, *losses; /* losses[rows]: scratch; loss NULL: more rows are to come */
	int64_t rows_before; /* whose losses lie before those of these rows, and count in the mean */
	bool add_loss, add_dlogits;
};
void cuda_xent(const struct cuda_xent *p, cudaStream_t stream);
/* share (+)= of rows whose target has the largest of logits[rows,classes], the first of equals. */
void cuda_top1(struct cuda_vec logits, const int32_t *targets, int64_t rows, int64_t classes,
	float *share, bool add, cudaStream_t stream);

/* ---- update.cu ----------------------------------------------------------------------------------------- */

#define CUDA_NORM_PARTS                                                                            \
	1056 /* blocks of the first step, whatever the device: the same bits on all */

/* Of x and, where it is given, more. */
struct cuda_norm_all {
	int64_t n, n_more;
	struct cuda_vec x, more;
	float *y;
	bool accumulate;
	double *partial; /* [2,CUDA_NORM_PARTS] */
};
void cuda_norm_all(const struct cuda_norm_all *p, cudaStream_t stream);

enum cuda_rule { CUDA_ADAMW, CUDA_ADAM, CUDA_SGD };

/* As the ops of engine/backend.h; p, m and v are of one type; sgd's momentum is beta1. */
struct cuda_update {
	enum cuda_rule rule;
	int64_t n, n_decay;
	struct cuda_vec g, p, m, v;
	const float *norm, *now, *scale;
	int n_now;
	float beta1, beta2, one_beta1, one_beta2, eps, weight_decay, clip;
	bool nesterov;
};
void cuda_update(const struct cuda_update *p, cudaStream_t stream);

/* ---- tokens.cu ----------------------------------------------------------------------------------------- */

/* x: image; elements between images, channels and pixels of it. y: sequence. grad: from y to x. */
struct cuda_tokens {
	int64_t batch, seq, width, image, channel, pixel;
	int behind; /* 1: the class token is in front */
	struct cuda_vec x, y;
	const float *first, *pos;
	bool grad, accumulate;
};
/* Types: y as x, or f32. */
void cuda_tokens(const struct cuda_tokens *p, cudaStream_t stream);

/* x[batch,seq,width], y[batch,width] of one type. grad: from y to x. */
struct cuda_first {
	int64_t batch, seq, width, places;
	struct cuda_vec x, y;
	bool grad, accumulate;
};
void cuda_first(const struct cuda_first *p, cudaStream_t stream);

/* ---- attention.cu -------------------------------------------------------------------------------------- */

#define CUDA_ATTENTION_WIDEST 256 /* of a head */

/* All vectors of one type; y and lse are results forwards and operands backwards. */
struct cuda_attention {
	int64_t batch, seq;
	int heads, groups, depth;
	float scale;
	bool causal, accumulate; /* dqkv is added to */
	struct cuda_vec qkv, y, dy, dqkv;
	float *lse;
	float *delta; /* [batch,heads,seq]: scratch of the gradient */
};
void cuda_attention(const struct cuda_attention *p, cudaStream_t stream);
void cuda_attention_grad(const struct cuda_attention *p, cudaStream_t stream);

/* The mean of (y - target)^2 over n elements, and 2 scale / n of the differences; of loss.cu. */
struct cuda_mse {
	int64_t n;
	struct cuda_vec y, target, dy; /* dy as y, absent: loss only; target as y, or f32 */
	float scale;		       /* of dy */
	const float *loss_scale;       /* that too, read when it runs; NULL = 1 */
	float *loss;
	double *partial; /* [CUDA_NORM_PARTS]: scratch */
	bool add_loss, add_dy;
};
void cuda_mse(const struct cuda_mse *p, cudaStream_t stream);

/* ---- quantize.cu --------------------------------------------------------------------------------------- */

/* As the op of engine/backend.h. before: the row of the ranges as an operand, row: as a result; either may be NULL. */
struct cuda_quantize {
	int64_t n;
	struct cuda_vec x;
	uint8_t *y;
	bool e5m2; /* else e4m3 */
	float top; /* its largest number */
	const float *before;
	float *row, *inverse;
	int blocks;
	float *partial; /* [2,blocks]: scratch */
};
int cuda_quantize_blocks(int processors, int64_t n);
void cuda_quantize(const struct cuda_quantize *p, cudaStream_t stream);
/* ranges[rows,2+length] */
void cuda_rescale(float *ranges, int64_t rows, int64_t length, cudaStream_t stream);
/* y[columns,rows] = x[rows,columns] of bytes; both are multiples of 4. */
void cuda_transpose_bytes(
	const void *x, void *y, int64_t rows, int64_t columns, cudaStream_t stream);

/* ---- columns.cu ---------------------------------------------------------------------------------------- */

/* y[width] = sums over the rows of x[rows,width], which are `stride` elements apart. */
struct cuda_columns {
	int64_t rows, width, stride;
	struct cuda_vec x;
	float *y;
	bool accumulate;
	int parts;
	float *partial; /* [parts,width]: scratch */
};
int cuda_column_parts(int processors, int64_t rows, int64_t width);
void cuda_columns(const struct cuda_columns *p, cudaStream_t stream);

/* ---- clock.cu ------------------------------------------------------------------------------------------ */

/* Host memory that the device reaches: what the host asks and the device tells, in cache lines of their own. */
struct cuda_exchange {
	uint32_t asked __attribute__((aligned(128)));
	uint64_t time __attribute__((aligned(128)));
	uint32_t told;
};
/* *to becomes %globaltimer, ns, when the stream has come there. */
void cuda_stamp_start(uint64_t *to, cudaStream_t stream);
/* Answers round 1, 2... when `asked` becomes that; ends by itself where the host is silent. */
void cuda_exchange_start(struct cuda_exchange *x, uint32_t rounds, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
