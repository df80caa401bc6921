/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of a GPU, and the memory that stays allocated until it is closed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"
#include "gpu.h"
#include "math_library.h"

/* Bytes of free memory that are left for what loads later: kernels, cuBLASLt and cuDNN. */
#define RESERVE ((size_t)768 << 20)

/*
 * More than what the context of this process takes, so that memory which is in use beyond it is
 * that of other processes. On an H100 the process took 0.5 to 0.6 GB beside its plan.
 */
#define CONTEXT ((size_t)1 << 30)

/*
 * Dense peaks, operations and bytes per second, by a part of the GPU's name; the first row that
 * matches is used. From NVIDIA's data sheets: "H100 Tensor Core GPU" (2023), "H200 Tensor Core GPU"
 * (2024), "GH200 Grace Hopper Superchip" (2024), "A100 Tensor Core GPU" (2021). f32 is the rate of
 * multiply-adds without tensor cores. f8 is the rate of products in 8 bits, which Ampere does not
 * support (0).
 */
static const struct chip {
	const char *part;
	double bf16, tf32, f32, bytes, f8;
} chips[] = {
	{"GH200 144G", 989.4e12, 494.7e12, 66.9e12, 4.9e12, 1978.9e12},
	{"GH200", 989.4e12, 494.7e12, 66.9e12, 4.0e12, 1978.9e12},
	{"H200 NVL", 835.5e12, 417.7e12, 60e12, 4.8e12, 1670.9e12},
	{"H200", 989.4e12, 494.7e12, 66.9e12, 4.8e12, 1978.9e12},
	{"H100 NVL", 835.5e12, 417.7e12, 60e12, 3.9e12, 1670.9e12},
	{"H100 PCIe", 756e12, 378e12, 51e12, 2.0e12, 1513e12},
	{"H100 80GB HBM3", 989.4e12, 494.7e12, 66.9e12, 3.35e12, 1978.9e12},
	{"A100-SXM4-80GB", 312e12, 156e12, 19.5e12, 2.039e12, 0},
	{"A100 80GB PCIe", 312e12, 156e12, 19.5e12, 1.935e12, 0},
	{"A100-SXM4-40GB", 312e12, 156e12, 19.5e12, 1.555e12, 0},
	{"A100-PCIE-40GB", 312e12, 156e12, 19.5e12, 1.555e12, 0},
};

/* NULL = not listed. */
static const struct chip *chip_of(const struct cuda_dev *dev)
{
	for (size_t i = 0; i < sizeof chips / sizeof *chips; i++)
		if (strstr(dev->prop.name, chips[i].part))
			return &chips[i];
	return NULL;
}

double cuda_flops_per_byte(const struct cuda_dev *dev)
{
	const struct chip *c = chip_of(dev);

	return c ? c->bf16 / c->bytes : NAN;
}

bool cuda_has_f8(const struct cuda_dev *dev)
{
	return 10 * dev->prop.major + dev->prop.minor >= 89;
}

void cuda_props(void *arg, struct jm_device_props *ret)
{
	const struct cuda_dev *dev = arg;
	const struct chip *c = chip_of(dev);
	size_t available = 0, total = 0;

	*ret = (struct jm_device_props){.peak_bytes = NAN};
	snprintf(ret->name, sizeof ret->name, "%.44s %s", dev->prop.name, dev->uuid);
	snprintf(ret->uuid, sizeof ret->uuid, "%s", dev->uuid);
	if (cudaDeviceGetPCIBusId(ret->bus, sizeof ret->bus, dev->index))
		*ret->bus = 0;
	if (!cudaMemGetInfo(&available, &total)) {
		ret->memory_bytes = available > RESERVE ? available - RESERVE : 1;
		ret->memory_alone =
			total > RESERVE + CONTEXT ? total - RESERVE - CONTEXT : ret->memory_bytes;
	}
	for (int i = 0; i < JM_DTYPE_COUNT; i++)
		ret->peak_flops[i] = NAN;
	ret->native[JM_F32] = ret->native[JM_BF16] = true;
	ret->native[JM_F16] = ret->native[JM_I32] = true;
	ret->native[JM_F8E4M3] = ret->native[JM_F8E5M2] = cuda_has_f8(dev);
	if (!c)
		return;
	ret->peak_flops[JM_BF16] = ret->peak_flops[JM_F16] = c->bf16;
	ret->peak_flops[JM_F8E4M3] = ret->peak_flops[JM_F8E5M2] = c->f8 > 0 ? c->f8 : NAN;
	ret->peak_flops[JM_F32] = c->f32;
	ret->peak_tf32 = c->tf32;
	ret->peak_bytes = c->bytes;
}

#define LOST                                                                                       \
	"The GPU is lost to this process; the system's log (dmesg, NVRM: Xid) says what happened"
