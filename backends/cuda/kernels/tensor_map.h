/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's descriptions of tensors, from which the device copies boxes to shared memory
 * (hopper.cuh). */
#ifndef JM_CUDA_TENSOR_MAP_H
#define JM_CUDA_TENSOR_MAP_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_TENSOR_MAP_RANK 4

/* A description; as kernels take it, a CUtensorMap. */
struct cuda_tensor_map {
	uint64_t word[16];
} __attribute__((aligned(64)));

/* Tensors and boxes; the first dimension is contiguous, and the box has 128 bytes of it. */
struct cuda_tensor_map_shape {
	bool f32; /* else 16 bits */
	int rank;
	int64_t dim[CUDA_TENSOR_MAP_RANK];
	int box[CUDA_TENSOR_MAP_RANK];
	int64_t step[CUDA_TENSOR_MAP_RANK]; /* elements to the next; 0 = those of all before */
};

/* False if the driver is too old (before CUDA 12.0) or absent. */
bool cuda_tensor_map_exist(void);
/* False if the driver refuses. What lies outside of the tensor is copied as 0. */
bool cuda_tensor_map_describe(
	const struct cuda_tensor_map_shape *s, const void *data, struct cuda_tensor_map *ret);

#ifdef __cplusplus
}
#endif

#endif
