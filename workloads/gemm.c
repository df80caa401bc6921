/* SPDX-License-Identifier: Apache-2.0 */
/* Products of two matrices, on any device. */
#include <stdio.h>
#include <string.h>

#include "workloads/parts/product.h"

struct gemm {
	struct jm_kernel kernel; /* first */
	struct jm_product product;
};

static const struct jm_option options[] = {
	JM_PRODUCT_OPTIONS(struct gemm, product),
	{.name = "products",
		JM_BIND(JM_INT, struct gemm, product.times),
		.min = 1,
		.max = 1e4,
		.help = "products per step; without it as many as the device should do in 20 "
			"ms"},
	JM_KERNEL_THREADS(struct gemm),
	{0},
};

static void describe(struct gemm *s)
{
	struct jm_work *work = s->kernel.work;
	size_t n;

	jm_product_text(&s->product, work->detail, sizeof(work->detail));
	n = strlen(work->detail);
	snprintf(work->detail + n, sizeof(work->detail) - n, ", %d products per step",
		s->product.times);
}

static int prepare(void *state, struct jm_work *work, struct jm_err *err)
{
	struct gemm *s = state;
	int code = jm_kernel_open(&s->kernel, work, err);

	if (code)
		return code;
	jm_product_declare(&s->product, &s->kernel);
	s->kernel.each.items = s->product.times;
	describe(s);
	code = jm_kernel_ready(&s->kernel, err);
	return code ? code : jm_product_write(&s->product, err);
}

static int gemm_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_kernel_setup(
		work, sizeof(struct gemm), prepare, jm_kernel_teardown, ret_state, err);
}

static int gemm_verify(void *state, struct jm_err *err)
{
	const struct gemm *s = state;

	return jm_product_verify(&s->product, err);
}

const struct jm_workload jm_workload_gemm = {
	.name = "gemm",
	.summary = "matrix products",
	.unit = "product",
	.options = options,
	.check = jm_kernel_check_products,
	.setup = gemm_setup,
	.step = jm_kernel_step,
	.finish = jm_kernel_finish,
	.verify = gemm_verify,
	.teardown = jm_kernel_teardown,
};
