/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake CUDA runtime for the backend's C code: it uses host memory, makes copies at once or as
 * late as allowed (cuda_streams.c), computes nothing, and produces faults that a real GPU does not
 * have on demand. Configured by JM_FAKE_CUDA="gpus=4;cc=75@1;...":
 *
 *	gpus=N			(1)
 *	order=2031		GPU i has the UUID and bus address of the fake NVML's GPU of the
 *				i-th digit
 *	mig=1			each GPU is an instance of one, with a UUID of its own
 *	cc=75@1			GPU 1 is of compute capability 7.5 (else 9.0)
 *	shared=KB		a block may have that much shared memory (227)
 *	count=CODE		cudaGetDeviceCount returns that error: 35 driver too old (of CUDA
 *				11.4), 100 no device...
 *	driver=V		version that the driver reports (13000); 0 = no driver
 *	open=CODE@1		the first stream on GPU 1 returns that error: 2 memory held, 46
 *				exclusive mode
 *	held=MB			another process holds that many MB of the 80 GiB on each GPU
 *	late=1			queued work is done when the host waits for it, and no sooner
 *	copies=CODE@N		the N-th copy returns that error, and so does every call after it
 *	kernels=CODE@N		likewise for the N-th kernel of cuda_kernels.c, whose error comes
 *				when the host waits
 *	graphs=1		work can be recorded; the recorded graph does nothing
 *	peers=CODE		access between GPUs returns that error when it is enabled; 0 = it is
 *				not possible at all
 *	lost=N			copies from another GPU to GPU N lose their last byte
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "backends/cuda/choose/conv_plan.h"
#include "backends/cuda/device/cuda.h"
#include "backends/cuda/ops/ops.h"
#include "backends/cuda/ops/attention_plans.h"
#include "backends/cuda/ops/ops_rope.h"
#include "cuda_fake.h"

/* The header's parameters have names of one letter, some of them with underscores. */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

struct fake_cuda fake_cuda;

bool fake_cuda_configured(const char *name, int *ret_a, int *ret_b)
{
	const char *text = getenv("JM_FAKE_CUDA"), *at;
	size_t n = strlen(name);

	for (at = text; at && *at; at += strcspn(at, ";"), at += *at == ';') {
		if (strncmp(at, name, n) != 0 || at[n] != '=')
			continue;
		*ret_a = atoi(at + n + 1);
		at += strcspn(at, "@;");
		*ret_b = *at == '@' ? atoi(at + 1) : -1;
		return true;
	}
	return false;
}

static int one(const char *name, int fallback)
{
	int value, of;

	return fake_cuda_configured(name, &value, &of) ? value : fallback;
}

size_t fake_cuda_shared(void)
{
	return (size_t)one("shared", 227) << 10;
}

static int number_in_nvml(int gpu)
{
	const char *order = getenv("JM_FAKE_CUDA");

	order = order ? strstr(order, "order=") : NULL;
	return order ? order[6 + gpu] - '0' : gpu;
}

/* ---- devices --------------------------------------------------------------------------------- */

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = one("driver", one("count", 0) == cudaErrorInsufficientDriver ? 11040 : 13000);
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = 13000;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = one("gpus", 1);
	return (cudaError_t)one("count", 0);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int gpu)
{
	unsigned int n = (unsigned int)number_in_nvml(gpu);
	unsigned int first = 0x10000000u * (n % 16) + n;
	const unsigned char uuid[16] = {(unsigned char)(first >> 24), (unsigned char)(first >> 16),
		(unsigned char)(first >> 8), (unsigned char)first, 0xfa, 0x4e, 0x40, 0, 0x80, 0, 0,
		0, 0, 0, (unsigned char)(n >> 8), (unsigned char)n};
	int cc, of;
	bool other = fake_cuda_configured("cc", &cc, &of) && of == gpu;

	memset(prop, 0, sizeof *prop);
	memcpy(prop->uuid.bytes, uuid, sizeof uuid);
	if (one("mig", 0))
		prop->uuid.bytes[4] = 0x16;
	snprintf(
		prop->name, sizeof prop->name, "%s", other ? "NVIDIA T4" : "NVIDIA H100 80GB HBM3");
	prop->major = other ? cc / 10 : 9;
	prop->minor = other ? cc % 10 : 0;
	prop->multiProcessorCount = 132;
	prop->sharedMemPerBlockOptin = fake_cuda_shared();
	return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *bus, int size, int gpu)
{
	snprintf(bus, (size_t)size, "0000:%02x:00.0", 0x1a + number_in_nvml(gpu));
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int gpu)
{
	fake_cuda.gpu = gpu;
	return fake_cuda.broken;
}

