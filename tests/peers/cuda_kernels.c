/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of the CUDA runtime that compiled kernels need, in addition to cuda_runtime.c:
 * kernels are registered and started, but compute nothing. With them backend cuda plans every
 * program on a machine without a GPU.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fake.h"

/* The names are the compiler's.
 * NOLINTBEGIN(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier) */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
	int threads, void *tid, void *bid, void *block, void *grid, int *warp);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(
	dim3 *grid, dim3 *block, size_t *shared, cudaStream_t *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
	size_t shared, cudaStream_t stream);

void **__cudaRegisterFatBinary(void *binary)
{
	static void *one;

	one = binary;
	return &one;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
	(void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
	int threads, void *tid, void *bid, void *block, void *grid, int *warp)
{
	(void)handle, (void)host, (void)device, (void)name, (void)threads;
	(void)tid, (void)bid, (void)block, (void)grid, (void)warp;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
	int code, at;

	(void)grid, (void)block, (void)stream;
	if (shared > fake_cuda_shared())
		fake_cuda.last = cudaErrorInvalidValue;
	if (fake_cuda_configured("kernels", &code, &at) && ++fake_cuda.kernels == at)
		fake_cuda.to_come = (cudaError_t)code;
	return 1; /* the caller then starts nothing */
}

cudaError_t __cudaPopCallConfiguration(
	dim3 *grid, dim3 *block, size_t *shared, cudaStream_t *stream)
{
	(void)grid, (void)block, (void)shared, (void)stream;
	return cudaErrorNotSupported;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
	(void)kernel, (void)function;
	return cudaErrorNotSupported;
}

cudaError_t __cudaLaunchKernel(
	cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
	(void)kernel, (void)grid, (void)block, (void)args, (void)shared, (void)stream;
	return cudaErrorNotSupported;
}

cudaError_t cudaGetDevice(int *device)
{
	*device = 0;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	(void)value, (void)attribute, (void)device;
	return cudaErrorNotSupported;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *function, void **args)
{
	(void)function, (void)args;
	if (how->dynamicSmemBytes <= fake_cuda_shared())
		return cudaErrorNotSupported;
	fake_cuda.last = cudaErrorInvalidValue;
	return cudaErrorInvalidValue;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
	(void)function, (void)attribute, (void)value;
	return cudaErrorNotSupported;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
	int *blocks, const void *function, int threads, size_t shared, unsigned flags)
{
	(void)blocks, (void)function, (void)threads, (void)shared, (void)flags;
	return cudaErrorNotSupported;
}

cudaError_t cudaMemset2DAsync(
	void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
	(void)stream;
	for (size_t i = 0; i < height; i++)
		memset((char *)to + i * pitch, value, width);
	return cudaSuccess;
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier) */
