/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of GPUs that other processes of the host have open, through handles of CUDA's IPC. */
#include <string.h>

#include "queue.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(struct jm_shared), "the size of a handle");

static int offer(void *arg, void *memory, struct jm_shared *ret, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	cudaIpcMemHandle_t handle;
	int code;

	cudaSetDevice(dev->index);
	code = cuda_check(
		dev, cudaIpcGetMemHandle(&handle, memory), "Offering memory to other ranks", err);
	if (!code)
		memcpy(ret, &handle, sizeof(handle));
	return code;
}

static int map(void *arg, const struct jm_shared *from, void **ret, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	cudaIpcMemHandle_t handle;
	cudaError_t rc;

	memcpy(&handle, from, sizeof(handle));
	cudaSetDevice(dev->index);
	rc = cudaIpcOpenMemHandle(ret, handle, cudaIpcMemLazyEnablePeerAccess);
	if (rc)
		cudaGetLastError(); /* clears the error: the caller goes another way */
	if (!rc)
		return 0;
	return jm_err_set(err, JM_ENOSUP, "Memory of another rank cannot be mapped: %s.",
		cudaGetErrorString(rc));
}

static void unmap(void *arg, void *memory)
{
	struct cuda_dev *dev = arg;

	cudaSetDevice(dev->index);
	cudaIpcCloseMemHandle(memory);
}

static int add(
	void *arg, enum jm_queue queue, void *to, const void *from, size_t n, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	struct cuda_pointwise p = {.map = CUDA_CAST,
		.n = (int64_t)n,
		.a = {(void *)(uintptr_t)from, CUDA_F32},
		.y = {to, CUDA_F32},
		.accumulate = true};
	void *stream;
	int code = cuda_stream(dev, queue, &stream, err);

	if (code)
		return code;
	cuda_pointwise(&p, stream);
	return cuda_check(dev, cudaGetLastError(), "Adding gradients of another rank", err);
}

const struct jm_backend_share cuda_share = {.offer = offer, .map = map, .unmap = unmap, .add = add};
