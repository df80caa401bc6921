/* SPDX-License-Identifier: Apache-2.0 */
/* cast: an own kernel if both layouts are equal, else a reorder of oneDNN. */
#include <stdlib.h>

#include "ops_quantize.h"
#include "layout.h"

struct reorder {
	dnnl_primitive_t primitive;
	dnnl_memory_t memory[2]; /* from, to */
};

static int fail(struct jm_err *err, const struct jm_node *n, dnnl_status_t status)
{
	return jm_err_set(err, JM_ENOSUP,
		"oneDNN cannot convert %s to another layout (its status is %d).", n->in[0]->name,
		(int)status);
}

static int takes(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	(void)dev;
	if (n->accumulate && !jm_layout_equal(&n->in[0]->layout, &n->out[0]->layout))
		return jm_err_set(err, JM_ENOSUP,
			"A cast of backend cpu cannot add to a result in another layout.");
	if (cpu_is_f8(n->in[0]) && !jm_layout_equal(&n->in[0]->layout, &n->out[0]->layout))
		return jm_err_set(
			err, JM_ENOSUP, "Backend cpu has one layout for tensors in 8 bits.");
	return 0;
}

static dnnl_status_t create(const struct cpu_dev *dev, const struct jm_node *n, struct reorder *r)
{
	const struct jm_tensor *t[2] = {n->in[0], n->out[0]};
	dnnl_primitive_desc_t pd = NULL;
	dnnl_memory_desc_t md[2];
	dnnl_status_t s = dnnl_success;

	for (int i = 0; i < 2; i++) {
		cpu_layout_desc(
			t[i], &t[i]->layout, t[i]->type == JM_BF16 ? dnnl_bf16 : dnnl_f32, &md[i]);
		if (!s)
			s = dnnl_memory_create(&r->memory[i], &md[i], dev->engine, t[i]->data);
	}
	if (!s)
		s = dnnl_reorder_primitive_desc_create(
			&pd, &md[0], dev->engine, &md[1], dev->engine, NULL);
	if (!s)
		s = dnnl_primitive_create(&r->primitive, pd);
	dnnl_primitive_desc_destroy(pd);
	return s;
}

static void drop(struct cpu_exec *exec)
{
	struct reorder *r = exec->own;

	if (!r)
		return;
	dnnl_primitive_destroy(r->primitive);
	for (int i = 0; i < 2; i++)
		dnnl_memory_destroy(r->memory[i]);
	free(r);
	exec->own = NULL;
}

static int build(const struct cpu_dev *dev, struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	dnnl_status_t s;

	if (jm_layout_equal(&n->in[0]->layout, &n->out[0]->layout))
		return 0;
	exec->own = calloc(1, sizeof(struct reorder));
	if (!exec->own)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a reorder.");
	s = create(dev, n, exec->own);
	return s ? fail(err, n, s) : 0;
}

static int run(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct reorder *r = exec->own;
	dnnl_status_t s;

	if (cpu_is_f8(n->in[0])) {
		memcpy(n->out[0]->data, n->in[0]->data, n->out[0]->bytes);
		return 0;
	}
	if (!r) {
		dev->kernels->pointwise->cast(cpu_vec(n->in[0]), cpu_vec(n->out[0]),
			cpu_layout_elements(n->out[0]), jm_node_adds(n, 0), dev->threads);
		return 0;
	}
	s = dnnl_primitive_execute(r->primitive, dev->stream, 2,
		(dnnl_exec_arg_t[]){{DNNL_ARG_FROM, r->memory[0]}, {DNNL_ARG_TO, r->memory[1]}});
	if (!s)
		s = dnnl_stream_wait(dev->stream);
	return s ? fail(err, n, s) : 0;
}

const struct cpu_op cpu_op_cast = {{JM_OP_CAST}, 1, takes, NULL, build, run, drop};
