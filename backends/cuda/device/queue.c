/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of a GPU, each of which is a stream: copies, events and pinned memory. */
#include <stdlib.h>

#include "queue.h"
#include "gpu.h"

static cudaStream_t stream_of(const struct cuda_dev *dev, enum jm_queue queue)
{
	const cudaStream_t streams[] = {[JM_QUEUE_COMPUTE] = dev->stream,
		[JM_QUEUE_COPY] = dev->copies,
		[JM_QUEUE_COMM] = dev->sums};

	return streams[queue];
}

/* The exchange between ranks has a higher priority than computing, because other ranks wait for
 * it. */
static int make_sums(struct cuda_dev *dev, struct jm_err *err)
{
	int least = 0, greatest = 0;
	cudaError_t rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);

	if (!rc)
		rc = cudaStreamCreateWithPriority(&dev->sums, cudaStreamNonBlocking, greatest);
	return cuda_check(dev, rc, "Making a stream", err);
}

int cuda_stream(void *arg, enum jm_queue queue, void **ret, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	int code = 0;

	cudaSetDevice(dev->index);
	if (queue == JM_QUEUE_COMM && !dev->sums)
		code = make_sums(dev, err);
	if (!code)
		*ret = stream_of(dev, queue);
	return code;
}

int cuda_copy(void *arg, enum jm_queue queue, void *to, const void *from, size_t bytes,
	enum jm_copy kind, struct jm_err *err)
{
	static const enum cudaMemcpyKind kinds[] = {[JM_TO_DEVICE] = cudaMemcpyHostToDevice,
		[JM_TO_HOST] = cudaMemcpyDeviceToHost,
		[JM_ON_DEVICE] = cudaMemcpyDeviceToDevice};
	struct cuda_dev *dev = arg;

	int code;

	cudaSetDevice(dev->index);
	code = cuda_check(dev, cudaMemcpyAsync(to, from, bytes, kinds[kind], stream_of(dev, queue)),
		"A copy", err);
	cuda_queued(dev, "a copy");
	return code;
}

int cuda_fill(void *arg, enum jm_queue queue, void *to, unsigned char value, size_t bytes,
	struct jm_err *err)
{
	struct cuda_dev *dev = arg;

	cudaSetDevice(dev->index);
	return cuda_check(dev, cudaMemsetAsync(to, value, bytes, stream_of(dev, queue)),
		"Filling memory", err);
}

int cuda_sync(void *arg, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	cudaError_t rc = cudaStreamSynchronize(dev->stream);

	if (cuda_lost(dev, err))
		return dev->lost.code;
	if (!rc)
		rc = cudaStreamSynchronize(dev->copies);
	if (!rc && dev->sums)
		rc = cudaStreamSynchronize(dev->sums);
	if (rc)
		return cuda_waited(dev, rc, err);
	dev->n_queued = 0;
	return 0;
}

void *cuda_pinned_alloc(void *arg, size_t bytes)
{
	struct cuda_dev *dev = arg;
	void *memory = NULL;

	cudaSetDevice(dev->index);
	if (cudaMallocHost(&memory, bytes ? bytes : 1)) {
		cudaGetLastError(); /* clears the error, because the caller sees NULL */
		return NULL;
	}
	return memory;
}

void cuda_pinned_release(void *arg, void *memory)
{
	struct cuda_dev *dev = arg;

	cudaSetDevice(dev->index);
	if (memory)
		cudaFreeHost(memory);
}

int cuda_memory_free(void *arg, size_t *ret, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	size_t available = 0, total = 0;
	int code;

	cudaSetDevice(dev->index);
	code = cuda_check(dev, cudaMemGetInfo(&available, &total), "Asking for free memory", err);
	if (!code)
		*ret = available;
	return code;
}

/* ---- events: NULL = never recorded ----------------------------------------------------------- */

int cuda_event_new(void *arg, void **ret_event, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	cudaEvent_t event = NULL;
	int code;

	cudaSetDevice(dev->index);
	code = cuda_check(dev, cudaEventCreate(&event), "Making an event", err);
	if (!code)
		*ret_event = event;
	return code;
}

int cuda_event_record(void *arg, void *event, enum jm_queue queue, struct jm_err *err)
{
	struct cuda_dev *dev = arg;

	cudaSetDevice(dev->index);
	return cuda_check(dev, cudaEventRecord(event, stream_of(dev, queue)), "An event", err);
}

int cuda_event_follow(void *arg, void *event, enum jm_queue queue, struct jm_err *err)
{
	struct cuda_dev *dev = arg;

	cudaSetDevice(dev->index);
	return cuda_check(dev, cudaStreamWaitEvent(stream_of(dev, queue), event, 0),
		"Waiting for an event", err);
}

int cuda_event_wait(void *arg, void *event, struct jm_err *err)
{
	struct cuda_dev *dev = arg;

	return cuda_waited(dev, cudaEventSynchronize(event), err);
}

int cuda_event_query(void *arg, void *event, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	cudaError_t rc = cudaEventQuery(event);

	if (rc == cudaErrorNotReady)
		return 0;
	return rc ? cuda_waited(dev, rc, err) : 1;
}

int cuda_event_seconds(void *arg, void *from, void *to, double *ret, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	float ms = 0;
	int code = cuda_check(dev, cudaEventElapsedTime(&ms, from, to), "Timing by events", err);

	if (!code)
		*ret = 1e-3 * (double)ms;
	return code;
}

void cuda_event_drop(void *dev, void *event)
{
	(void)dev;
	if (event)
		cudaEventDestroy(event);
}

/* ---- copies to another GPU ------------------------------------------------------------------- */

/* 1 = `from` may access the memory of `to` from now on, 0 = the driver does not allow it. */
static int enable(const struct cuda_dev *from, const struct cuda_dev *to, struct jm_err *err)
{
	int can = 0;
	cudaError_t rc = cudaDeviceCanAccessPeer(&can, from->index, to->index);

	if (rc || !can)
		return cuda_check(from, rc, "Asking for access to another GPU", err);
	cudaSetDevice(from->index);
	rc = cudaDeviceEnablePeerAccess(to->index, 0);
	if (rc)
		cudaGetLastError(); /* clears the error: a later check must not report it */
	if (rc == cudaErrorTooManyPeers || rc == cudaErrorPeerAccessUnsupported)
		return 0;
	if (rc == cudaSuccess || rc == cudaErrorPeerAccessAlreadyEnabled)
		return 1;
	return cuda_check(from, rc, "Access to another GPU", err);
}

static int peer_open(void *arg, void *arg_peer, bool *ret_direct, struct jm_err *err)
{
	const struct cuda_dev *dev = arg, *peer = arg_peer;
	int there = enable(dev, peer, err), back = there < 0 ? there : enable(peer, dev, err);

	if (back < 0)
		return back;
	*ret_direct = there && back;
	return 0;
}

static int peer_copy(void *arg, enum jm_queue queue, void *arg_peer, void *to, const void *from,
	size_t bytes, struct jm_err *err)
{
	const struct cuda_dev *dev = arg, *peer = arg_peer;

	cudaSetDevice(dev->index);
	return cuda_check(dev,
		cudaMemcpyPeerAsync(
			to, peer->index, from, dev->index, bytes, stream_of(dev, queue)),
		"A copy to another GPU", err);
}

const struct jm_backend_peer cuda_peer = {.open = peer_open, .copy = peer_copy};
