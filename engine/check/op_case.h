/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of the comparison of backends with ref: small graphs of each op, for any shape and
 * types. */
#ifndef JM_OP_CASE_H
#define JM_OP_CASE_H

#include "op_kit.h"

/* Types of one run: c computes, a is the residual stream, v the vectors. */
struct types {
	const char *name;
	enum jm_dtype c, a, v;
};

/* The sizes that a case may use: batch, positions, widths, heads. */
struct shape {
	int64_t b, s, c, n;
	int heads, kv_heads;
};

/* An image of d->c channels, somewhat taller than wide. */
#define IMAGE(d) DIMS((d)->b, (d)->c, 7 + (d)->s % 5, 5 + (d)->s % 3)

/* More than 4096 rows of few columns, for which a backend may have a way of its own. */
struct shape backend_many_rows(const struct shape *d);
/* Rows of 256 to 1536 columns, which a backend may give to several warps each. */
struct shape backend_long_rows(const struct shape *d);

/* A case declares operands, nodes and results. accumulate: results are added to what they hold. */
typedef void case_fn(struct kit *k, const struct types *t, const struct shape *d, bool accumulate);

struct backend_case {
	const char *name; /* NULL ends a list */
	case_fn *declare;
};

extern const struct backend_case backend_row_cases[], backend_image_cases[], backend_group_cases[],
	backend_sums_cases[], backend_update_cases[], backend_attention_cases[],
	backend_fp8_cases[], backend_norms_cases[], backend_pages_cases[], backend_parts_cases[],
	backend_spectral_cases[], backend_noise_cases[], backend_special_cases[];
/* A slow case, which tests run only once. */
extern const struct backend_case backend_large_case;

/* f32; bf16 with f32 between blocks; bf16 only; the same for f16; the last row has no name. */
extern const struct types backend_types[];

/* How far a result is from the reference's. */
struct backend_off {
	/* in units of the difference that is allowed (selftest.c); NaN: one is NaN or cannot be
	 * read */
	double worst;
	double value, expected; /* of the element that is off most */
	int64_t at, n;		/* its index, and how many elements are compared */
	int64_t n_beyond;	/* elements that differ by more than is allowed */
};

/* Result r of two kits that were run. */
struct backend_off backend_compare(
	struct kit *tested, struct kit *ref, int r, const struct backend_case *c);
/* The larger of two differences; nothing is larger than NaN. */
double backend_worse(double a, double b);

/* A result of that type, which holds values if it is to be added to. */
struct jm_tensor *backend_result(
	struct kit *k, enum jm_dtype type, bool add, int rank, const int64_t *dim);
/* One number that is not negative; what it is added to is about 2, so that the sum does not cancel
 * to its rounding. */
struct jm_tensor *backend_total(struct kit *k, enum jm_dtype type, bool add);
/* As backend_result, of a parameter's gradient. */
struct jm_tensor *backend_gradient(
	struct kit *k, enum jm_dtype type, bool add, int rank, const int64_t *dim);
/* Operands of a norm's gradient, whose statistics are any numbers; returns the op. centred: of a
 * layer norm. */
enum jm_op backend_norm_grad(struct kit *k, const struct types *t, const struct shape *d,
	bool centred, struct jm_tensor **ret_in);
/* A node whose results are to be compared. */
struct jm_node *backend_node(struct kit *k, enum jm_op op, struct jm_tensor **in,
	struct jm_tensor **out, unsigned accumulate);

/* Makes it attention of queries [batch, heads, seq, depth] over keys and values
 * [batch, seq, kv_heads, depth]. */
void backend_attend(
	struct jm_node *n, const struct shape *d, int64_t seq, int64_t depth, bool causal);

/* Sets the factors of a loss: of its gradient alone, and of both. */
static inline void backend_weigh(struct jm_node *loss, double scale, double weight)
{
	loss->attr.xent.scale = scale;
	loss->attr.xent.weight = weight;
}

#endif
