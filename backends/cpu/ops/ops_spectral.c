/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transforms of fields, products of their frequencies and the relative loss: turns nodes into the
 * kernels' arguments. A transform is one product with a constant matrix for each axis, from the
 * last to the first and back.
 */
#include <stdlib.h>

#include "backends/cpu/device/cpu.h"
#include "engine/graph/dft_step.h"

/* ---- transforms ------------------------------------------------------------------------------ */

static struct cpu_fixed_product product_of(const struct jm_dft_step *s)
{
	return (struct cpu_fixed_product){
		.outer = s->outer, .rows = s->rows, .n = s->n, .width = s->width};
}

/* The matrices of all products, one behind the other, each in panels. */
struct matrices {
	float *m[JM_AXES];
	float data[];
};

static size_t panels(const struct cpu_fixed_product *p)
{
	return (size_t)((p->rows + CPU_PANEL - 1) / CPU_PANEL * CPU_PANEL * p->n);
}

static void fill(const struct jm_dft_step *s, float *m)
{
	for (int64_t row = 0; row < s->rows; row++)
		for (int64_t i = 0; i < s->n; i++)
			m[row / CPU_PANEL * CPU_PANEL * s->n + i * CPU_PANEL + row % CPU_PANEL] =
				(float)jm_dft_element(s, row, i);
}

static int build_transform(const struct cpu_dev *dev, struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	size_t at[JM_AXES + 1] = {0};
	struct matrices *all;

	(void)dev;
	for (int i = 0; i < jm_dft_steps(n); i++) {
		struct jm_dft_step s = jm_dft_step(n, i);
		struct cpu_fixed_product p = product_of(&s);

		at[i + 1] = at[i] + panels(&p);
	}
	all = calloc(1, sizeof(*all) + at[jm_dft_steps(n)] * sizeof(float));
	if (!all)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the matrices of a transform.");
	for (int i = 0; i < jm_dft_steps(n); i++) {
		struct jm_dft_step s = jm_dft_step(n, i);

		all->m[i] = all->data + at[i];
		fill(&s, all->m[i]);
	}
	exec->own = all;
	return 0;
}

static void drop_transform(struct cpu_exec *exec)
{
	free(exec->own);
}

static size_t in_floats(size_t bytes)
{
	return (bytes + 63) / 64 * 64 / sizeof(float);
}

/* The floats between two products: in turn in two places. */
static size_t between(const struct jm_node *n)
{
	size_t most = 0;

	for (int i = 0; i < jm_dft_steps(n) - 1; i++) {
		struct jm_dft_step s = jm_dft_step(n, i);
		struct cpu_fixed_product p = product_of(&s);
		size_t each = in_floats((size_t)(p.outer * p.rows * p.width) * sizeof(float));

		most = each > most ? each : most;
	}
	return most;
}

static size_t scratch_transform(const struct cpu_dev *dev, const struct jm_node *n)
{
	size_t most = 0;

	for (int i = 0; i < jm_dft_steps(n); i++) {
		struct jm_dft_step s = jm_dft_step(n, i);
		struct cpu_fixed_product p = product_of(&s);
		size_t each = dev->kernels->spectrals->fixed_scratch(&p, dev->threads);

		most = each > most ? each : most;
	}
	return 2 * between(n) * sizeof(float) + most;
}

static int run_transform(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	const struct matrices *all = exec->own;
	float *place = exec->scratch;
	size_t each = between(n);
	struct cpu_vec x = cpu_vec(n->in[0]);

	(void)err;
	for (int i = 0; i < jm_dft_steps(n); i++) {
		struct jm_dft_step s = jm_dft_step(n, i);
		struct cpu_fixed_product p = product_of(&s);
		bool end = i == jm_dft_steps(n) - 1;

		p.m = all->m[i];
		p.x = x;
		p.y = end ? cpu_vec(n->out[0]) : (struct cpu_vec){place + i % 2 * each, false};
		p.accumulate = end && jm_node_adds(n, 0);
		p.scratch = place + 2 * each;
		dev->kernels->spectrals->fixed(&p, dev->threads);
		x = p.y;
	}
	return 0;
}

/* ---- products of each frequency -------------------------------------------------------------- */

/* Of [B,2,K,width]: rows are batches; turned: columns are. */
static struct cpu_complex spectrum(const struct jm_tensor *t, bool turned)
{
	int64_t width = jm_tensor_width(t), batch = 2 * t->dim[2] * width;

