/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: turns nodes into arguments of rope.cu. */
#include <math.h>
#include <stdlib.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/device/gpu.h"
#include "ops_rope.h"
#include "op_rows.h"

/* ---- angles ---------------------------------------------------------------------------------- */

/* The angles that the device keeps for each sequence length, width of a head and kind of angles. */
struct cuda_angles {
	struct cuda_angles *next;
	int64_t seq, half;
	struct jm_rotary rotary;
	float *data;
};

static int make_angles(struct cuda_dev *dev, struct cuda_angles *a, struct jm_err *err)
{
	size_t count = (size_t)(2 * a->seq * a->half);
	float *host = malloc(count * sizeof *host);
	int code;

	a->data = cuda_keep(dev, count * sizeof *host);
	if (!host || !a->data) {
		free(host);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the angles of rope.");
	}
	for (int64_t s = 0; s < a->seq; s++) {
		for (int64_t i = 0; i < a->half; i++) {
			double angle = (double)s * jm_rotary_speed(&a->rotary, i, 2 * a->half);

			host[s * a->half + i] = (float)cos(angle);
			host[(a->seq + s) * a->half + i] = (float)sin(angle);
		}
	}
	code = cuda_upload(
		dev, a->data, host, count * sizeof *host, "Copying the angles of rope", err);
	free(host);
	return code;
}

static bool same(const struct jm_rotary *a, const struct jm_rotary *b)
{
	return a->theta == b->theta && a->factor == b->factor && a->low == b->low &&
	       a->high == b->high && a->context == b->context;
}

int cuda_angles_of(struct cuda_dev *dev, int64_t positions, int64_t half,
	const struct jm_rotary *rotary, const float **ret, struct jm_err *err)
{
	struct cuda_angles *a;
	int code;

	for (a = dev->angles; a; a = a->next)
		if (a->seq == positions && a->half == half && same(&a->rotary, rotary)) {
			*ret = a->data;
			return 0;
		}
	a = malloc(sizeof *a);
	if (!a)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the angles of rope.");
	*a = (struct cuda_angles){.seq = positions, .half = half, .rotary = *rotary};
	code = make_angles(dev, a, err);
	if (code) {
		free(a);
		return code;
	}
	a->next = dev->angles;
	dev->angles = a;
	*ret = a->data;
	return 0;
}

void cuda_angles_free(struct cuda_dev *dev)
{
	while (dev->angles) {
		struct cuda_angles *next = dev->angles->next;

		free(dev->angles);
		dev->angles = next;
	}
}

/* ---- the op and its gradient ----------------------------------------------------------------- */

static int heads_of(const struct jm_node *n)
{
	return n->attr.rope.heads + 2 * n->attr.rope.kv_heads;
}

static struct cuda_rope rope_of(const struct jm_node *n)
{
	return (struct cuda_rope){
		.tokens = jm_tensor_rows(n->in[0]),
		.seq = n->in[0]->dim[1],
		.heads = heads_of(n),
		.turned = n->attr.rope.heads + n->attr.rope.kv_heads,
		.depth = (int)(jm_tensor_width(n->in[0]) / heads_of(n)),
		.x = cuda_vec(n->in[0]),
		.y = cuda_vec(n->out[0]),
		.inverse = n->op == JM_OP_ROPE_GRAD,
		.accumulate = jm_node_adds(n, 0),
	};
}

int cuda_rope_takes(const struct jm_node *n, struct jm_err *err)
{
	if (n->in[1])
		return jm_err_set(err, JM_ENOSUP,
			"The rope of backend cuda supports positions counted from 0 only, not "
			"given ones.");
	if (n->in[0]->rank != 3 || jm_tensor_width(n->in[0]) % (2 * (int64_t)heads_of(n)) ||
		n->in[0]->type != n->out[0]->type)
		return cuda_no_types(n, err);
	return 0;
}

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	(void)dev;
	return cuda_rope_takes(group->node[0], err);
}

int cuda_rope_of(
	struct cuda_dev *dev, const struct jm_node *n, struct cuda_rope *ret, struct jm_err *err)
{
	int64_t half = jm_tensor_width(n->in[0]) / heads_of(n) / 2;

	*ret = rope_of(n);
	return cuda_angles_of(dev, n->in[0]->dim[1], half, &n->attr.rope.rotary, &ret->angles, err);
}

static int build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_rope *own = exec->own = calloc(1, sizeof *own);

	if (!own)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", jm_op_name(n->op));
	return cuda_rope_of(dev, n, own, err);
}

static int run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	(void)err;
	cuda_rope(exec->own, dev->stream);
	return 0;
}

static void drop(struct cuda_dev *dev, struct cuda_exec *exec)
{
	(void)dev;
	free(exec->own);
}

const struct cuda_op cuda_ops_rope[] = {
	{{JM_OP_ROPE}, 1, takes, NULL, NULL, build, run, drop},
	{{JM_OP_ROPE_GRAD}, 1, takes, NULL, NULL, build, run, drop},
	{.n_nodes = 0},
};
