/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend's own kernels: each function starts one or a few on a stream and returns; errors are
 * reported by cudaGetLastError. The comment at the top of each file gives the shapes. This header
 * is valid C and C++. Kernels access vectors of 16 bytes where widths allow it; sums are in f32 or
 * f64, always in the same order.
 */
#ifndef JM_CUDA_KERNELS_H
#define JM_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/graph/accumulate.h"
#include "tensor_map.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The types of elements that kernels read and write. */
enum cuda_type { CUDA_F32, CUDA_BF16, CUDA_F16 };

/* An operand. data NULL: absent. */
struct cuda_vec {
	void *data;
	enum cuda_type type;
};

/* ---- pointwise.cu ---------------------------------------------------------------------------- */

enum cuda_map {
	CUDA_GELU,
	CUDA_GELU_ERF,
	CUDA_GELU_QUICK,
	CUDA_SILU,
	CUDA_RELU,
	CUDA_GELU_GRAD,
	CUDA_GELU_ERF_GRAD,
	CUDA_GELU_QUICK_GRAD,
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
	struct cuda_vec
		again; /* the gradient of gelu-erf: gelu-erf(x) as well, which may replace dy */
};
/* True if there is a kernel for the types: a and b are equal except for add and cast, and y equals
 * a except for cast. */
bool cuda_pointwise_knows(const struct cuda_pointwise *p);
void cuda_pointwise(const struct cuda_pointwise *p, cudaStream_t stream);

/* The gradient writes dx and, if it is given, y as well, which may replace dy; the op itself y. */
struct cuda_gated {
	int64_t rows, width;
	struct cuda_vec x, dy, y, dx;
	bool gelu; /* geglu; else swiglu */
	bool accumulate;
	float *sums; /* [2 width], of the gradient of geglu in packs: the sums of dx over the rows;
		      * NULL = none */
	bool add_sums;
	int parts;
	float *partial; /* [parts, 2 width]: scratch for sums */
};
int cuda_gated_parts(int processors, int64_t rows, int64_t width);
void cuda_gated(const struct cuda_gated *p, cudaStream_t stream);

/* All operands are plain. */
struct cuda_dropout {
	int64_t n;
	struct cuda_vec x, y;
	const int32_t *now;
	uint64_t seed, least; /* an element is kept if its 32 random bits are >= least */
	float scale;
	bool accumulate;
};
void cuda_dropout(const struct cuda_dropout *p, cudaStream_t stream);

/* Copies elements between dense layouts; dims and strides are in the order of y, slowest first. */
struct cuda_reorder {
	int rank;
	int64_t dim[6], x_stride[6], y_stride[6];
	struct cuda_vec x, y;
	bool accumulate;
};
void cuda_reorder(const struct cuda_reorder *p, cudaStream_t stream);

/* Parts[pieces,width] that lie side by side in the rows of whole[pieces,sum of widths]; all are of
 * one type. A part without data is left out. */
struct cuda_concat {
	int64_t pieces, row; /* row: elements of the whole tensor from one piece to the next */
	int n;
	int64_t width[4], first[4]; /* first: the element of a row at which the part begins */
	struct cuda_vec part[4], whole;
	bool split;	     /* from the whole tensor to the parts */
	unsigned accumulate; /* bit i: part i is added to its destination */
};
void cuda_concat(const struct cuda_concat *p, cudaStream_t stream);

/* ---- norm.cu --------------------------------------------------------------------------------- */

#define CUDA_NORM_WIDEST 24576 /* elements of a row that fit shared memory as f32 */

/* x is the residual stream, of f32 or y's type; b, of y's type, is added to it first if it is
 * given. */
struct cuda_norm {
	int64_t rows, width;
	float eps;
	bool centred; /* layer norm; else RMS norm, without mean and beta */
	struct cuda_vec x, b, y;
	struct cuda_vec sum; /* x + b, of x's type; absent: not stored */
	const float *gamma, *beta;
	float *mean, *rstd;
};
bool cuda_norm_knows(const struct cuda_norm *p);
void cuda_norm(const struct cuda_norm *p, cudaStream_t stream);

