/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes between GPUs (backends/cuda/device/gpu_lanes.c) without a GPU: what they take of CUDA is
 * given back, also where any step of opening fails, and what is written to and awaited in shared
 * memory has the device's address. The functions of CUDA that they call are below.
 */
#include <cuda.h>
#include <string.h>

#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/device/queue.h"
#include "comm/lanes.h"
#include "kit/test.h"
#include "vendor/library.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/gpu_lanes.h"

#define MARKS 3
#define STEPS                                                                                      \
	(1 + 1 + 2 + MARKS + 2 +                                                                   \
		1) /* library, three streams, marks, pages and their address, staging */

/* ---- fakes ----------------------------------------------------------------------------------- */

static struct fake {
	int step, fails_at;			 /* calls that take something; 0 = none fails */
	int streams, events, registered, pieces; /* that are held */
	bool at_work;				 /* a stream is */
	cudaError_t failed;			 /* of streams */
	CUresult result;			 /* of what waits or writes */
	CUstream stream;			 /* of the last such call */
	CUdeviceptr at;
	cuuint32_t value;
	unsigned flags;
} fake;

static _Alignas(4096) char shared[4096];
static char device_view[4096], staging[64];

static bool fails(void)
{
	return ++fake.step == fake.fails_at;
}

/* The k-th stream; a handle is not read. */
static cudaStream_t stream_of(int k)
{
	return (cudaStream_t)(void *)&staging[k];
}

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */
cudaError_t cudaSetDevice(int device)
{
	assert_int_equal(device, 1);
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned int flags)
{
	assert_int_equal(flags, cudaStreamNonBlocking);
	if (fails())
		return cudaErrorMemoryAllocation;
	*ret = stream_of(1 + fake.streams++);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	assert_ptr_not_equal(stream, stream_of(0)); /* of the device's queues */
	fake.streams--;
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	return fake.at_work && stream == stream_of(1) ? cudaErrorNotReady : fake.failed;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned int flags)
{
	(void)flags;
	if (fails())
		return cudaErrorMemoryAllocation;
	fake.events++;
	*ret = NULL;
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	(void)event;
	fake.events--;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	(void)event, (void)stream;
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	(void)stream, (void)event, (void)flags;
	return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags)
{
	assert_ptr_equal(memory, shared);
	assert_int_equal(bytes, sizeof(shared));
	assert_true(flags & cudaHostRegisterMapped);
	if (fails())
		return cudaErrorMemoryAllocation;
	fake.registered++;
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
	assert_ptr_equal(memory, shared);
	fake.registered--;
	return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **ret, void *memory, unsigned int flags)
{
	(void)memory, (void)flags;
	*ret = device_view;
	return fails() ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaMalloc(void **ret, size_t bytes)
{
	(void)bytes;
	if (fails())
		return cudaErrorMemoryAllocation;
	fake.pieces++;
	*ret = staging;
	return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
	fake.pieces -= memory != NULL;
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
	void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)to, (void)from, (void)bytes, (void)kind, (void)stream;
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

void cuda_pointwise(const struct cuda_pointwise *p, cudaStream_t stream)
{
	(void)p, (void)stream;
}

int cuda_stream(void *arg, enum jm_queue queue, void **ret, struct jm_err *err)
{
	(void)arg, (void)queue;
	*ret = stream_of(0);
	return fails() ? jm_err_set(err, JM_EIO, "There is no queue.") : 0;
}

/* As that of gpu.c for one number: 700, an address that the device may not use. */
int cuda_check(const struct cuda_dev *dev, cudaError_t rc, const char *what, struct jm_err *err)
{
	(void)dev;
	return rc ? jm_err_set(err, rc == cudaErrorIllegalAddress ? JM_EGONE : JM_EIO, "%s failed.",
			    what)
		  : 0;
}

static CUresult write_or_wait(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned int flags)
{
	fake.stream = stream;
	fake.at = at;
	fake.value = value;
	fake.flags = flags;
	return fake.result;
}

int jm_library_open(const struct jm_library *library, void *calls, struct jm_err *err)
{
	CUresult (*found)(CUstream, CUdeviceptr, cuuint32_t, unsigned int) = write_or_wait;

	if (fails())
		return jm_err_set(err, JM_ENOSUP, "There is no driver.");
	assert_int_equal(library->n_symbols, 2);
	for (size_t i = 0; i < library->n_symbols; i++)
		memcpy((char *)calls + library->symbols[i].offset, &found, sizeof(found));
	return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static struct cuda_dev dev = {.index = 1};

static int open_lanes(int fails_at, void **ret, struct jm_err *err)
{
	const struct jm_lanes_want want = {.shared = shared,
		.shared_bytes = sizeof(shared),
		.staging_bytes = sizeof(staging),
		.marks = MARKS};
	void *got = NULL;
	int code;

	fake = (struct fake){.fails_at = fails_at};
	code = cuda_lanes.open(&dev, &want, ret, &got, err);
	assert_true(code || got == staging);
	return code;
}

static void assert_nothing_is_held(void)
{
	assert_int_equal(fake.streams, 0);
	assert_int_equal(fake.events, 0);
	assert_int_equal(fake.registered, 0);
	assert_int_equal(fake.pieces, 0);
}

static void each_step_of_opening_may_fail(void **unused)
{
	struct jm_err err;
	void *lanes = NULL;

	(void)unused;
	for (int at = 1; at <= STEPS; at++) {
		err = (struct jm_err)JM_ERR_INIT;
		assert_int_not_equal(open_lanes(at, &lanes, &err), 0);
		assert_true(*err.text);
		assert_null(lanes);
		assert_nothing_is_held();
	}
	err = (struct jm_err)JM_ERR_INIT;
	assert_ok(open_lanes(STEPS + 1, &lanes, &err), err);
	assert_int_equal(fake.step, STEPS);
	assert_int_equal(fake.streams, 2);
	cuda_lanes.close(lanes);
	assert_nothing_is_held();
	cuda_lanes.close(NULL);
}

static void flags_have_the_address_of_the_device(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	_Atomic uint32_t *flag = (_Atomic uint32_t *)(void *)(shared + 128);
	void *lanes;

	(void)unused;
	assert_ok(open_lanes(0, &lanes, &err), err);
	assert_ok(cuda_lanes.post(lanes, JM_LANE_SEND, flag, 7, &err), err);
	assert_int_equal(fake.at, (uintptr_t)(device_view + 128));
	assert_int_equal(fake.value, 7);
	assert_int_equal(
		fake.flags, CU_STREAM_WRITE_VALUE_DEFAULT); /* after the copies before it */
	assert_ptr_equal(fake.stream, stream_of(1));
	assert_ok(cuda_lanes.await(lanes, JM_LANE_RECEIVE, flag, 8, &err), err);
	assert_int_equal(fake.at, (uintptr_t)(device_view + 128));
	assert_int_equal(fake.value, 8);
	assert_int_equal(fake.flags, CU_STREAM_WAIT_VALUE_GEQ);
	assert_ptr_equal(fake.stream, stream_of(2));
	cuda_lanes.close(lanes);
}

/* A device that has failed does no more work, so that nobody waits for it. */
static void work_that_is_left_is_seen(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	void *lanes;

	(void)unused;
	assert_ok(open_lanes(0, &lanes, &err), err);
	assert_true(cuda_lanes.passed(lanes));
	fake.at_work = true;
	assert_false(cuda_lanes.passed(lanes));
	fake.at_work = false;
	fake.failed = cudaErrorIllegalAddress;
	assert_true(cuda_lanes.passed(lanes));
	cuda_lanes.close(lanes);
}

/* Then the device is at fault and not the work. */
static void a_lost_device_is_told_as_such(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	_Atomic uint32_t *flag = (_Atomic uint32_t *)(void *)shared;
	void *lanes;

	(void)unused;
	assert_ok(open_lanes(0, &lanes, &err), err);
	fake.result = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(cuda_lanes.await(lanes, JM_LANE_RECEIVE, flag, 1, &err), JM_EGONE);
	fake.result = CUDA_ERROR_INVALID_VALUE;
	assert_int_equal(cuda_lanes.post(lanes, JM_LANE_SEND, flag, 1, &err), JM_EIO);
	cuda_lanes.close(lanes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_step_of_opening_may_fail),
		cmocka_unit_test(flags_have_the_address_of_the_device),
		cmocka_unit_test(work_that_is_left_is_seen),
		cmocka_unit_test(a_lost_device_is_told_as_such),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
