/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes between GPUs through memory of the host that processes share (comm/lanes.h): streams that
 * wait for words in that memory and write them, by functions of the driver. */
#include <cuda.h>
#include <stdlib.h>

#include "comm/lanes.h"
#include "backends/cuda/kernels/kernels.h"
#include "queue.h"
#include "vendor/library.h"
#include "gpu.h"
#include "gpu_lanes.h"

/* Their names with a version are those that cuda.h maps the plain names to. */
#define SYMBOLS(X)                                                                                 \
	X(write, cuStreamWriteValue32, "cuStreamWriteValue32_v2")                                  \
	X(wait, cuStreamWaitValue32, "cuStreamWaitValue32_v2")

struct calls {
#define X(member, name, symbol) __typeof__(&name) member;
	SYMBOLS(X)
#undef X
};

static const struct jm_symbol symbols[] = {
#define X(member, name, symbol) {symbol, offsetof(struct calls, member)},
	SYMBOLS(X)
#undef X
};

static const struct jm_library driver = {
	.title = "NVIDIA's driver",
	.names = {"libcuda.so.1"},
	.symbols = symbols,
	.n_symbols = sizeof symbols / sizeof *symbols,
	.mend = "transport host needs a driver of CUDA 11.7 or newer (515); use --transport nccl",
};

struct lanes {
	struct cuda_dev *dev;
	struct calls call;
	cudaStream_t stream[JM_LANE_COUNT];
	void *shared; /* page-locked; NULL = not yet */
	char *seen;   /* its address for the device */
	void *staging;
	cudaEvent_t *mark;
	int n_marks;
};

static bool lanes_passed(void *arg)
{
	const struct lanes *l = arg;

	cudaSetDevice(l->dev->index);
	for (int i = 0; i < JM_LANE_COUNT; i++)
		if (cudaStreamQuery(l->stream[i]) == cudaErrorNotReady)
			return false;
	return true;
}

static void lanes_close(void *arg)
{
	struct lanes *l = arg;

	if (!l)
		return;
	cudaSetDevice(l->dev->index);
	for (int i = JM_LANE_SEND; i < JM_LANE_COUNT; i++)
		if (l->stream[i])
			cudaStreamDestroy(l->stream[i]);
	for (int i = 0; i < l->n_marks; i++)
		cudaEventDestroy(l->mark[i]);
	if (l->shared)
		cudaHostUnregister(l->shared);
	cudaFree(l->staging);
	free(l->mark);
	free(l);
}

static int make_marks(struct lanes *l, int n, struct jm_err *err)
{
	cudaError_t rc = 0;

	l->mark = calloc((size_t)n, sizeof(cudaEvent_t));
	if (!l->mark)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a communicator.");
	while (l->n_marks < n && !rc) {
		rc = cudaEventCreateWithFlags(&l->mark[l->n_marks], cudaEventDisableTiming);
		l->n_marks += !rc;
	}
	return cuda_check(l->dev, rc, "Making events", err);
}

static int make_streams(struct lanes *l, struct jm_err *err)
{
	void *sums;
	int code = cuda_stream(l->dev, JM_QUEUE_COMM, &sums, err);

	if (code)
		return code;
	l->stream[JM_LANE_TRANSFER] = sums;
	for (int i = JM_LANE_SEND; i < JM_LANE_COUNT && !code; i++)
		code = cuda_check(l->dev,
			cudaStreamCreateWithFlags(&l->stream[i], cudaStreamNonBlocking),
			"Making a stream", err);
	return code;
}

static int lock_pages(struct lanes *l, const struct jm_lanes_want *want, struct jm_err *err)
{
	void *seen = NULL;
	int code = cuda_check(l->dev,
		cudaHostRegister(want->shared, want->shared_bytes,
			cudaHostRegisterPortable | cudaHostRegisterMapped),
		"Page-locking memory that the ranks share", err);

	if (code)
		return code;
	l->shared = want->shared;
	code = cuda_check(l->dev, cudaHostGetDevicePointer(&seen, l->shared, 0),
		"Mapping memory that the ranks share", err);
	l->seen = seen;
	return code;
}