struct cuda_norm_grad {
	int64_t rows, width;
	struct cuda_vec dy, x, dx;
	bool centred; /* layer norm; else RMS norm, without mean and dbeta */
	const float *gamma, *mean, *rstd;
	float *dgamma, *dbeta;
	float *sums; /* [width], of layer norm: the sum of dx over the rows; NULL = none */
	bool add_dx, add_dgamma, add_dbeta, add_sums;
	int blocks;
	float *partial; /* [blocks,vectors,width]: the sums for dgamma, in layer norm for dbeta, with sums for these */
};
/* The blocks that run at a time. */
int cuda_norm_grad_blocks(int processors, const struct cuda_norm_grad *p);
bool cuda_norm_grad_knows(const struct cuda_norm_grad *p);
void cuda_norm_grad(const struct cuda_norm_grad *p, cudaStream_t stream);

/* ---- rope.cu --------------------------------------------------------------------------------- */

/* angles: cosines, then sines, [seq,depth/2] each. x and y have one type and may be the same
 * memory. */
struct cuda_rope {
	int64_t tokens, seq;
	int heads, turned, depth;
	struct cuda_vec x, y;
	const float *angles;
	bool inverse, accumulate;
};
void cuda_rope(const struct cuda_rope *p, cudaStream_t stream);

/* ---- loss.cu --------------------------------------------------------------------------------- */

/* logits and dlogits of one type, rows `stride` elements apart; dlogits absent: loss only. */
struct cuda_xent {
	int64_t rows, classes, stride;
	float scale,
		weight; /* of dlogits, which includes weight; of the loss. Both are divided by the rows that count */
	int rows_all; /* of all calls of the loss */
	const int *
		counted; /* how many of these rows have a target of 0 or more, by cuda_count_targets; NULL = all */
	const float *loss_scale; /* another factor of the gradient, read during the run; NULL = 1 */
	struct cuda_vec logits, dlogits;
	const int32_t *targets;
	float *loss, *losses; /* losses[rows]: scratch; loss NULL: another call adds more rows */
	/* rows of earlier calls: their losses precede these in `losses`, and the mean includes
	 * them */
	int64_t rows_before;
	bool add_loss, add_dlogits;
	bool clusters;	     /* the GPU has clusters of blocks: compute capability 9.0 and later */
	size_t shared_block; /* bytes of shared memory that a block may have */
};
void cuda_xent(const struct cuda_xent *p, cudaStream_t stream);
void cuda_count_targets(const int32_t *targets, int64_t rows, int *ret, cudaStream_t stream);
/* share (+)= the share of rows in which the target has the largest of logits[rows,classes]; among
 * equal logits the first one is the largest. */
void cuda_top1(struct cuda_vec logits, const int32_t *targets, int64_t rows, int64_t classes,
	float *share, bool add, cudaStream_t stream);

/* ---- update.cu ------------------------------------------------------------------------------- */

#define CUDA_NORM_PARTS                                                                            \
	1056 /* blocks of the first step, the same on every device, so that the bits are equal */

/* The norm of x and, if it is given, of x and `more`. */
struct cuda_norm_all {
	int64_t n, n_more;
	struct cuda_vec x, more;
	float *y;
	bool accumulate;
	double *partial; /* [2,CUDA_NORM_PARTS] */
};
void cuda_norm_all(const struct cuda_norm_all *p, cudaStream_t stream);

enum cuda_rule { CUDA_ADAMW, CUDA_ADAM, CUDA_SGD };

/* Updates as engine/graph/op_list.h defines them; p, m and v have one type; beta1 is the momentum
 * of sgd. */
struct cuda_update {
	enum cuda_rule rule;
	int64_t n, n_decay, first; /* first: even */
	struct cuda_vec g, p, m, v;
	struct cuda_vec
		copy; /* of p[copy_first .. copy_first + n_copy - 1] in 16 bits; absent: none */
	int64_t copy_first, n_copy; /* copy_first: a multiple of 8 */
	const float *norm, *now, *scale;
	int n_now;
	float beta1, beta2, one_beta1, one_beta2, eps, weight_decay, clip;
	bool nesterov;
};
void cuda_update(const struct cuda_update *p, cudaStream_t stream);
/* e[n], the mean of p[n] over updates; weight: of p, on the device, as norm, which may be NULL. */
void cuda_average(struct cuda_vec p, const float *weight, const float *norm, float *e, int64_t n,
	cudaStream_t stream);

