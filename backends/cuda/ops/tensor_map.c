/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of tensors for copies of boxes, which the driver makes. */
#include "backends/cuda/kernels/tensor_map.h"

#include <cuda.h>
#include <stddef.h>
#include <string.h>

#include "vendor/library.h"

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

bool cuda_tensor_map_exist(void)
{
	struct calls c;

	return !jm_library_open(&driver, &c, NULL);
}

bool cuda_tensor_map_describe(
	const struct cuda_tensor_map_shape *s, const void *data, struct cuda_tensor_map *ret)
{
	cuuint64_t dim[CUDA_TENSOR_MAP_RANK], stride[CUDA_TENSOR_MAP_RANK];
	cuuint32_t box[CUDA_TENSOR_MAP_RANK], step[CUDA_TENSOR_MAP_RANK];
	struct calls c;
	CUtensorMap map;

	_Static_assert(sizeof map == sizeof *ret, "a description has 128 bytes");
	for (int i = 0; i < s->rank; i++) {
		dim[i] = (cuuint64_t)s->dim[i];
		stride[i] = (i ? stride[i - 1] : s->f32 ? 4 : 2) * dim[i];
		if (i + 1 < s->rank && s->step[i + 1])
			stride[i] = (s->f32 ? 4 : 2) * (cuuint64_t)s->step[i + 1];
		box[i] = (cuuint32_t)s->box[i];
		step[i] = 1;
	}
	if (jm_library_open(&driver, &c, NULL) ||
		c.encode(&map,
			s->f32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
			(cuuint32_t)s->rank, (void *)data, dim, stride, box, step,
			CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
			CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
		return false;
	memcpy(ret, &map, sizeof map);
	return true;
}
