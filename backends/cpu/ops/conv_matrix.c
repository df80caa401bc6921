/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A convolution with a window of one pixel over images with their channels last is a linear layer
 * over all pixels: y[pixels, K] = x[pixels, C] w[K, C]^T, and so are its gradients. They run as
 * linear layers and can add to their results, which a convolution of oneDNN cannot.
 *
 * This is faster on processors with matrix tiles in bf16: oneDNN uses channels last there, and its
 * gradient of weights reaches 380 GFLOP/s over a ResNet-50 on two cores, a product of matrices 1175
 * (oneDNN 2.6, Sapphire Rapids). Forward and the other gradient of oneDNN's convolutions are as
 * fast as its products, so oneDNN runs them. On other processors images are blocked by 16 channels,
 * and products are used only for images whose channels are last.
 *
 * A convolution whose window is the whole image is a linear layer, too: y[B, K] = x[B, C R S] w[K,
 * C R S]^T of plain tensors. oneDNN wants such weights in another layout for each of the three
 * products, which are then slower by the reorders of many weights.
 */
#include <math.h>
#include <stdlib.h>

#include "layout.h"
#include "backends/cpu/device/peak.h"
#include "conv_matrix.h"
#include "seconds.h"

enum { IMAGES = 3 }; /* operands: two that are read, one result */

struct matrices {
	struct jm_tensor t[IMAGES];
	struct cpu_exec linear;
};

static const struct jm_layout last = {.rank = 4, .order = {0, 2, 3, 1}};

static bool is_last(const struct jm_tensor *t)
{
	return t && jm_layout_equal(&t->layout, &last);
}

static const struct jm_tensor *weights(const struct jm_node *n)
{
	return n->op == JM_OP_CONV_WGRAD ? n->out[0] : n->in[1];
}

static bool is_alone(const struct jm_node *n)
{
	return n->attr.conv.groups == 1 && !n->attr.conv.pad[0] && !n->attr.conv.pad[1] &&
	       !n->attr.conv.more[0] && !n->attr.conv.more[1];
}

/* True if y = x w for each pixel. */
static bool is_product(const struct jm_node *n)
{
	const struct jm_tensor *w = weights(n);

	return is_alone(n) && w->dim[2] == 1 && w->dim[3] == 1 && n->attr.conv.stride[0] == 1 &&
	       n->attr.conv.stride[1] == 1;
}

/* True if the window is the whole image, of several pixels. */
static bool is_whole(const struct jm_node *n)
{
	const struct jm_tensor *w = weights(n);
	const struct jm_tensor *x = n->op == JM_OP_CONV		? n->in[0]
				    : n->op == JM_OP_CONV_DGRAD ? n->out[0]
								: n->in[1];

	return is_alone(n) && w->dim[2] == x->dim[2] && w->dim[3] == x->dim[3] &&
	       w->dim[2] * w->dim[3] > 1;
}

static const struct cpu_op *linear_of(enum jm_op op)
{
	if (op == JM_OP_CONV)
		return &cpu_op_linear;
	return op == JM_OP_CONV_DGRAD ? &cpu_op_linear_dgrad : &cpu_op_linear_wgrad;
}

/* An image as a matrix of pixels; a plain one, or weights, as a row for each of the first dim. */
static struct jm_tensor matrix(const struct jm_tensor *t)
{
	struct jm_tensor m = *t;
	int64_t pixels = t->dim[2] * t->dim[3];

	if (is_last(t))
		m.dim[0] *= pixels;
	else
		m.dim[1] *= pixels;
	m.rank = 2;
	m.layout = (struct jm_layout){0};
	return m;
}

/* The node of the linear layer, whose images and weights are in t. */
static struct jm_node linear_node(const struct jm_node *n, struct jm_tensor *t)
{
	struct jm_node l = *n;

	t[0] = matrix(n->in[0]);
	t[1] = matrix(n->in[1]);
	t[2] = matrix(n->out[0]);
	l.op = linear_of(n->op)->cover[0];
	l.in[0] = &t[0];
	l.in[1] = &t[1];
	l.out[0] = &t[2];
	return l;
}

/* ---- select ---------------------------------------------------------------------------------- */

static bool is_faster(const struct cpu_dev *dev, const struct jm_node *n)
{
	return n->in[0]->type == JM_BF16 && dev->fast_bf16 && cpu_has_tiles() &&
	       (n->op == JM_OP_CONV_WGRAD || n->accumulate);
}

static bool comes_last(const struct jm_node *n)
{
	return is_last(n->in[0]) || (n->op == JM_OP_CONV_WGRAD && is_last(n->in[1])) ||
	       (jm_node_adds(n, 0) && is_last(n->out[0]));
}

static void set_layouts(const struct jm_node *n, struct jm_choice *choice)
{
	choice->in[0][0] = last;
	if (n->op == JM_OP_CONV_WGRAD)
		choice->in[0][1] = last;
	else
		choice->out[0][0] = last;
}

int cpu_conv_matrix_offer(
	const struct cpu_dev *dev, const struct jm_node *node, struct jm_choice *choice)
{
	const struct cpu_op *linear = linear_of(node->op);
	struct jm_node shaped = *node, l;
	struct jm_tensor t[IMAGES], image[IMAGES];

	if (!is_whole(node) && (!is_product(node) || (!comes_last(node) && !is_faster(dev, node))))
		return 0;
	if (!is_whole(node))
		set_layouts(node, choice);
	image[0] = *node->in[0];
	image[1] = *node->in[1];
	image[2] = *node->out[0];
	for (int i = 0; i < IMAGES; i++)
		image[i].layout = i < 2 ? choice->in[0][i] : choice->out[0][0];
	shaped.in[0] = &image[0];
	shaped.in[1] = &image[1];
	shaped.out[0] = &image[2];
	l = linear_node(&shaped, t);
	choice->scratch = linear->scratch(dev, &l);
	choice->seconds = cpu_seconds(dev, node, CPU_PRODUCT);
	choice->flops_executed = NAN;
	choice->tag = CPU_CONV_MATRIX;
	return 1;
}

/* ---- build and run --------------------------------------------------------------------------- */

static int run(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct matrices *m = exec->own;

	return m->linear.op->run(dev, &m->linear, err);
}

static void drop(struct cpu_exec *exec)
{
	struct matrices *m = exec->own;

	if (!m)
		return;
	m->linear.op->drop(&m->linear);
	free(m);
	exec->own = NULL;
}

static int build(const struct cpu_dev *dev, struct cpu_exec *exec, struct jm_err *err)
{
	struct matrices *m = calloc(1, sizeof(*m));

	if (!m)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
	exec->own = m;
	m->linear.op = linear_of(exec->node[0].op);
	m->linear.node[0] = linear_node(&exec->node[0], m->t);
	m->linear.scratch = exec->scratch;
	m->linear.scratch_bytes = exec->scratch_bytes;
	return m->linear.op->build(dev, &m->linear, err);
}

/* Replaces the row of a convolution or of either gradient. */
const struct cpu_op cpu_op_conv_matrix = {{JM_OP_CONV}, 1, NULL, NULL, build, run, drop};