/* ---- tokens.cu ------------------------------------------------------------------------------- */

struct cuda_embed {
	int64_t tokens, seq, width;
	const int32_t *ids;
	struct cuda_vec table, pos, y; /* table and pos of one type */
	bool accumulate;
};
void cuda_embed(const struct cuda_embed *p, cudaStream_t stream);

/* The gradient of the table only. Tokens are summed in blocks of CUDA_EMBED_RANKS. */
#define CUDA_EMBED_RANKS 64
struct cuda_embed_grad {
	int64_t tokens, width, rows;
	const int32_t *ids;
	struct cuda_vec dy, dtable;
	bool add_table;
	int32_t *order; /* [tokens]: scratch */
	float *parts;	/* [blocks,2,width]: scratch */
};
void cuda_embed_grad(const struct cuda_embed_grad *p, cudaStream_t stream);

/* Sums the first `rows` rows of x[batch,seq,width] over the batch into y[rows,width]. */
struct cuda_batch_sum {
	int64_t batch, seq, rows, width;
	struct cuda_vec x, y;
	bool accumulate;
};
void cuda_batch_sum(const struct cuda_batch_sum *p, cudaStream_t stream);

/* x: an image with strides in elements between images, channels and pixels. y: a sequence. grad:
 * copies from y to x. */
struct cuda_tokens {
	int64_t batch, seq, width, image, channel, pixel;
	int behind; /* 1: the class token precedes the pixels */
	struct cuda_vec x, y;
	const float *first, *pos;
	bool grad, accumulate;
};
/* y has the type of x, or f32. */
void cuda_tokens(const struct cuda_tokens *p, cudaStream_t stream);

/* x[batch,seq,width] and y[batch,width] have one type. grad: copies from y to x. */
struct cuda_first {
	int64_t batch, seq, width, places;
	struct cuda_vec x, y;
	bool grad, accumulate;
};
void cuda_first(const struct cuda_first *p, cudaStream_t stream);

/* x and y [batch,seq,width] have one type, and rows [batch,places,width] that type, or one of both
 * is f32. grad: y is dy, x is dx, which may replace dy, and rows is drows, which may be absent. */
struct cuda_put {
	int64_t batch, seq, places, width;
	const int32_t *at; /* [batch] */
	struct cuda_vec x, rows, y;
	bool grad, accumulate, add_rows;
};
void cuda_put(const struct cuda_put *p, cudaStream_t stream);

/* ---- attention.cu ---------------------------------------------------------------------------- */

/* Elements of a head; what wider ones need is in softmax.h. */
#define CUDA_ATTENTION_WIDEST 256

/* As struct jm_view: head h of position s of sequence b is at data + b batch + s row + h head. */
struct cuda_heads {
	struct cuda_vec data;
	int64_t batch, row, head;
};

/* All vectors have one type; y and lse are results of attention and operands of its gradient. */
struct cuda_attention {
	int64_t batch, seq, keys; /* causal: keys = seq */
	int heads, groups, depth;
	float scale;
	bool causal, accumulate; /* dq, dk and dv are added to */
	struct cuda_heads q, k, v, dq, dk, dv;
	struct cuda_vec y, dy;
	float *lse;
	float *delta; /* [batch,heads,seq]: scratch of the gradient */
};
/* depth is CUDA_ATTENTION_WIDEST at most. */
void cuda_attention(const struct cuda_attention *p, cudaStream_t stream);
void cuda_attention_grad(const struct cuda_attention *p, cudaStream_t stream);

/* ---- few_rows.cu ----------------------------------------------------------------------------- */

#define CUDA_FEW_ROWS 16 /* at most */

/* y[rows,to] = x[rows,from] w[to,from]^T; all of one type of 16 bits, or, with xs and ws, x and w
 * in e4m3. */
struct cuda_few_rows {
	int rows, from, to;
	struct cuda_vec x, w, y;
	const float *xs, *ws; /* factors of the rows of x and w; NULL = they are of y's type */
	bool w_stays;	      /* the kernel before does not write w */
};
bool cuda_few_rows_knows(const struct cuda_few_rows *p);
void cuda_few_rows(const struct cuda_few_rows *p, cudaStream_t stream);