static int lanes_open(void *dev, const struct jm_lanes_want *want, void **ret_lanes,
	void **ret_staging, struct jm_err *err)
{
	struct lanes *l = calloc(1, sizeof(*l));
	int code;

	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a communicator.");
	l->dev = dev;
	code = jm_library_open(&driver, &l->call, err);
	if (!code)
		code = make_streams(l, err);
	if (!code)
		code = make_marks(l, want->marks, err);
	if (!code)
		code = lock_pages(l, want, err);
	if (!code)
		code = cuda_check(l->dev, cudaMalloc(&l->staging, want->staging_bytes),
			"Memory for sums over ranks", err);
	if (code) {
		lanes_close(l);
		return code;
	}
	*ret_lanes = l;
	*ret_staging = l->staging;
	return 0;
}

static int lanes_copy(
	void *arg, enum jm_lane lane, void *to, const void *from, size_t bytes, struct jm_err *err)
{
	const struct lanes *l = arg;

	cudaSetDevice(l->dev->index);
	return cuda_check(l->dev,
		cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, l->stream[lane]), "A transfer",
		err);
}

static struct cuda_vec vec(const void *data, enum jm_comm_type type)
{
	return (struct cuda_vec){.data = (void *)(uintptr_t)data,
		.type = type == JM_COMM_BF16 ? CUDA_BF16 : CUDA_F32};
}

static int compute(const struct lanes *l, const struct cuda_pointwise *p, struct jm_err *err)
{
	cudaSetDevice(l->dev->index);
	cuda_pointwise(p, l->stream[JM_LANE_TRANSFER]);
	return cuda_check(l->dev, cudaGetLastError(), "A sum over ranks", err);
}

static int lanes_add(void *arg, void *to, enum jm_comm_type type, const void *a, const void *b,
	enum jm_comm_type b_type, size_t n, struct jm_err *err)
{
	const struct cuda_pointwise p = {.map = CUDA_ADD,
		.n = (int64_t)n,
		.a = vec(a, type),
		.b = vec(b, b_type),
		.y = vec(to, type)};

	return compute(arg, &p, err);
}

static int lanes_cast(void *arg, void *to, enum jm_comm_type to_type, const void *from,
	enum jm_comm_type from_type, size_t n, struct jm_err *err)
{
	const struct cuda_pointwise p = {.map = CUDA_CAST,
		.n = (int64_t)n,
		.a = vec(from, from_type),
		.y = vec(to, to_type)};

	return compute(arg, &p, err);
}

static int lanes_mark(void *arg, int mark, enum jm_lane lane, struct jm_err *err)
{
	const struct lanes *l = arg;

	cudaSetDevice(l->dev->index);
	return cuda_check(l->dev, cudaEventRecord(l->mark[mark], l->stream[lane]), "An event", err);
}

static int lanes_follow(void *arg, int mark, enum jm_lane lane, struct jm_err *err)
{
	const struct lanes *l = arg;

	cudaSetDevice(l->dev->index);
	return cuda_check(
		l->dev, cudaStreamWaitEvent(l->stream[lane], l->mark[mark], 0), "An event", err);
}

static CUdeviceptr seen(const struct lanes *l, _Atomic uint32_t *flag)
{
	return (CUdeviceptr)(uintptr_t)(l->seen + ((char *)flag - (char *)l->shared));
}

/* The driver's results have the runtime's numbers. */
static int check(const struct lanes *l, CUresult rc, struct jm_err *err)
{
	return cuda_check(l->dev, (cudaError_t)rc, "A transfer", err);
}

static int lanes_post(
	void *arg, enum jm_lane lane, _Atomic uint32_t *flag, uint32_t value, struct jm_err *err)
{
	const struct lanes *l = arg;

	cudaSetDevice(l->dev->index);
	return check(l,
		l->call.write(l->stream[lane], seen(l, flag), value, CU_STREAM_WRITE_VALUE_DEFAULT),
		err);
}

static int lanes_await(
	void *arg, enum jm_lane lane, _Atomic uint32_t *flag, uint32_t value, struct jm_err *err)
{
	const struct lanes *l = arg;

	cudaSetDevice(l->dev->index);
	return check(l,
		l->call.wait(l->stream[lane], seen(l, flag), value, CU_STREAM_WAIT_VALUE_GEQ), err);
}

const struct jm_lanes cuda_lanes = {
	.open = lanes_open,
	.passed = lanes_passed,
	.close = lanes_close,
	.copy = lanes_copy,
	.add = lanes_add,
	.cast = lanes_cast,
	.mark = lanes_mark,
	.follow = lanes_follow,
	.post = lanes_post,
	.await = lanes_await,
};
