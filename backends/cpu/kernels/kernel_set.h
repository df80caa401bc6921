/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Own kernels of the cpu backend: plain functions on raw pointers, row-major, f32 or bf16 storage,
 * f32 arithmetic. One set per target (portable, AVX2, AVX-512), see kernels.h. Kernels start their
 * own threads (OpenMP, the pool that oneDNN uses, too) and never allocate: they use `scratch`,
 * aligned to 64 bytes, of the size that the *_scratch function returns. Bit i of `accumulate`: the
 * kernel adds to the op's output i.
 */
#ifndef JM_CPU_KERNEL_SET_H
#define JM_CPU_KERNEL_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image.h"

struct cpu_vec {
	void *data; /* NULL = absent, for optional operands */
	bool bf16;
};

/* Element (i, j) of a matrix is data[i * ld + j], or data[j * ld + i] if transposed. */
struct cpu_matrix {
	const void *data;
	bool bf16, transposed;
	int64_t ld;
};

enum cpu_act { CPU_RELU, CPU_SILU, CPU_GELU /* the tanh form */, CPU_GELU_QUICK, CPU_GELU_ERF };

/* c[m,n] = a[m,k] b[k,n] (+ c) (+ bias[n]), row-major. */
struct cpu_gemm {
	int64_t m, n, k;
	struct cpu_matrix a, b;
	void *c;
	int64_t ldc;
	bool c_bf16, accumulate;
	const float *bias;
	void *scratch;
	int threads;
};

struct cpu_gemms {
	size_t (*scratch)(const struct cpu_gemm *g);
	void (*gemm)(const struct cpu_gemm *g);
	/* The same for few elements of c, all f32, a transposed, b not, without bias: k is long,
	 * and is summed in f64. */
	size_t (*long_scratch)(const struct cpu_gemm *g);
	void (*long_gemm)(const struct cpu_gemm *g);
	double (*peak)(void); /* FLOP/s of one core, f32 */
};

/* The same for few rows of a, which is not transposed; b is. */
struct cpu_few_rows {
	size_t (*scratch)(const struct cpu_gemm *g);
	void (*gemm)(const struct cpu_gemm *g);
};

/* The same, all f32, for a small batch: few rows of a, or with `outer` few of k. rows: b is
 * transposed; gradient: neither; outer: a is. */
struct cpu_thin {
	size_t (*rows_scratch)(const struct cpu_gemm *g);
	void (*rows)(const struct cpu_gemm *g);
	size_t (*gradient_scratch)(const struct cpu_gemm *g);
	void (*gradient)(const struct cpu_gemm *g);
	size_t (*outer_scratch)(const struct cpu_gemm *g);
	void (*outer)(const struct cpu_gemm *g);
};

/* Heads within a tensor; strides in elements. */
struct cpu_view {
	int64_t offset, batch, row, head;
};

/* q, k, v and their gradients [batch,seq,heads or groups,head], each through its view; y, dy
 * [batch,seq,heads head]; lse [batch,heads,seq] */
struct cpu_attention {
	int64_t batch, seq, keys, heads, groups, head; /* with a causal mask keys = seq */
	double scale;
	bool causal;
	struct cpu_vec q, k, v, y, dy, dq, dk, dv;
	struct cpu_view q_view, k_view, v_view;
	float *lse;
	unsigned accumulate; /* used by grad only */
	void *scratch;
};

struct cpu_attentions {
	size_t (*scratch)(const struct cpu_attention *a, bool grad, int threads);
	void (*attention)(const struct cpu_attention *a, int threads);
	void (*attention_grad)(const struct cpu_attention *a, int threads);
};

/* y = norm(x), or norm(sum) with sum = x + z if sum is given. Without mean it is an RMS norm. */
struct cpu_norm {
	int64_t rows, width;
	double eps;
	struct cpu_vec x, z, sum, y;
	const float *gamma, *beta;
	float *mean, *rstd;
	unsigned accumulate;
	void *scratch;
};

/* Without mean it is the gradient of an RMS norm. dx may be absent if its copy, of either type, is
 * given. */
struct cpu_norm_grad {
	int64_t rows, width;
	struct cpu_vec dy, x, dx, copy;
	const float *gamma, *mean, *rstd;
	float *dgamma, *dbeta;
	unsigned accumulate;
	void *scratch;
};

struct cpu_norms {
	size_t (*scratch)(int64_t width, bool grad, int threads);
	void (*norm)(const struct cpu_norm *p, int threads);
	void (*grad)(const struct cpu_norm_grad *p, int threads);
};