/* ---- pages.cu -------------------------------------------------------------------------------- */

#define CUDA_PAGES_GROUP 8 /* heads that share keys and values, at most, on tensor cores */

/* x, q, keys, values and y have one type, or f8: keys and values are in e4m3. Keys and values:
 * [pages,slots,groups,depth]. */
struct cuda_pages {
	int64_t rows, each; /* each: pages of a request, at most */
	bool f8;
	int heads, groups, depth, slots;
	float scale;
	const int32_t *position, *request, *page;
	bool late; /* the kernel before may have written positions or requests */
	struct cuda_vec x, q, keys, values, y;
	const float *angles; /* of positions 0 to positions - 1: cosines, then sines */
	int64_t positions;
	int splits;   /* blocks that share the keys of a query */
	float *parts; /* scratch, of cuda_pages_parts bytes */
	/* Set by cuda_attention_pages: positions of a tile, and its most rows that are few. */
	int span, few;
};
void cuda_cache_write(const struct cuda_pages *p, cudaStream_t stream);
/* depth is CUDA_ATTENTION_WIDEST at most. */
int cuda_pages_splits(int processors, const struct cuda_pages *p);
size_t cuda_pages_parts(const struct cuda_pages *p);
/* Whether pages_tiles.cu can compute runs of many rows, on compute capability 9.0. */
bool cuda_pages_runs(const struct cuda_pages *p);
/* boxes: NULL = without pages_tiles.cu. */
struct cuda_page_boxes;
void cuda_attention_pages(
	const struct cuda_pages *p, const struct cuda_page_boxes *boxes, cudaStream_t stream);

/* ---- pages_tiles.cu -------------------------------------------------------------------------- */

#define CUDA_PAGES_RUN 64 /* positions */

/* q[rows,heads depth] in boxes of 64 rows, keys and values[pages slots,groups depth] of 16; all of
 * 64 columns of 16 bits. Codes of e4m3 are described in pairs; those of values are not used. */
struct cuda_page_boxes {
	struct cuda_tensor_map q, keys, values;
};
/* Tiles of more than p->few rows. */
void cuda_attention_runs(
	const struct cuda_pages *p, const struct cuda_page_boxes *boxes, cudaStream_t stream);

/* y[rows,width], row r is row at[r] of x; of one type. */
struct cuda_rows {
	int64_t rows, width;
	const int32_t *at;
	struct cuda_vec x, y;
};
void cuda_rows(const struct cuda_rows *p, cudaStream_t stream);
/* y[i] = ids[i], or token[-1 - ids[i]] where that is below 0. */
void cuda_made_ids(
	int64_t n, const int32_t *ids, const int32_t *token, int32_t *y, cudaStream_t stream);

/* ---- sample.cu ------------------------------------------------------------------------------- */

/*
 * token[row] of the first `classes` of logits[rows,width]: the first largest; with rule[rows,3]
 * (temperature, share, count) and draw[rows,2] (a number of 64 bits, its low word first) one drawn
 * from those that the rule keeps where the temperature is above 0.
 */
struct cuda_sample {
	int64_t rows, width;
	int classes;
	struct cuda_vec logits;
	const float *rule; /* NULL: the largest in all rows */
	const uint32_t *draw;
	int32_t *token;
};
void cuda_sample(const struct cuda_sample *p, cudaStream_t stream);

/* ---- attention_tiles.cu ---------------------------------------------------------------------- */

/*
 * The gradient of attention in bf16 or f16 on compute capability 9.0; depth is 64, 128 or 256. Same
 * results in every run. angles, as of cuda_rope: the gradients are those of queries and keys before
 * they were turned by them.
 */
