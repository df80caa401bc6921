/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transforms of fields, products of their frequencies and the relative loss: turns nodes into the
 * arguments of spectral.cu. A transform is a step for each axis (engine/graph/dft_step.h). Products
 * are in f32 also where tf32 is permitted.
 */
#include <math.h>
#include <stdlib.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/kernels/spectral.h"
#include "engine/graph/dft_step.h"
#include "op_rows.h"

/* ---- transforms ------------------------------------------------------------------------------ */

/* On the device: the tables of all steps, one behind the other. */
struct tables {
	float *data;
	size_t first[JM_AXES];
};

static int takes_transform(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	return n->in[0]->type == n->out[0]->type ? 0 : cuda_no_types(n, err);
}

static struct cuda_transform_step step_of(const struct jm_dft_step *s)
{
	return (struct cuda_transform_step){.outer = s->outer,
		.width = s->width,
		.points = s->points,
		.modes = s->modes,
		.is_real = s->last,
		.back = s->back};
}

/* From one pair's cosines to its sines. */
static int stride_of(const struct cuda_transform_step *p)
{
	int to = p->back ? cuda_step_points(p) : cuda_step_frequencies(p);

	return (to + CUDA_STEP_ROWS - 1) / CUDA_STEP_ROWS * CUDA_STEP_ROWS;
}

static size_t table_size(const struct cuda_transform_step *p)
{
	int from = p->back ? cuda_step_frequencies(p) : cuda_step_points(p);

	return (size_t)from * 2 * (size_t)stride_of(p);
}

/* The element of the matrix of dft for a row of frequencies and a column of points. */
static double element(const struct jm_dft_step *s, int64_t row, int64_t column)
{
	return s->back ? jm_dft_element(s, column, row) : jm_dft_element(s, row, column);
}

/* The sine of row `f` of the frequencies' real parts and point n, as spectral.h defines it. */
static double sine(const struct jm_dft_step *s, int64_t f, int64_t n)
{
	double value;

	if (s->last)
		return element(s, s->kept + f, n);
	value = s->back ? element(s, s->kept + f, 2 * n) : element(s, f, 2 * n + 1);
	return f == s->modes ? -value : value; /* which is the row of -modes */
}

static void fill(const struct jm_dft_step *s, float *m)
{
	const struct cuda_transform_step p = step_of(s);
	int stride = stride_of(&p), points = cuda_step_points(&p),
	    frequencies = cuda_step_frequencies(&p);

	for (int f = 0; f < frequencies; f++)
		for (int n = 0; n < points; n++) {
			int from = s->back ? f : n, to = s->back ? n : f;
			float *at = m + (size_t)from * 2 * (size_t)stride + to;

			at[0] = (float)element(s, f, s->last ? n : 2 * n);
			at[stride] = (float)sine(s, f, n);
		}
}

static int copy_tables(struct cuda_dev *dev, const struct jm_node *n, struct tables *m,
	size_t count, struct jm_err *err)
{
	float *host = calloc(count ? count : 1, sizeof *host);
	int code;

	if (!host)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the tables of a transform.");
	for (int i = 0; i < jm_dft_steps(n); i++) {
		struct jm_dft_step s = jm_dft_step(n, i);

		fill(&s, host + m->first[i]);
	}
	code = cuda_check(dev, cudaMalloc((void **)&m->data, count * sizeof *host),
		"Allocating the tables of a transform", err);
	if (!code)
		code = cuda_upload(dev, m->data, host, count * sizeof *host,
			"Copying the tables of a transform", err);
	free(host);
	return code;
}

static int build_transform(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct tables *m = exec->own = calloc(1, sizeof *m);
	size_t count = 0;

	if (!m)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a transform.");
	for (int i = 0; i < jm_dft_steps(n); i++) {
		const struct jm_dft_step s = jm_dft_step(n, i);
		const struct cuda_transform_step p = step_of(&s);

		m->first[i] = count;
		count += table_size(&p);
	}
	return copy_tables(dev, n, m, count, err);
}

static void drop_transform(struct cuda_dev *dev, struct cuda_exec *exec)
{
	struct tables *m = exec->own;

	(void)dev;
	if (m)
		cudaFree(m->data);
	free(m);
}

/* The floats between two steps: in turn in two places. */
static size_t between(const struct jm_node *n)
{
	size_t most = 0;

	for (int i = 0; i < jm_dft_steps(n) - 1; i++) {
		struct jm_dft_step s = jm_dft_step(n, i);
		size_t each = (size_t)((s.outer * s.rows * s.width + 63) / 64 * 64);

		most = each > most ? each : most;
	}
	return most;
}

/* Fewer than those of the op's definition, because pairs of points and of frequencies share
 * products. */
static double flops_of(const struct jm_node *n)
{
	double sum = 0;

	for (int i = 0; i < jm_dft_steps(n); i++) {
		const struct jm_dft_step s = jm_dft_step(n, i);
		const struct cuda_transform_step p = step_of(&s);
		double pairs = (double)cuda_step_points(&p) * cuda_step_frequencies(&p);

		sum += (p.is_real ? 4 : 8) * pairs * (double)(p.outer * p.width);
	}
	return sum;
}

static int choices_transform(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	(void)dev;
	(void)err;
	choice->scratch = 2 * between(group->node[0]) * sizeof(float);
	choice->seconds = NAN;
	choice->flops_executed = flops_of(group->node[0]);
	return 1;
}