struct cpu_pointwise {
	void (*add)(struct cpu_vec x, struct cpu_vec z, struct cpu_vec y, int64_t n, bool add,
		int threads);
	void (*cast)(struct cpu_vec x, struct cpu_vec y, int64_t n, bool add, int threads);
};

struct cpu_embed {
	int64_t tokens, seq, width;
	const int32_t *ids;
	struct cpu_vec table, pos, y;
	unsigned accumulate;
};

struct cpu_embed_grad {
	int64_t tokens, seq, width, rows, positions;
	const int32_t *ids;
	struct cpu_vec dy;
	float *dtable, *dpos;
	unsigned accumulate;
};

/* x, y [tokens, turned + kept heads, head]; cosine, sine [seq, head / 2] */
struct cpu_rope {
	int64_t tokens, seq, turned, kept, head;
	struct cpu_vec x, y;
	const float *cosine, *sine;
	bool inverse;
	unsigned accumulate;
};

struct cpu_rows {
	void (*embed)(const struct cpu_embed *p, int threads);
	void (*embed_grad)(const struct cpu_embed_grad *p, int threads);
	void (*rope)(const struct cpu_rope *p, int threads);
	/* y[width] (+)= sum over rows of x[rows,width] */
	void (*sum)(struct cpu_vec x, float *y, int64_t rows, int64_t width, bool add, int threads);
};

/* Rows of requests whose keys and values are in pages; shapes as of cache-write and attention-pages
 * (node.h). x, keys, values and y are f32, or all bf16; keys and values may be e4m3. */
struct cpu_paged {
	bool bf16, f8;
	const float *code; /* of attention, if f8: the number that each code stands for [256] */
	int64_t tokens, pages_each, slots, heads, groups, head;
	const double *speed; /* of cache-write [head/2], radians a position */
	double scale;
	const int32_t *position, *request, *page;
	const void *x; /* of cache-write [tokens, (heads + 2 groups) head]; queries of attention */
	void *keys, *values, *y; /* y: queries of cache-write */
	float *scratch;		 /* of attention */
};

struct cpu_pages {
	void (*write)(const struct cpu_paged *p, int threads);
	size_t (*scratch)(const struct cpu_paged *p, int threads);
	void (*attention)(const struct cpu_paged *p, int threads);
};

/* Rows are `stride` elements apart; elements after the classes become 0 in dlogits. */
struct cpu_xent {
	int64_t rows, classes, stride;
	double scale; /* of dlogits, includes `each` */
	double each;  /* weight of a row's loss; rows whose target is below 0 do not count */
	struct cpu_vec logits, dlogits;
	const int32_t *targets;
	float *loss;
	unsigned accumulate;
	void *scratch;
};

struct cpu_losses {
	size_t (*scratch)(int64_t rows, int64_t classes, int threads);
	void (*xent)(const struct cpu_xent *p, int threads);
};

enum cpu_rule { CPU_ADAMW, CPU_ADAM, CPU_SGD };

struct cpu_update {
	enum cpu_rule rule;
	int64_t n, n_decay, first;
	const float *g; /* bf16 if `bf16_g` */
	const float *norm, *now;
	int n_now;	     /* elements of now */
	float *p, *m, *v;    /* bf16 if `bf16`; SGD has no v */
	double beta1, beta2; /* for SGD beta1 is its momentum */
	double eps, weight_decay, clip;
	double unscale; /* 1/S of a loss that was multiplied by S */
	bool nesterov, bf16, bf16_g;
};

struct cpu_optims {
	size_t (*norm_scratch)(int64_t n);
	/* The sum of squares of f32 or bf16. */
	double (*squares)(const float *x, int64_t n, bool bf16, double *scratch, int threads);
	void (*update)(const struct cpu_update *u, int threads);
};

/* x, dx [rows, 2 width]; y, or dy, [rows, width] */
struct cpu_gated {
	int64_t rows, width;
	struct cpu_vec x, y, dx;
	bool accumulate;
};

struct cpu_dropout {
	uint64_t seed;	/* of this step */
	uint32_t below; /* elements with smaller random bits are dropped */
	float scale;	/* factor of kept elements */
	bool accumulate;
};

struct cpu_acts {
	void (*act)(enum cpu_act act, struct cpu_vec x, struct cpu_vec y, int64_t n, bool add,
		int threads);
	/* x: the input of the activation; for relu its output */
	void (*grad)(enum cpu_act act, struct cpu_vec dy, struct cpu_vec x, struct cpu_vec dx,
		int64_t n, bool add, int threads);
	/* of gates: CPU_SILU (swiglu) or CPU_GELU_ERF (geglu) */
	void (*gated)(enum cpu_act act, const struct cpu_gated *p, int threads);
	void (*gated_grad)(enum cpu_act act, const struct cpu_gated *p, int threads);
	void (*dropout)(struct cpu_vec x, struct cpu_vec y, int64_t n,
		const struct cpu_dropout *how, int threads);
};