#define DEFECT                                                                                     \
	", after which this process cannot use the GPU any more. This is a defect of a kernel or " \
	"of the GPU; please report it with the command and the system's log (dmesg, NVRM: Xid)"

/*
 * For some errors of CUDA: joulemark's code, and what the user can do. JM_EGONE: the error ends the
 * context, and every later call returns it (driver_types.h: "leaves the process in an inconsistent
 * state"); the other devices' processes go on.
 */
static const struct {
	cudaError_t rc;
	int code;
	const char *mend;
} faults[] = {
	{cudaErrorMemoryAllocation, JM_ENOMEM,
		"Another process may hold the GPU's memory; 'nvidia-smi' lists them"},
	{cudaErrorDevicesUnavailable, JM_EPERM,
		"The GPU is in an exclusive or prohibited compute mode and in use, or it has "
		"fallen off the bus; see 'nvidia-smi -q -d COMPUTE'"},
	{cudaErrorECCUncorrectable, JM_EGONE,
		"Memory of the GPU had an error that ECC cannot correct; drain the node, reset the "
		"GPU "
		"and see 'nvidia-smi -q -d ECC,ROW_REMAPPER'"},
	{cudaErrorContained, JM_EGONE,
		"Memory of the GPU had an error that ended the processes that accessed it; see "
		"'nvidia-smi -q -d ECC,ROW_REMAPPER'"},
	{cudaErrorNvlinkUncorrectable, JM_EGONE,
		"An NVLink had an error that cannot be corrected; see 'nvidia-smi nvlink -e'"},
	{cudaErrorDeviceUninitialized, JM_EGONE, LOST},
	{cudaErrorUnknown, JM_EGONE, LOST},
	{cudaErrorLaunchFailure, JM_EGONE, LOST},
	{cudaErrorExternalDevice, JM_EGONE, LOST},
	{cudaErrorMpsClientTerminated, JM_EGONE,
		"The MPS server ended this process's use of the GPU; its log says why "
		"(CUDA_MPS_LOG_DIRECTORY)"},
	{cudaErrorIllegalAddress, JM_EGONE, "A kernel accessed memory outside its buffers" DEFECT},
	{cudaErrorMisalignedAddress, JM_EGONE, "A kernel accessed a misaligned address" DEFECT},
	{cudaErrorInvalidAddressSpace, JM_EGONE,
		"A kernel accessed memory of the wrong address space" DEFECT},
	{cudaErrorIllegalInstruction, JM_EGONE, "A kernel contained an illegal instruction" DEFECT},
	{cudaErrorInvalidPc, JM_EGONE, "A kernel jumped to an address outside its code" DEFECT},
	{cudaErrorHardwareStackError, JM_EGONE, "The call stack of a kernel was damaged" DEFECT},
	{cudaErrorAssert, JM_EGONE, "An assertion in a kernel failed" DEFECT},
	{cudaErrorTensorMemoryLeak, JM_EGONE, "A kernel kept its tensor memory" DEFECT},
	{cudaErrorLaunchTimeout, JM_EGONE,
		"A kernel took longer than the limit of a GPU that drives a display, after which "
		"this process cannot use the GPU any more; use a GPU without a display"},
	{cudaErrorNoKernelImageForDevice, JM_ENOSUP,
		"The plug-in has no code for this GPU; build it with a CUDA toolkit that supports "
		"it"},
};

int cuda_check(const struct cuda_dev *dev, cudaError_t rc, const char *what, struct jm_err *err)
{
	const char *mend = "The system's log (dmesg, NVRM: Xid) may say more";
	int code = JM_EIO;

	if (rc == cudaSuccess)
		return 0;
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		if (faults[i].rc == rc) {
			code = faults[i].code;
			mend = faults[i].mend;
		}
	return jm_err_set(err, code, "%s failed on cuda:%d: %s (%s). %s.", what, dev->index,
		cudaGetErrorString(rc), cudaGetErrorName(rc), mend);
}

/* cuDNN may not be open yet, so it is loaded here to read its version. */
void cuda_versions(void *arg, char *ret, size_t size)
{
	struct cuda_dev *dev = arg;
	struct jm_err err = JM_ERR_INIT;
	int driver = 0, runtime = 0, n;
	size_t lt = dev->lt.version;

	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	n = snprintf(ret, size,
		"compute capability %d.%d, CUDA %d.%d on a driver of CUDA %d.%d, cuBLASLt "
		"%zu.%zu.%zu",
		dev->prop.major, dev->prop.minor, runtime / 1000, runtime / 10 % 100, driver / 1000,
		driver / 10 % 100, lt / 10000, lt / 100 % 100, lt % 100);
	if (n < 0 || (size_t)n >= size)
		return;
	if (cuda_dnn_load(&dev->dnn, &err))
		snprintf(ret + n, size - (size_t)n, "; no convolutions and no fast attention: %s",
			err.text);
	else
		snprintf(ret + n, size - (size_t)n, ", cuDNN %zu.%zu.%zu", dev->dnn.version / 10000,
			dev->dnn.version / 100 % 100, dev->dnn.version % 100);
}