/* What other processes leave; this process's own memory is not counted. */
static size_t free_bytes(void)
{
	return ((size_t)80 << 30) - ((size_t)one("held", 10240) << 20);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
	*available = free_bytes();
	*total = (size_t)80 << 30;
	return fake_cuda.broken;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t last = fake_cuda.last;

	fake_cuda.last = cudaSuccess;
	return fake_cuda.broken ? fake_cuda.broken : last;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int gpu, int peer)
{
	*can = gpu != peer && one("peers", 1) != 0;
	return fake_cuda.broken;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	int code = one("peers", 1);

	(void)flags;
	if (peer == fake_cuda.gpu)
		return cudaErrorInvalidDevice;
	return code > 1 ? (cudaError_t)code : fake_cuda.broken;
}

const char *cudaGetErrorName(cudaError_t rc)
{
	return rc == cudaErrorECCUncorrectable ? "cudaErrorECCUncorrectable" : "cudaErrorOfAFake";
}

const char *cudaGetErrorString(cudaError_t rc)
{
	return rc == cudaErrorECCUncorrectable	 ? "uncorrectable ECC error encountered"
	       : rc == cudaErrorMemoryAllocation ? "out of memory"
						 : "some error";
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Before each piece of memory stands which GPU it is on; -1 = the host. */
#define BEFORE 256
/* Larger pieces, of which plans ask for tens of GB, are mapped: malloc may fill what it gives, as
 * MALLOC_PERTURB_ asks it to. */
#define MAPPED_FROM ((size_t)64 << 20)

struct before {
	int gpu;
	size_t mapped; /* bytes; 0 = by malloc */
};

static void *piece(size_t bytes, size_t *ret_mapped)
{
	void *all;

	*ret_mapped = bytes >= MAPPED_FROM ? bytes : 0;
	if (!*ret_mapped)
		return aligned_alloc(256, bytes);
	all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		-1, 0);
	return all == MAP_FAILED ? NULL : all;
}

static cudaError_t take(void **memory, size_t bytes, int gpu)
{
	struct before b = {.gpu = gpu};
	char *all = fake_cuda.broken ? NULL : piece((bytes + 256) / 256 * 256 + BEFORE, &b.mapped);

	*memory = all ? all + BEFORE : NULL;
	if (all)
		memcpy(all, &b, sizeof(b));
	return fake_cuda.broken ? fake_cuda.broken : all ? cudaSuccess : cudaErrorMemoryAllocation;
}

static void give(void *memory)
{
	char *all = (char *)memory - BEFORE;
	struct before b;

	memcpy(&b, all, sizeof(b));
	if (b.mapped)
		munmap(all, b.mapped);
	else
		free(all);
}

bool fake_cuda_is_on(const void *memory, int gpu)
{
	struct before b;

	memcpy(&b, (const char *)memory - BEFORE, sizeof(b));
	return b.gpu == gpu;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	if (bytes > free_bytes())
		return cudaErrorMemoryAllocation;
	return take(memory, bytes, fake_cuda.gpu);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
	return take(memory, bytes, -1);
}

cudaError_t cudaFree(void *memory)
{
	if (memory)
		give(memory);
	return fake_cuda.broken;
}

cudaError_t cudaFreeHost(void *memory)
{
	return cudaFree(memory);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags)
{
	(void)memory;
	(void)bytes;
	(void)flags;
	return fake_cuda.broken;
}

cudaError_t cudaHostUnregister(void *memory)
{
	(void)memory;
	return fake_cuda.broken;
}

cudaError_t cudaHostGetDevicePointer(void **ret, void *memory, unsigned int flags)
{
	(void)flags;
	*ret = memory;
	return fake_cuda.broken;
}

#ifndef WITH_KERNELS /* cuda_kernels.c */
/* ---- kernels: none --------------------------------------------------------------------------- */

const struct cuda_op *cuda_op_find(
	struct cuda_dev *dev, const struct jm_group *group, uint32_t *ret_row, struct jm_err *err)
{
	(void)dev;
	(void)ret_row;
	jm_err_set(err, JM_ENOSUP, "The fake runtime computes nothing, so no %s on GPU %d.",
		jm_op_name(group->node[0]->op), fake_cuda.gpu);
	return NULL;
}

const struct cuda_op *cuda_op_row(uint32_t row)
{
	(void)row;
	return NULL;
}

void cuda_conv_drop(struct cuda_dev *dev)
{
	(void)dev;
}

void cuda_attention_plans_free(struct cuda_dev *dev)
{
	(void)dev;
}

void cuda_angles_free(struct cuda_dev *dev)
{
	(void)dev;
}

void cuda_pointwise(const struct cuda_pointwise *p, cudaStream_t stream)
{
	(void)p;
	(void)stream;
}
#endif

/* ---- in place of clock.cu -------------------------------------------------------------------- */

/* As the GPU's clock: the host's. */
static uint64_t device_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void cuda_stamp_start(uint64_t *to, cudaStream_t stream)
{
	(void)stream;
	*to = device_now();
}

/* Nobody answers round by round; the first answer is there before it is asked for. */
void cuda_exchange_start(struct cuda_exchange *x, uint32_t rounds, cudaStream_t stream)
{
	(void)rounds;
	(void)stream;
	x->time = device_now();
	x->told = 1;
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
