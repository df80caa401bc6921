/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls into a driver that may not return: each runs in a separate thread and is awaited up to a
 * limit. A call that is given up continues; the caller can ask later whether it has returned.
 */
#ifndef JM_DRIVER_CALL_H
#define JM_DRIVER_CALL_H

#include <stdbool.h>
#include <stdint.h>

/* How long a driver is awaited, ns. */
#define JM_DRIVER_LIMIT_NS INT64_C(10000000000)

struct jm_ctx;
struct jm_driver_call;

/*
 * Calls fn(arg) and waits at most limit_ns. True: it has returned, and arg is the caller's again.
 * False: it has not;
 * *ret_left is the call, and arg, which must be from the heap, is freed with it.
 */
bool jm_driver_call(
	void (*fn)(void *arg), void *arg, int64_t limit_ns, struct jm_driver_call **ret_left);
/* Waits for a call that was left for at most limit_ns more; when it has returned it is freed, and
 * arg is the caller's. */
bool jm_driver_call_again(struct jm_driver_call *call, int64_t limit_ns);
/* True if a call that was left has returned by now; it is then freed with its argument. */
bool jm_driver_call_returned(struct jm_driver_call *call);

/* A call within JM_DRIVER_LIMIT_NS, which is not asked about again. False: it has not returned, and
 * keeps the context that it uses. */
bool jm_driver_call_once(struct jm_ctx *ctx, void (*fn)(void *arg), void *arg);

#endif