int cuda_started(const struct cuda_dev *dev, enum jm_op op, struct jm_err *err)
{
	cudaError_t rc = cudaGetLastError();
	char what[96];

	if (rc == cudaSuccess)
		return 0;
	snprintf(what, sizeof what, "Starting %s%s", jm_op_name(op),
		dev->n_queued ? ", or work before it," : "");
	return cuda_check(dev, rc, what, err);
}

void cuda_queued(struct cuda_dev *dev, const char *what)
{
	dev->queued = what;
	dev->n_queued++;
}

int cuda_waited(const struct cuda_dev *dev, cudaError_t rc, struct jm_err *err)
{
	char what[96] = "Work";

	if (dev->n_queued)
		snprintf(what, sizeof what, "%s%s", dev->n_queued > 1 ? "Work up to " : "",
			dev->queued);
	return cuda_check(dev, rc, what, err);
}

void cuda_timed(struct cuda_dev *dev, const char *op, const char *way, const char *key)
{
	cudaError_t rc = cudaStreamSynchronize(dev->stream);
	struct jm_err err = JM_ERR_INIT;
	char what[192];

	snprintf(what, sizeof what, "Timing %s by '%.40s' (%.100s)", op, way, key);
	if (!dev->lost.code && cuda_check(dev, rc, what, &err) == JM_EGONE)
		dev->lost = err;
}

int cuda_lost(const struct cuda_dev *dev, struct jm_err *err)
{
	if (dev->lost.code && err)
		*err = dev->lost;
	return dev->lost.code;
}

/* ---- time ------------------------------------------------------------------------------------ */

bool cuda_stopwatch_open(struct cuda_stopwatch *w)
{
	*w = (struct cuda_stopwatch){NULL, NULL};
	if (!cudaEventCreate(&w->from) && !cudaEventCreate(&w->to))
		return true;
	cuda_stopwatch_close(w);
	*w = (struct cuda_stopwatch){NULL, NULL};
	cudaGetLastError(); /* clears the error, so that the next check does not report it */
	return false;
}

void cuda_stopwatch_start(const struct cuda_stopwatch *w, cudaStream_t stream)
{
	cudaEventRecord(w->from, stream);
}

double cuda_stopwatch_stop(const struct cuda_stopwatch *w, cudaStream_t stream)
{
	float ms;

	cudaEventRecord(w->to, stream);
	if (cudaEventSynchronize(w->to) || cudaEventElapsedTime(&ms, w->from, w->to))
		return NAN;
	return ms * 1e-3;
}

void cuda_stopwatch_close(const struct cuda_stopwatch *w)
{
	if (w->from)
		cudaEventDestroy(w->from);
	if (w->to)
		cudaEventDestroy(w->to);
}

/* ---- memory that stays ----------------------------------------------------------------------- */

static struct cuda_block *keep(struct cuda_dev *dev, size_t bytes)
{
	struct cuda_block *b = calloc(1, sizeof *b);

	if (!b)
		return NULL;
	if (cudaMalloc(&b->data, bytes) || cudaMemsetAsync(b->data, 0, bytes, dev->stream) ||
		cudaStreamSynchronize(dev->stream)) { /* other queues may use the memory next */
		cudaGetLastError(); /* clears the error: a later check must not report it */
		cudaFree(b->data);
		free(b);
		return NULL;
	}
	b->bytes = bytes;
	b->next = dev->blocks;
	dev->blocks = b;
	return b;
}

void *cuda_keep(struct cuda_dev *dev, size_t bytes)
{
	const struct cuda_block *b = keep(dev, bytes);

	return b ? b->data : NULL;
}

int cuda_upload(struct cuda_dev *dev, void *to, const void *from, size_t bytes, const char *what,
	struct jm_err *err)
{
	cudaError_t rc = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, dev->stream);

	if (!rc)
		rc = cudaStreamSynchronize(dev->stream);
	return cuda_check(dev, rc, what, err);
}

/* Smaller workspaces are kept too, because groups that are already built hold their addresses. */
void *cuda_workspace(struct cuda_dev *dev, size_t bytes)
{
	if (!dev->workspace || dev->workspace->bytes < bytes) {
		struct cuda_block *b = keep(dev, bytes);

		if (!b)
			return NULL;
		dev->workspace = b;
	}
	return dev->workspace->data;
}