/* x [n,c,rows,cols] to y [n,seq,c]; backward x is dx and y is dy. seq: pixels, and one more with
 * first */
struct cpu_tokens {
	struct cpu_image x;
	int64_t seq; /* backward only */
	const float *first, *pos;
	struct cpu_vec y;
	float *dfirst, *dpos;
	unsigned accumulate;
	float *scratch; /* [n,c] */
};

/* x [n,seq,width], y [n,width] */
struct cpu_first {
	int64_t n, seq, width;
	struct cpu_vec x, y;
	bool accumulate;
};

/* x, y [n,seq,width], rows [n,places,width]; backward x is dx, y is dy and rows is drows, which may
 * be absent */
struct cpu_put {
	int64_t n, seq, places, width;
	const int32_t *at; /* [n] */
	struct cpu_vec x, rows, y;
	unsigned accumulate;
};

/* x[at[r]] = y[r] for rows of y [n,width], other rows of x [all,width] are 0; or that is added */
struct cpu_spread_rows {
	int64_t n, all, width;
	const int32_t *at;
	struct cpu_vec x, y;
	bool accumulate;
};

struct cpu_sequences {
	void (*tokens)(const struct cpu_tokens *p, int threads);
	void (*tokens_grad)(const struct cpu_tokens *p, int threads);
	void (*first)(const struct cpu_first *p, int threads);
	void (*first_grad)(const struct cpu_first *p, int threads);
	void (*put)(const struct cpu_put *p, int threads);
	void (*put_grad)(const struct cpu_put *p, int threads);
	void (*spread_rows)(const struct cpu_spread_rows *p, int threads);
};

/* y[outer,rows,width] = m[rows,n] x[outer,n,width], of which m is constant and packed: CPU_PANEL
 * rows side by side, the last panel padded with zeros. */
#define CPU_PANEL 8
struct cpu_fixed_product {
	int64_t outer, rows, n, width;
	const float *m;
	struct cpu_vec x, y;
	bool accumulate;
	float *scratch;
};

/*
 * Complex matrices, one for each frequency: element (k, row, column) is at k each + row row_step +
 * column column_step, its imaginary part, negated if it is a conjugate, at `imaginary` behind the
 * real one.
 */
struct cpu_complex {
	struct cpu_vec data;
	int64_t each, row, column, imaginary;
	bool conjugate;
};

/* y[k] = a[k] b[k], a: [rows, n], b: [n, columns]. */
struct cpu_complex_product {
	int64_t frequencies, rows, n, columns;
	struct cpu_complex a, b, y;
	bool accumulate;
	float *scratch;
};

/* y and target [outer,points,channels], norms over points */
struct cpu_relative {
	int64_t outer, points, channels;
	struct cpu_vec y, target, dy;
	double scale, weight; /* of each norm: of its gradient, of the loss */
	unsigned accumulate;
	float *loss;
	double *scratch;
};

struct cpu_spectrals {
	size_t (*fixed_scratch)(const struct cpu_fixed_product *p, int threads); /* bytes */
	void (*fixed)(const struct cpu_fixed_product *p, int threads);
	size_t (*complex_scratch)(const struct cpu_complex_product *p, int threads);
	void (*complex)(const struct cpu_complex_product *p, int threads);
	size_t (*relative_scratch)(const struct cpu_relative *p, int threads);
	void (*relative)(const struct cpu_relative *p, int threads);
};

struct cpu_kernels {
	const char *target; /* "avx512" */
	bool wide;	    /* AVX2 or better: preferred to oneDNN where oneDNN is slow */
	const struct cpu_gemms *gemms;
	const struct cpu_attentions *attentions;
	const struct cpu_norms *norms;
	const struct cpu_pointwise *pointwise;
	const struct cpu_rows *rows;
	const struct cpu_losses *losses;
	const struct cpu_optims *optims;
	const struct cpu_acts *acts;
	const struct cpu_images *images, *images_last; /* last: channels last */
	const struct cpu_pools *pools;
	const struct cpu_groupnorms *groupnorms;
	const struct cpu_sequences *sequences;
	const struct cpu_pages *pages;
	const struct cpu_spectrals *spectrals;
	const struct cpu_few_rows *few_rows;
	const struct cpu_thin *thin;
};

#endif