	return (struct cpu_complex){.data = cpu_vec(t),
		.each = width,
		.row = turned ? 1 : batch,
		.column = turned ? batch : 1,
		.imaginary = batch / 2,
		.conjugate = turned};
}

/* Of [2,K,I,O]. */
static struct cpu_complex weights(const struct jm_tensor *t, bool turned)
{
	int64_t width = jm_tensor_width(t);

	return (struct cpu_complex){.data = cpu_vec(t),
		.each = t->dim[2] * width,
		.row = turned ? 1 : width,
		.column = turned ? width : 1,
		.imaginary = t->dim[1] * t->dim[2] * width,
		.conjugate = turned};
}

/* y = x w, dx = dy w^H, dw = x^H dy */
static struct cpu_complex_product mix_of(const struct jm_node *n)
{
	const struct jm_tensor *a = n->in[0], *b = n->in[1], *y = n->out[0];
	struct cpu_complex_product p = {.accumulate = jm_node_adds(n, 0)};

	if (n->op == JM_OP_MIX_MODES_WGRAD) {
		p.frequencies = y->dim[1];
		p.rows = y->dim[2];
		p.n = a->dim[0];
		p.a = spectrum(b, true);
		p.b = spectrum(a, false);
		p.y = weights(y, false);
	} else {
		p.frequencies = a->dim[2];
		p.rows = a->dim[0];
		p.n = jm_tensor_width(a);
		p.a = spectrum(a, false);
		p.b = weights(b, n->op == JM_OP_MIX_MODES_DGRAD);
		p.y = spectrum(y, false);
	}
	p.columns = jm_tensor_width(y);
	return p;
}

static size_t scratch_mix(const struct cpu_dev *dev, const struct jm_node *n)
{
	const struct cpu_complex_product p = mix_of(n);

	return dev->kernels->spectrals->complex_scratch(&p, dev->threads);
}

static int run_mix(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	struct cpu_complex_product p = mix_of(exec->node);

	(void)err;
	p.scratch = exec->scratch;
	dev->kernels->spectrals->complex(&p, dev->threads);
	return 0;
}

/* ---- the relative loss ----------------------------------------------------------------------- */

static struct cpu_relative relative_of(const struct jm_node *n)
{
	const struct jm_tensor *y = n->in[0];
	struct cpu_relative p = {.points = 1,
		.channels = jm_tensor_width(y),
		.y = cpu_vec(y),
		.target = cpu_vec(n->in[1]),
		.dy = cpu_vec(n->out[1]),
		.accumulate = n->accumulate,
		.loss = n->out[0]->data};

	for (int a = 0; a < n->attr.xent.axes; a++)
		p.points *= y->dim[y->rank - 2 - a];
	p.outer = jm_tensor_count(y) / p.points / p.channels;
	p.weight = n->attr.xent.weight / (double)(p.outer * p.channels);
	return p;
}

static size_t scratch_relative(const struct cpu_dev *dev, const struct jm_node *n)
{
	const struct cpu_relative p = relative_of(n);

	return dev->kernels->spectrals->relative_scratch(&p, dev->threads);
}

static int run_relative(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_relative p = relative_of(n);

	(void)err;
	p.scale = p.weight * n->attr.xent.scale * cpu_scale(n->in[2], 0);
	p.scratch = exec->scratch;
	dev->kernels->spectrals->relative(&p, dev->threads);
	return 0;
}

const struct cpu_op cpu_ops_spectral[] = {
	{{JM_OP_DFT}, 1, NULL, scratch_transform, build_transform, run_transform, drop_transform},
	{{JM_OP_IDFT}, 1, NULL, scratch_transform, build_transform, run_transform, drop_transform},
	{{JM_OP_MIX_MODES}, 1, NULL, scratch_mix, NULL, run_mix, NULL},
	{{JM_OP_MIX_MODES_DGRAD}, 1, NULL, scratch_mix, NULL, run_mix, NULL},
	{{JM_OP_MIX_MODES_WGRAD}, 1, NULL, scratch_mix, NULL, run_mix, NULL},
	{{JM_OP_RELATIVE_L2}, 1, NULL, scratch_relative, NULL, run_relative, NULL},
	{.n_nodes = 0},
};
