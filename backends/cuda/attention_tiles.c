/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of tensors for the copies of attention_tiles.cu, which the driver makes. */
#include <cuda.h>
#include <stddef.h>
#include <string.h>

#include "attention_tiles.h"
#include "cuda.h"
#include "vendor/library.h"

#define BOX 64 /* rows and columns: 128 bytes per row, as the swizzle needs */

struct calls {
	__typeof__(&cuTensorMapEncodeTiled) encode;
};

static const struct jm_symbol symbols[] = {
	{"cuTensorMapEncodeTiled", offsetof(struct calls, encode)}};

static const struct jm_library driver = {
	.title = "NVIDIA's driver",
	.names = {"libcuda.so.1"},
	.symbols = symbols,
	.n_symbols = 1,
	.mend = "descriptions of boxes need a driver of CUDA 12.0 or newer (525)",
};

bool cuda_tiles_take(const struct cuda_dev *dev, const struct dnn_attention_shape *s)
{
	struct calls c;

	return dev->prop.major == 9 && dev->prop.minor == 0 && s->type == CUDNN_DATA_BFLOAT16 &&
	       (s->depth == 64 || s->depth == 128 || s->depth == 256) &&
	       !jm_library_open(&driver, &c, NULL);
}

size_t cuda_tiles_scratch(const struct dnn_attention_shape *s)
{
	return 2 * sizeof(float) * (size_t)(s->batch * s->heads * cuda_attention_padded(s->seq));
}

/* The tensor [batch,seq,columns] in 16 bits at `data`. */
static bool describe(const struct calls *c, const struct dnn_attention_shape *s, void *data,
	int64_t columns, struct cuda_boxes *ret)
{
	const cuuint64_t width = (cuuint64_t)columns, seq = (cuuint64_t)s->seq;
	const cuuint64_t dim[3] = {width, seq, (cuuint64_t)s->batch};
	const cuuint64_t stride[2] = {2 * width, 2 * width * seq};
	const cuuint32_t box[3] = {BOX, BOX, 1}, step[3] = {1, 1, 1};
	CUtensorMap map;

	_Static_assert(sizeof map == sizeof *ret, "a description has 128 bytes");
	if (c->encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, data, dim, stride, box, step,
		    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
		return false;
	memcpy(ret, &map, sizeof map);
	return true;
}

int cuda_tiles_describe(const struct dnn_attention_shape *s, void *qkv, void *dy,
	struct cuda_attention_tiles *ret, struct jm_err *err)
{
	struct calls c;
	int code = jm_library_open(&driver, &c, err);

	if (code)
		return code;
	if (!describe(&c, s, qkv, (s->heads + 2 * s->groups) * s->depth, &ret->qkv_boxes) ||
		!describe(&c, s, dy, s->heads * s->depth, &ret->dy_boxes))
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
