/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and their gradients by oneDNN, by the plan of dnnl_conv.c. Where the processor's
 * bf16 arithmetic is slower than f32, bf16 images are widened into scratch a few at a time,
 * convolved in f32 and rounded again, so that the pieces stay in the cache.
 */
#include <stdlib.h>

#include "dnnl_conv.h"

/* ---- build ----------------------------------------------------------------------------------- */

static dnnl_status_t add_arg(const struct cpu_dev *dev, struct cpu_conv *c,
	const dnnl_memory_desc_t *md, int arg, void *data)
{
	dnnl_memory_t memory;
	dnnl_status_t s = dnnl_memory_create(&memory, md, dev->engine, data);

	if (!s)
		c->arg[c->n_args++] = (dnnl_exec_arg_t){arg, memory};
	return s;
}

static dnnl_status_t add_args(const struct cpu_dev *dev, struct cpu_conv *c)
{
	static const int value[ROLES] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
	static const int gradient[ROLES] = {
		DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
	const dnnl_memory_desc_t *pad =
		dnnl_primitive_desc_query_md(c->pd, dnnl_query_scratchpad_md, 0);
	dnnl_memory_desc_t bias;
	dnnl_status_t s = dnnl_success;

	for (int r = 0; r < ROLES && !s; r++) {
		s = add_arg(dev, c, &c->inner[r],
			cpu_conv_is_gradient(c, r) ? gradient[r] : value[r],
			c->apart[r] ? c->scratch + c->offset[r] : c->t[r]->data);
	}
	if (!s && c->scratchpad)
		s = add_arg(dev, c, pad, DNNL_ARG_SCRATCHPAD, c->scratch);
	if (s || !c->bias)
		return s;
	cpu_layout_desc(c->bias, &(struct jm_layout){0}, dnnl_f32, &bias);
	return add_arg(dev, c, &bias, c->result == WEI ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS,
		c->bias->data);
}

static dnnl_status_t adding_attr(bool add, dnnl_primitive_attr_t *ret)
{
	dnnl_post_ops_t after = NULL;
	dnnl_status_t s = dnnl_primitive_attr_create(ret);

	if (!s && add)
		s = dnnl_post_ops_create(&after);
	if (!s && add)
		s = dnnl_post_ops_append_sum(after, 1.f);
	if (!s && add)
		s = dnnl_primitive_attr_set_post_ops(*ret, after);
	dnnl_post_ops_destroy(after);
	return s;
}

/* Reorders weights to or from oneDNN's layout; from it they are added to those of earlier pieces or
 * to the result. */
static dnnl_status_t build_reorder(const struct cpu_dev *dev, struct cpu_conv *c)
{
	int out = c->result == WEI;
	dnnl_primitive_attr_t attr = NULL;
	const dnnl_memory_desc_t *from = out ? &c->inner[WEI] : &c->outer[WEI];
	const dnnl_memory_desc_t *to = out ? &c->outer[WEI] : &c->inner[WEI];
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t s = adding_attr(cpu_conv_sums(c), &attr);

	if (!s)
		s = dnnl_reorder_primitive_desc_create(
			&pd, from, dev->engine, to, dev->engine, attr);
	dnnl_primitive_attr_destroy(attr);
	if (!s)
		s = dnnl_primitive_create(&c->reorder, pd);
	dnnl_primitive_desc_destroy(pd);
	if (!s)
		s = dnnl_memory_create(
			&c->reorder_arg[out], &c->outer[WEI], dev->engine, c->t[WEI]->data);
	if (!s)
		s = dnnl_memory_create(&c->reorder_arg[!out], &c->inner[WEI], dev->engine,
			c->scratch + c->offset[WEI]);
	return s;
}

static void drop(struct cpu_exec *exec)
{
	struct cpu_conv *c = exec->own;

	if (!c)
		return;
	dnnl_primitive_destroy(c->primitive);
	dnnl_primitive_destroy(c->reorder);
	dnnl_primitive_desc_destroy(c->pd);
	for (int i = 0; i < c->n_args; i++)
		dnnl_memory_destroy(c->arg[i].memory);
	for (int i = 0; i < 2; i++)
		dnnl_memory_destroy(c->reorder_arg[i]);
	free(c);
	exec->own = NULL;
}

static int build(const struct cpu_dev *dev, struct cpu_exec *exec, struct jm_err *err)
{
	struct cpu_conv *c;
	dnnl_status_t s;

	if (exec->tag == CPU_CONV_MATRIX) {
		exec->op = &cpu_op_conv_matrix;
		return exec->op->build(dev, exec, err);
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return jm_err_set(
			err, JM_ENOMEM, "Out of memory for the description of a convolution.");
	exec->own = c;
	s = cpu_conv_plan(dev, &exec->node[0], NULL, c);
	c->scratch = exec->scratch;
	if (!s)
		s = dnnl_primitive_create(&c->primitive, c->pd);
	if (!s)
		s = add_args(dev, c);
	if (!s && c->apart[WEI])
		s = build_reorder(dev, c);
	return s ? cpu_conv_fail(err, &exec->node[0], s) : 0;
}

/* ---- run ------------------------------------------------------------------------------------- */

static int64_t elements(const dnnl_memory_desc_t *md)
{
	return (int64_t)(dnnl_memory_desc_get_size(md) / (md->data_type == dnnl_bf16 ? 2 : 4));
}

/* Converts piece i of an image between the engine's memory and scratch, which have the same
 * layout. */
static void convert(const struct cpu_dev *dev, const struct cpu_conv *c, int r, int64_t i)
{
	size_t bytes = dnnl_memory_desc_get_size(&c->outer[r]);
	struct cpu_vec outer = {
		(char *)c->t[r]->data + (size_t)i * bytes, c->t[r]->type == JM_BF16};
	struct cpu_vec inner = {c->scratch + c->offset[r], c->inner[r].data_type == dnnl_bf16};
	bool out = r == (int)c->result;

	dev->kernels->pointwise->cast(out ? inner : outer, out ? outer : inner,
		elements(&c->inner[r]), cpu_conv_adds(c) && out, dev->threads);
}

static dnnl_status_t reorder_weights(const struct cpu_dev *dev, const struct cpu_conv *c)
{
	dnnl_exec_arg_t arg[2] = {
		{DNNL_ARG_FROM, c->reorder_arg[0]}, {DNNL_ARG_TO, c->reorder_arg[1]}};

	return dnnl_primitive_execute(c->reorder, dev->stream, 2, arg);
}

/* Uses piece i of an image in place. */
static dnnl_status_t take_piece(const struct cpu_conv *c, int r, int64_t i)
{
	size_t bytes = dnnl_memory_desc_get_size(&c->outer[r]);

	return dnnl_memory_set_data_handle(
		c->arg[r].memory, (char *)c->t[r]->data + (size_t)i * bytes);
}

static dnnl_status_t run_piece(const struct cpu_dev *dev, const struct cpu_conv *c, int64_t i)
{
	dnnl_status_t s = dnnl_success;

	for (int r = 0; r < ROLES && !s; r++) {
		if (c->apart[r] && r != WEI && r != (int)c->result)
			convert(dev, c, r, i);
		if (!c->apart[r] && r != WEI && c->pieces > 1)
			s = take_piece(c, r, i);
	}
	if (!s && c->apart[WEI] && c->result != WEI && i == 0)
		s = reorder_weights(dev, c);
	if (!s)
		s = dnnl_primitive_execute(c->primitive, dev->stream, c->n_args, c->arg);
	if (s || !c->apart[c->result])
		return s;
	if (c->result == WEI)
		return reorder_weights(dev, c);
	convert(dev, c, c->result, i);
	return s;
}

static int run(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct cpu_conv *c = exec->own;
	dnnl_status_t s = dnnl_success;

	if (cpu_conv_sums(c) && !c->accumulate)
		memset(c->t[WEI]->data, 0, c->t[WEI]->bytes);
	for (int64_t i = 0; i < c->pieces && !s; i++)
		s = run_piece(dev, c, i);
	if (!s)
		s = dnnl_stream_wait(dev->stream);
	return s ? cpu_conv_fail(err, &exec->node[0], s) : 0;
}

const struct cpu_op cpu_op_conv = {{JM_OP_CONV}, 1, NULL, NULL, build, run, drop};
const struct cpu_op cpu_op_conv_dgrad = {{JM_OP_CONV_DGRAD}, 1, NULL, NULL, build, run, drop};
const struct cpu_op cpu_op_conv_wgrad = {{JM_OP_CONV_WGRAD}, 1, NULL, NULL, build, run, drop};
