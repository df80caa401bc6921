/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the GPU's clock with the host's: a kernel answers the host through pinned memory, many
 * times, and the exchange with the shortest round trip is used.
 */
#include <time.h>

#include "queue.h"
#include "gpu_clock.h"
#include "gpu.h"

#define ROUNDS		200
#define ANSWER_LIMIT_NS 100000000 /* how long the host waits for one answer */

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int cuda_stamp(void *arg, uint64_t *to, struct jm_err *err)
{
	struct cuda_dev *dev = arg;

	cudaSetDevice(dev->index);
	cuda_stamp_start(to, dev->stream);
	return cuda_check(dev, cudaGetLastError(), "Starting a time stamp", err);
}

/* Makes one exchange with the GPU; false = the GPU did not answer in time. */
static bool ask(struct cuda_exchange *x, uint32_t round, struct jm_device_time *ret)
{
	ret->before_ns = now();
	__atomic_store_n(&x->asked, round, __ATOMIC_RELEASE);
	while (__atomic_load_n(&x->told, __ATOMIC_ACQUIRE) != round)
		if (now() - ret->before_ns > ANSWER_LIMIT_NS)
			return false;
	ret->after_ns = now();
	ret->device_ns = (int64_t)__atomic_load_n(&x->time, __ATOMIC_RELAXED);
	return true;
}

static int64_t width(const struct jm_device_time *t)
{
	return t->after_ns - t->before_ns;
}

static int exchange(struct cuda_dev *dev, struct cuda_exchange *x, struct jm_device_time *ret,
	struct jm_err *err)
{
	struct jm_device_time best = {.after_ns = INT64_MAX}, one;
	uint32_t round = 0;
	int code;

	/* what is queued may take longer than an answer, and fill the GPU */
	code = cuda_sync(dev, err);
	if (code)
		return code;
	cuda_exchange_start(x, ROUNDS, dev->stream);
	code = cuda_check(dev, cudaGetLastError(), "Starting the exchange of times", err);
	while (!code && round < ROUNDS && ask(x, ++round, &one))
		if (width(&one) < width(&best))
			best = one;
	if (!code) /* the kernel also ends when an answer is missing */
		code = cuda_check(dev, cudaStreamSynchronize(dev->stream), "Work", err);
	if (!code && best.after_ns == INT64_MAX)
		code = jm_err_set(err, JM_EIO,
			"cuda:%d did not answer when it was asked for its time.", dev->index);
	if (!code)
		*ret = best;
	return code;
}

int cuda_clock(void *arg, struct jm_device_time *ret, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	struct cuda_exchange *x = cuda_pinned_alloc(dev, sizeof *x);
	int code;

	if (!x)
		return jm_err_set(
			err, JM_ENOMEM, "Out of pinned memory for the exchange of times.");
	*x = (struct cuda_exchange){0};
	code = exchange(dev, x, ret, err);
	cuda_pinned_release(dev, x);
	return code;
}
