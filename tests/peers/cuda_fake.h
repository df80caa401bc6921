/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fake CUDA runtime share. */
#ifndef JM_TEST_CUDA_FAKE_H
#define JM_TEST_CUDA_FAKE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

extern struct fake_cuda {
	int gpu, copies, kernels;
	cudaError_t last;    /* of a kernel that was not started; cudaGetLastError clears it */
	cudaError_t to_come; /* of a kernel that the host has not waited for */
	cudaError_t broken;  /* what every call returns from now on */
} fake_cuda;

/* "name=A@B" of JM_FAKE_CUDA, B = -1 where it is omitted; false: it is not there. */
bool fake_cuda_configured(const char *name, int *ret_a, int *ret_b);

/* Bytes of shared memory that a block may have. */
size_t fake_cuda_shared(void);

/* Is the beginning of a piece of memory on that GPU? -1 = on the host. */
bool fake_cuda_is_on(const void *memory, int gpu);

#endif