struct cuda_attention_part {
	int64_t batch, row; /* elements from one to the next */
	void *grad;
};
/* What the blocks share of the kernel that computes scores once (attention_once.cuh). */
struct cuda_attention_once {
	int slots; /* groups of heads that have sums */
	int side;  /* groups of heads that begin at the same time */
	int blocks;
	float *sums; /* scratch; NULL = scores are computed twice, by two kernels */
	int *counts; /* after the sums */
	int64_t n_sums, n_counts;
};
struct cuda_attention_tiles {
	int batch, seq, keys, heads, groups, depth;
	enum cuda_type type; /* bf16 or f16 */
	float scale;
	bool causal;			    /* keys = seq */
	struct cuda_tensor_map boxes[4];    /* of q, k, v and dy: dims [batch,rows,heads depth] */
	struct cuda_attention_part part[3]; /* q, k and v */
	const void *y, *dy;
	const float *lse;
	const float *angles; /* NULL = not turned */
	float *rows;	     /* scratch of cuda_tiles_scratch bytes (attention_tiles.h) */
	struct cuda_attention_once once;
};
void cuda_attention_tiles(const struct cuda_attention_tiles *p, cudaStream_t stream);
/* The positions of a sequence in the scratch: whole tiles. */
static inline int64_t cuda_attention_padded(int64_t seq)
{
	return (seq + 127) / 128 * 128;
}

/* The mean of (y - target)^2 over n elements, and its gradient (y - target) 2 scale / n; in
 * loss.cu. */
struct cuda_mse {
	int64_t n;
	/* dy has y's type, absent: loss only; target has y's type or f32 */
	struct cuda_vec y, target, dy;
	float scale, weight;	 /* of dy, which includes weight; of the loss */
	const float *loss_scale; /* another factor of the gradient, read during the run; NULL = 1 */
	float *loss;
	double *partial; /* [CUDA_NORM_PARTS]: scratch */
	bool add_loss, add_dy;
};
void cuda_mse(const struct cuda_mse *p, cudaStream_t stream);

/* ---- quantize.cu ----------------------------------------------------------------------------- */

/* As engine/graph/op_list.h defines the op. before: the row of ranges that is read; row: the one
 * that is written; either may be NULL. */
struct cuda_quantize {
	int64_t n;
	struct cuda_vec x;
	uint8_t *y;
	bool e5m2; /* else e4m3 */
	float top; /* the largest number of the type */
	const float *before;
	float *row, *inverse;
	int blocks;
	float *partial; /* [2,blocks]: scratch */
};
int cuda_quantize_blocks(int processors, int64_t n);
void cuda_quantize(const struct cuda_quantize *p, cudaStream_t stream);
/* Rows of width elements, each scaled by its own maximum, in e4m3. */
struct cuda_quantize_rows {
	int64_t rows, width;
	struct cuda_vec x; /* [rows,width], or [rows,2 width] where gated */
	bool gated;	   /* the result of swiglu is quantized */
	/* the RMS norm of x, or of the sum of x and b, is quantized; NULL = no norm */
	const float *gamma;
	float eps, *rstd;
	struct cuda_vec b, sum; /* of x's type; sum: x + b, written where it is given */
	/* b, or x where gated, is a product in 8 bits without its factors: [rows] of its rows and
	 * of its columns; NULL = it has none */
	const float *xs, *ws;
	uint8_t *y;
	float *inverse; /* [rows] */
};
bool cuda_quantize_rows_knows(const struct cuda_quantize_rows *p);
void cuda_quantize_rows(const struct cuda_quantize_rows *p, cudaStream_t stream);
/* ranges[rows,2+length] */
void cuda_rescale(float *ranges, int64_t rows, int64_t length, cudaStream_t stream);
/* y[columns,rows] = the transpose of x[rows,columns], in bytes; rows and columns are multiples of
 * 4. */
void cuda_transpose_bytes(
	const void *x, void *y, int64_t rows, int64_t columns, cudaStream_t stream);

/* ---- columns.cu ------------------------------------------------------------------------------ */

/* y[width] = the sums over the rows of x[rows,width], which are `stride` elements apart. */
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
/* y from the partial sums alone. */
void cuda_columns_finish(const struct cuda_columns *p, cudaStream_t stream);

/* ---- clock.cu -------------------------------------------------------------------------------- */

/* Host memory that the device can access; the host's requests and the device's answers are in
 * separate cache lines. */
struct cuda_exchange {
	uint32_t asked __attribute__((aligned(128)));
	uint64_t time __attribute__((aligned(128)));
	uint32_t told;
};
/* Writes %globaltimer in ns to *to when the stream reaches this point. */
void cuda_stamp_start(uint64_t *to, cudaStream_t stream);
/* Answers round 1, 2... when `asked` has that value; ends after a time limit without a request. */
void cuda_exchange_start(struct cuda_exchange *x, uint32_t rounds, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
