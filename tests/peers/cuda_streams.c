/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the fake CUDA runtime. A stream keeps its work in order; it is done when a
 * call returns or, with late=1, when the host waits for that stream or for an event behind it:
 * memory that is written or read too early then holds other values. An event that a stream waits
 * for brings the work before it with it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda_fake.h"

/* The header's parameters have names of one letter, some of them with underscores. */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

struct event;

struct work {
	enum { COPY, FILL, RECORD, FOLLOW } kind;
	void *to;
	const void *from;
	size_t bytes;
	int value;
	struct event *event;
	long count; /* of the event: the record that is made or waited for */
	struct work *next;
};

struct stream {
	struct work *first, **last;
};

struct event {
	struct stream *stream; /* of the last record; NULL = none */
	long asked, reached;   /* records */
	struct timespec at;
};

static void run_first(struct stream *s);

static void reach(const struct event *e, long count)
{
	while (e->stream && e->reached < count && e->stream->first)
		run_first(e->stream);
}

#define LARGE ((size_t)1 << 20)

/* Whole pages are given back to the system, which makes them zero when they are touched: before
 * each timed run the backend writes 128 MiB that nobody reads. */
static void fill(char *to, int value, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t before = (page - (uintptr_t)to % page) % page;
	size_t pages = bytes < LARGE ? 0 : (bytes - before) / page * page;

	if (value || !pages || madvise(to + before, pages, MADV_DONTNEED)) {
		memset(to, value, bytes);
		return;
	}
	memset(to, 0, before);
	memset(to + before + pages, 0, bytes - before - pages);
}

static void run_first(struct stream *s)
{
	struct work *w = s->first;

	s->first = w->next;
	if (!s->first)
		s->last = &s->first;
	if (w->kind == COPY)
		memcpy(w->to, w->from, w->bytes);
	else if (w->kind == FILL)
		fill(w->to, w->value, w->bytes);
	else if (w->kind == FOLLOW)
		reach(w->event, w->count);
	else if (!clock_gettime(CLOCK_MONOTONIC, &w->event->at))
		w->event->reached = w->count;
	free(w);
}

static void run_all(struct stream *s)
{
	while (s->first)
		run_first(s);
}

static cudaError_t put(cudaStream_t stream, struct work work)
{
	struct stream *s = (struct stream *)(void *)stream;
	struct work *w;
	int late, unused;

	if (fake_cuda.broken)
		return fake_cuda.broken;
	w = malloc(sizeof(*w));
	if (!w)
		return cudaErrorMemoryAllocation;
	*w = work;
	*s->last = w;
	s->last = &w->next;
	if (!fake_cuda_configured("late", &late, &unused))
		run_all(s);
	return cudaSuccess;
}

/* ---- work ------------------------------------------------------------------------------------ */

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
	return put(
		stream, (struct work){.kind = FILL, .to = memory, .value = value, .bytes = bytes});
}

cudaError_t cudaMemcpyAsync(
	void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	int code, at;

	(void)kind;
	if (fake_cuda_configured("copies", &code, &at) && ++fake_cuda.copies == at)
		fake_cuda.broken = (cudaError_t)code;
	return put(stream, (struct work){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}

/* Between memory of these two GPUs, on a stream of the current one. */
cudaError_t cudaMemcpyPeerAsync(
	void *to, int peer, const void *from, int gpu, size_t bytes, cudaStream_t stream)
{
	int lost, unused;

	if (gpu != fake_cuda.gpu || !fake_cuda_is_on(from, gpu) || !fake_cuda_is_on(to, peer))
		return cudaErrorInvalidValue;
	if (fake_cuda_configured("lost", &lost, &unused) && lost == peer)
		bytes--;
	return put(stream, (struct work){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}

/* ---- streams --------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	struct stream *s;
	int code, gpu;

	(void)flags;
	if (fake_cuda_configured("open", &code, &gpu) && gpu == fake_cuda.gpu)
		return (cudaError_t)code;
	s = calloc(1, sizeof(*s));
	if (!s)
		return cudaErrorMemoryAllocation;
	s->last = &s->first;
	*stream = (cudaStream_t)(void *)s;
	return fake_cuda.broken;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = *greatest = 0;
	return fake_cuda.broken;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
	(void)priority;
	return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	run_all((struct stream *)(void *)stream);
	free(stream);
	return fake_cuda.broken;
}

/* A kernel that failed is noticed now. */
static cudaError_t waited(void)
{
	if (fake_cuda.to_come)
		fake_cuda.broken = fake_cuda.to_come;
	return fake_cuda.broken;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	run_all((struct stream *)(void *)stream);
	return waited();
}

/* A stream of the fake device is at work only in calls. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	run_all((struct stream *)(void *)stream);
	return fake_cuda.broken;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	struct event *e = (struct event *)(void *)event;

	(void)flags;
	return put(stream, (struct work){.kind = FOLLOW, .event = e, .count = e->asked});
}

static cudaError_t recorded(void)
{
	int graphs, unused;

	return fake_cuda_configured("graphs", &graphs, &unused) ? fake_cuda.broken
								: cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	(void)stream;
	(void)mode;
	return recorded();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	(void)stream;
	*graph = NULL;
	return recorded();
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
	static char one;

	(void)graph;
	(void)flags;
	*exec = (cudaGraphExec_t)(void *)&one;
	return recorded();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	(void)exec;
	(void)stream;
	return recorded();
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	(void)graph;
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	(void)exec;
	return cudaSuccess;
}

/* ---- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	struct event *e = calloc(1, sizeof(*e));

	*event = (cudaEvent_t)(void *)e;
	return e ? fake_cuda.broken : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	(void)flags;
	return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	struct event *e = (struct event *)(void *)event;

	if (e)
		reach(e, e->asked);
	free(e);
	return fake_cuda.broken;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	struct event *e = (struct event *)(void *)event;

	e->stream = (struct stream *)(void *)stream;
	return put(stream, (struct work){.kind = RECORD, .event = e, .count = ++e->asked});
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	const struct event *e = (const void *)event;

	reach(e, e->asked);
	return waited();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	const struct event *e = (const void *)event;

	return fake_cuda.broken	       ? fake_cuda.broken
	       : e->reached < e->asked ? cudaErrorNotReady
				       : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	const struct timespec *a = &((const struct event *)(const void *)from)->at;
	const struct timespec *b = &((const struct event *)(const void *)to)->at;

	*ms = (float)(1e3 * (double)(b->tv_sec - a->tv_sec) +
		      1e-6 * (double)(b->tv_nsec - a->tv_nsec));
	return fake_cuda.broken;
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