static int run_transform(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct tables *m = exec->own;
	struct cuda_vec x = cuda_vec(n->in[0]);
	int steps = jm_dft_steps(n);

	(void)err;
	for (int i = 0; i < steps; i++) {
		struct jm_dft_step s = jm_dft_step(n, i);
		float *place = (float *)exec->scratch + (size_t)(i % 2) * between(n);
		struct cuda_transform_step p = step_of(&s);

		p.m = m->data + m->first[i];
		p.x = x;
		p.y = i == steps - 1 ? cuda_vec(n->out[0]) : (struct cuda_vec){place, CUDA_F32};
		p.accumulate = i == steps - 1 && jm_node_adds(n, 0);
		cuda_transform_step(&p, dev->prop.multiProcessorCount, dev->stream);
		x = p.y;
	}
	return 0;
}

/* ---- products of each frequency -------------------------------------------------------------- */

/* Of [B,2,K,width]: rows are batches; turned: columns are, and imaginary parts are negative. */
static struct cuda_complex spectrum(const struct jm_tensor *t, bool turned)
{
	int64_t width = t->dim[3], all = t->dim[2] * width;

	return (struct cuda_complex){.data = cuda_vec(t),
		.each = width,
		.row = turned ? 1 : 2 * all,
		.column = turned ? 2 * all : 1,
		.imaginary = all,
		.conjugate = turned};
}

/* Of [2,K,I,O]: rows are I; turned: columns are, and imaginary parts are negative. */
static struct cuda_complex weights(const struct jm_tensor *t, bool turned)
{
	return (struct cuda_complex){.data = cuda_vec(t),
		.each = t->dim[2] * t->dim[3],
		.row = turned ? 1 : t->dim[3],
		.column = turned ? t->dim[3] : 1,
		.imaginary = t->dim[1] * t->dim[2] * t->dim[3],
		.conjugate = turned};
}

/* y = x w, dx = dy w^H, dw = x^H dy */
static struct cuda_complex_product mix_of(const struct jm_node *n)
{
	const struct jm_tensor *a = n->in[0], *b = n->in[1], *y = n->out[0];
	struct cuda_complex_product p = {.columns = y->dim[3], .accumulate = jm_node_adds(n, 0)};

	p.frequencies = a->dim[2];
	if (n->op == JM_OP_MIX_MODES_WGRAD) {
		p.rows = y->dim[2];
		p.n = a->dim[0];
		p.a = spectrum(b, true);
		p.b = spectrum(a, false);
		p.y = weights(y, false);
	} else {
		p.rows = a->dim[0];
		p.n = a->dim[3];
		p.a = spectrum(a, false);
		p.b = weights(b, n->op == JM_OP_MIX_MODES_DGRAD);
		p.y = spectrum(y, false);
	}
	return p;
}

static int takes_mix(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool fits = n->in[1]->type == n->in[0]->type &&
		    (n->out[0]->type == n->in[0]->type || n->out[0]->type == JM_F32);

	(void)dev;
	return fits ? 0 : cuda_no_types(n, err);
}

static int run_mix(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct cuda_complex_product p = mix_of(&exec->node[0]);

	(void)err;
	cuda_complex_product(&p, dev->stream);
	return 0;
}

/* ---- the relative loss ----------------------------------------------------------------------- */

static int takes_relative(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool fits = n->out[0]->type == JM_F32 &&
		    (!n->out[1] || n->out[1]->type == n->in[0]->type) &&
		    (n->in[1]->type == JM_F32 || n->in[1]->type == n->in[0]->type);

	(void)dev;
	return fits ? 0 : cuda_no_types(n, err);
}

static struct cuda_relative relative_of(const struct jm_node *n)
{
	const struct jm_tensor *y = n->in[0];
	struct cuda_relative p = {.points = 1,
		.channels = jm_tensor_width(y),
		.y = cuda_vec(y),
		.target = cuda_vec(n->in[1]),
		.dy = cuda_vec(n->out[1]),
		.weight = n->attr.xent.weight,
		.scale = n->attr.xent.weight * n->attr.xent.scale,
		.loss_scale = cuda_data(n->in[2]),
		.loss = n->out[0]->data,
		.add_loss = jm_node_adds(n, 0),
		.add_dy = n->out[1] && jm_node_adds(n, 1)};

	for (int a = 0; a < n->attr.xent.axes; a++)
		p.points *= y->dim[y->rank - 2 - a];
	p.outer = jm_tensor_count(y) / p.points / p.channels;
	return p;
}

static size_t bytes_of_partial(const struct cuda_relative *p)
{
	int64_t parts = cuda_relative_parts(p->points);

	return (size_t)(2 * p->outer * parts * p->channels) * sizeof(double);
}

static size_t scratch_relative(struct cuda_dev *dev, const struct jm_group *group)
{
	const struct cuda_relative p = relative_of(group->node[0]);

	(void)dev;
	return bytes_of_partial(&p) + (size_t)(p.outer * p.channels) * sizeof(double);
}

static int run_relative(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_relative p = relative_of(&exec->node[0]);

	(void)err;
	p.partial = exec->scratch;
	p.factor = (double *)(void *)((char *)exec->scratch + bytes_of_partial(&p));
	cuda_relative(&p, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_spectral[] = {
	{{JM_OP_DFT}, 1, takes_transform, choices_transform, NULL, build_transform, run_transform,
		drop_transform},
	{{JM_OP_IDFT}, 1, takes_transform, choices_transform, NULL, build_transform, run_transform,
		drop_transform},
	{{JM_OP_MIX_MODES}, 1, takes_mix, NULL, NULL, NULL, run_mix, NULL},
	{{JM_OP_MIX_MODES_DGRAD}, 1, takes_mix, NULL, NULL, NULL, run_mix, NULL},
	{{JM_OP_MIX_MODES_WGRAD}, 1, takes_mix, NULL, NULL, NULL, run_mix, NULL},
	{{JM_OP_RELATIVE_L2}, 1, takes_relative, NULL, scratch_relative, NULL, run_relative, NULL},
	{.n_nodes = 0},
};
