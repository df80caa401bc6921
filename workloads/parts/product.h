/* SPDX-License-Identifier: Apache-2.0 */
/* A product of two matrices, y[m,n] = x[m,k] w[n,k]^T, computed again and again; what the operands
 * hold is an option, because power depends on it. */
#ifndef JM_WORK_PRODUCT_H
#define JM_WORK_PRODUCT_H

#include "kernel_run.h"

struct jm_product {
	struct jm_kernel *kernel; /* whose graph it is */
	int64_t m, n, k;
	int times; /* per step; 0 = by the device, until it is declared */
	struct jm_tensor *x, *w, *y;
	struct jm_operand x_values, w_values;
};

#define JM_PRODUCT_SIDE(STRUCT, FIELD, side, what)                                                 \
	{                                                                                          \
		.name = #side, JM_BIND(JM_INT, STRUCT, FIELD.side), .min = 1, .max = 1e7,          \
		.fallback = "4096", .help = what                                                   \
	}
/* Shape and operands of the struct jm_product FIELD of STRUCT. */
#define JM_PRODUCT_OPTIONS(STRUCT, FIELD)                                                          \
	JM_PRODUCT_SIDE(STRUCT, FIELD, m, "rows of the result"),                                   \
		JM_PRODUCT_SIDE(STRUCT, FIELD, n, "columns of the result"),                        \
		JM_PRODUCT_SIDE(STRUCT, FIELD, k, "length of the sums"),                           \
		{.name = "data",                                                                   \
			JM_BIND(JM_CHOICE, STRUCT, FIELD.x_values.kind),                           \
			.choices = jm_values_kinds,                                                \
			.fallback = "random",                                                      \
			.help = "what the operands hold: normal values, zeros, ones, or normal "   \
				"values of which a share is zero; the power depends on it"},       \
	{                                                                                          \
		.name = "sparsity", JM_BIND(JM_REAL, STRUCT, FIELD.x_values.share), .min = 0,      \
		.max = 1, .fallback = "0.5", .needs = "data",                                      \
		.help = "the share of elements that are zero with --data sparse"                   \
	}

/* Its tensors and nodes, in the kernel's graph. */
void jm_product_declare(struct jm_product *p, struct jm_kernel *kernel);
void jm_product_text(const struct jm_product *p, char *ret, size_t size); /* for the record */
int jm_product_write(struct jm_product *p, struct jm_err *err);		  /* its operands */
/* Entries of the result against f64; JM_ERANGE: one is wrong. */
int jm_product_verify(const struct jm_product *p, struct jm_err *err);

#endif
