/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the operands of attention_forward.cu and attention_tiles.cu to their copies. */
#include "attention_tiles.h"

#include "backends/cuda/device/cuda.h"

#define BOX	   64  /* rows and columns */
#define BLOCK_KEYS 128 /* of a ticket (attention_once.cuh) */
#define AHEAD	   2   /* times `side`: sums of heads that are not causal, as heads end in order */

bool cuda_tiles_take(const struct cuda_dev *dev, const struct dnn_attention_shape *s)
{
	return cuda_is_hopper(dev) && s->type != CUDNN_DATA_FLOAT &&
	       (s->depth == 64 || s->depth == 128 || s->depth == 256) && s->q.head == s->depth &&
	       s->k.head == s->depth && s->v.head == s->depth && cuda_tensor_map_exist();
}

size_t cuda_tiles_scratch(const struct dnn_attention_shape *s)
{
	return 2 * sizeof(float) * (size_t)(s->batch * s->heads * cuda_attention_padded(s->seq));
}

bool cuda_once_take(const struct cuda_dev *dev, const struct dnn_attention_shape *s)
{
	return cuda_tiles_take(dev, s) && s->depth <= 2 * BOX;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Blocks of causal heads differ in length, so all heads have sums: none waits for another. */
static struct cuda_attention_once once_of(
	const struct cuda_dev *dev, const struct dnn_attention_shape *s)
{
	int64_t processors = dev->prop.multiProcessorCount, all = s->batch * s->groups;
	int64_t blocks = (s->keys + BLOCK_KEYS - 1) / BLOCK_KEYS;
	int64_t side = least(all, processors > blocks ? processors / blocks : 1);
	int64_t slots = s->causal ? all : least(all, AHEAD * side);
	int64_t tiles = slots * (s->heads / s->groups) * ((s->seq + BOX - 1) / BOX);

	return (struct cuda_attention_once){.slots = (int)slots,
		.side = (int)side,
		.blocks = (int)least(processors, all * blocks),
		.n_sums = tiles * BOX * s->depth,
		.n_counts = tiles + 1};
}

size_t cuda_once_scratch(const struct cuda_dev *dev, const struct dnn_attention_shape *s)
{
	const struct cuda_attention_once once = once_of(dev, s);

	return cuda_tiles_scratch(s) + sizeof(float) * (size_t)once.n_sums +
	       sizeof(int) * (size_t)once.n_counts;
}

void cuda_once_describe(const struct cuda_dev *dev, const struct dnn_attention_shape *s,
	struct cuda_attention_tiles *ret)
{
	ret->once = once_of(dev, s);
	ret->once.sums = ret->rows + cuda_tiles_scratch(s) / sizeof(float);
	ret->once.counts = (int *)(ret->once.sums + ret->once.n_sums);
}

/* Rows of heads in 16 bits at `data`. */
static bool describe(const struct dnn_attention_shape *s, const struct dnn_heads *at, int64_t rows,
	int64_t heads, const void *data, struct cuda_tensor_map *ret)
{
	const struct cuda_tensor_map_shape boxes = {.rank = 3,
		.dim = {heads * s->depth, rows, s->batch},
		.step = {0, at->row, at->batch},
		.box = {BOX, BOX, 1}};

	return cuda_tensor_map_describe(&boxes, data, ret);
}

static struct cuda_attention_part part_of(const struct dnn_heads *at, void *grad)
{
	return (struct cuda_attention_part){at->batch, at->row, grad};
}

static bool describe_parts(
	const struct dnn_attention_shape *s, void *const part[3], struct cuda_tensor_map *ret)
{
	return describe(s, &s->q, s->seq, s->heads, part[0], &ret[0]) &&
	       describe(s, &s->k, s->keys, s->groups, part[1], &ret[1]) &&
	       describe(s, &s->v, s->keys, s->groups, part[2], &ret[2]);
}

static int refused(const char *op, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"The driver does not describe the operands of %s for copies by boxes.", op);
}

int cuda_tiles_describe(const struct dnn_attention_shape *s, const struct cuda_tiles_data *data,
	struct cuda_attention_tiles *ret, struct jm_err *err)
{
	const struct dnn_heads dy = {
		.row = s->heads * s->depth, .batch = s->seq * s->heads * s->depth};

	if (!describe_parts(s, data->part, ret->boxes) ||
		!describe(s, &dy, s->seq, s->heads, data->dy, &ret->boxes[3]))
		return refused("attention-grad", err);
	ret->part[0] = part_of(&s->q, data->grad[0]);
	ret->part[1] = part_of(&s->k, data->grad[1]);
	ret->part[2] = part_of(&s->v, data->grad[2]);
	ret->batch = (int)s->batch;
	ret->seq = (int)s->seq;
	ret->keys = (int)s->keys;
	ret->heads = (int)s->heads;
	ret->groups = (int)s->groups;
	ret->depth = (int)s->depth;
	ret->type = s->type == CUDNN_DATA_HALF ? CUDA_F16 : CUDA_BF16;
	ret->causal = s->causal;
	ret->dy = data->dy;
	return 0;
}

bool cuda_forward_take(const struct cuda_dev *dev, const struct dnn_attention_shape *s)
{
	return cuda_tiles_take(dev, s) && s->depth <= 2 * BOX;
}

int cuda_forward_describe(const struct cuda_dev *dev, const struct dnn_attention_shape *s,
	void *const part[3], struct cuda_attention_forward *ret, struct jm_err *err)
{
	if (!describe_parts(s, part, ret->boxes))
		return refused("attention", err);
	ret->batch = (int)s->batch;
	ret->seq = (int)s->seq;
	ret->keys = (int)s->keys;
	ret->heads = (int)s->heads;
	ret->groups = (int)s->groups;
	ret->depth = (int)s->depth;
	ret->type = s->type == CUDNN_DATA_HALF ? CUDA_F16 : CUDA_BF16;
	ret->causal = s->causal;
	ret->processors = dev->prop.multiProcessorCount;
	return 0;
}
