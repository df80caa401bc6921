/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the operands of attention_tiles.cu to its copies. */
#include "attention_tiles.h"

#include "backends/cuda/device/cuda.h"

#define BOX 64 /* rows and columns */

bool cuda_tiles_take(const struct cuda_dev *dev, const struct dnn_attention_shape *s)
{
	return dev->prop.major == 9 && dev->prop.minor == 0 && s->type == CUDNN_DATA_BFLOAT16 &&
	       (s->depth == 64 || s->depth == 128 || s->depth == 256) && cuda_tensor_map_exist();
}

size_t cuda_tiles_scratch(const struct dnn_attention_shape *s)
{
	return 2 * sizeof(float) * (size_t)(s->batch * s->heads * cuda_attention_padded(s->seq));
}

/* The tensor [batch,seq,columns] in 16 bits at `data`. */
static bool describe(const struct dnn_attention_shape *s, const void *data, int64_t columns,
	struct cuda_tensor_map *ret)
{
	const struct cuda_tensor_map_shape boxes = {
		.rank = 3, .dim = {columns, s->seq, s->batch}, .box = {BOX, BOX, 1}};

	return cuda_tensor_map_describe(&boxes, data, ret);
}

int cuda_tiles_describe(const struct dnn_attention_shape *s, void *qkv, void *dy,
	struct cuda_attention_tiles *ret, struct jm_err *err)
{
	if (!describe(s, qkv, (s->heads + 2 * s->groups) * s->depth, &ret->qkv_boxes) ||
		!describe(s, dy, s->heads * s->depth, &ret->dy_boxes))
		return jm_err_set(err, JM_ENOSUP,
			"The driver does not describe the operands of attention-grad for copies by "
			"boxes.");
	ret->batch = (int)s->batch;
	ret->seq = (int)s->seq;
	ret->heads = (int)s->heads;
	ret->groups = (int)s->groups;
	ret->depth = (int)s->depth;
	ret->causal = s->causal;
	return 0;
}
