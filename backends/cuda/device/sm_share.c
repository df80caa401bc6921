/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A share of the multiprocessors: the compute stream is made in a green context of the driver (CUDA
 * 12.4 or newer), so that kernels of that stream, also those of graphs recorded on it, run on these
 * multiprocessors only. Timing runs use the same multiprocessors, and their number is part of the
 * plan cache's key.
 */
#include <cuda.h>
#include <math.h>

#include "sm_share.h"
#include "vendor/library.h"

#define GREEN_SYMBOLS(X)                                                                           \
	X(cuDeviceGet)                                                                             \
	X(cuDeviceGetDevResource)                                                                  \
	X(cuDevSmResourceSplitByCount)                                                             \
	X(cuDevResourceGenerateDesc)                                                               \
	X(cuGreenCtxCreate)                                                                        \
	X(cuGreenCtxDestroy)                                                                       \
	X(cuGreenCtxStreamCreate)                                                                  \
	X(cuGetErrorString)

struct calls {
#define X(name) __typeof__(&name) name;
	GREEN_SYMBOLS(X)
#undef X
};

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct calls, name)},
	GREEN_SYMBOLS(X)
#undef X
};

static const struct jm_library driver = {
	.title = "NVIDIA's driver",
	.names = {"libcuda.so.1"},
	.symbols = symbols,
	.n_symbols = sizeof symbols / sizeof *symbols,
	.mend = "a share of the multiprocessors needs a driver of CUDA 12.4 or newer (550)",
};

static int check(const struct cuda_dev *dev, const struct calls *c, CUresult rc, const char *what,
	struct jm_err *err)
{
	const char *text = NULL;

	if (!rc)
		return 0;
	c->cuGetErrorString(rc, &text);
	return jm_err_set(err, rc == CUDA_ERROR_NOT_SUPPORTED ? JM_ENOSUP : JM_EIO,
		"%s failed on cuda:%d: %s; omit the share of the multiprocessors.", what,
		dev->index, text ? text : "unknown error");
}

/* The count nearest to the share that the driver can split off: a multiple of its step, and at
 * least its smallest part. */
static unsigned int count_of(const CUdevSmResource *all, double share)
{
	unsigned int unit = all->smCoscheduledAlignment ? all->smCoscheduledAlignment : 1;
	unsigned int n = unit * (unsigned int)lround(share * all->smCount / unit);
	unsigned int most = all->smCount / unit * unit;

	if (n < all->minSmPartitionSize)
		n = all->minSmPartitionSize;
	return n < most ? n : most;
}

static int split(struct cuda_dev *dev, const struct calls *c, double share, CUdevResource *ret,
	CUdevResourceDesc *ret_desc, struct jm_err *err)
{
	CUdevResource all;
	unsigned int groups = 1;
	CUdevice device;
	int code = check(dev, c, c->cuDeviceGet(&device, dev->index), "Finding the device", err);

	if (!code)
		code = check(dev, c,
			c->cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM),
			"Asking for the multiprocessors", err);
	if (!code)
		code = check(dev, c,
			c->cuDevSmResourceSplitByCount(
				ret, &groups, &all, NULL, 0, count_of(&all.sm, share)),
			"Splitting the multiprocessors", err);
	if (!code)
		code = check(dev, c, c->cuDevResourceGenerateDesc(ret_desc, ret, 1),
			"Describing a share of the multiprocessors", err);
	return code;
}

static int make_stream(struct cuda_dev *dev, const struct calls *c, CUdevResourceDesc desc,
	CUstream *ret, struct jm_err *err)
{
	CUgreenCtx context = NULL;
	CUdevice device;
	int code = check(dev, c, c->cuDeviceGet(&device, dev->index), "Finding the device", err);

	if (!code)
		code = check(dev, c,
			c->cuGreenCtxCreate(&context, desc, device, CU_GREEN_CTX_DEFAULT_STREAM),
			"Making a context of a share of the multiprocessors", err);
	if (code)
		return code;
	code = check(dev, c, c->cuGreenCtxStreamCreate(ret, context, CU_STREAM_NON_BLOCKING, 0),
		"Making a stream on a share of the multiprocessors", err);
	if (code)
		c->cuGreenCtxDestroy(context);
	else
		dev->green = context;
	return code;
}

int cuda_restrict(void *arg, double share, int *ret_units, int *ret_of, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	struct calls c;
	CUdevResource part;
	CUdevResourceDesc desc;
	CUstream stream;
	int code = jm_library_open(&driver, &c, err);

	cudaSetDevice(dev->index);
	if (!code)
		code = split(dev, &c, share, &part, &desc, err);
	if (!code)
		code = make_stream(dev, &c, desc, &stream, err);
	if (code)
		return code;
	*ret_of = dev->prop.multiProcessorCount;
	*ret_units = (int)part.sm.smCount;
	cudaStreamDestroy(dev->stream);
	dev->stream = (cudaStream_t)stream;
	dev->prop.multiProcessorCount = *ret_units;
	return 0;
}

/* To be called after the stream of the context is destroyed. */
void cuda_sm_share_drop(struct cuda_dev *dev)
{
	struct calls c;

	if (dev->green && !jm_library_open(&driver, &c, NULL))
		c.cuGreenCtxDestroy(dev->green);
	dev->green = NULL;
}
