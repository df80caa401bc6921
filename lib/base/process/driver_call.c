/* SPDX-License-Identifier: Apache-2.0 */
/* A thread, and a limited wait for its end. */
#include "driver_call.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/process/quiet_thread.h"
#include "base/text/locale.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct jm_driver_call {
	void (*fn)(void *arg);
	void *arg;
	pthread_t thread;
};

static void *run(void *arg)
{
	struct jm_driver_call *c = arg;

	jm_locale_enter();
	c->fn(c->arg);
	return NULL;
}

bool jm_driver_call(
	void (*fn)(void *arg), void *arg, int64_t limit_ns, struct jm_driver_call **ret_left)
{
	struct jm_driver_call *c = malloc(sizeof(*c));

	if (c)
		*c = (struct jm_driver_call){.fn = fn, .arg = arg};
	/* without a thread the call is made directly, without a limit */
	if (!c || jm_quiet_thread(&c->thread, run, c)) {
		free(c);
		fn(arg);
		return true;
	}
	*ret_left = c;
	return jm_driver_call_again(c, limit_ns);
}

bool jm_driver_call_again(struct jm_driver_call *c, int64_t limit_ns)
{
	struct timespec until = jm_clock_from_now(limit_ns);

	if (pthread_clockjoin_np(c->thread, NULL, CLOCK_MONOTONIC, &until))
		return false;
	free(c);
	return true;
}

bool jm_driver_call_returned(struct jm_driver_call *c)
{
	void *arg = c->arg;

	if (!jm_driver_call_again(c, 0))
		return false;
	free(arg);
	return true;
}

bool jm_driver_call_once(struct jm_ctx *ctx, void (*fn)(void *arg), void *arg)
{
	struct jm_driver_call *left;
	bool returned = jm_driver_call(fn, arg, JM_DRIVER_LIMIT_NS, &left);

	if (!returned)
		ctx->n_left++;
	return returned;
}
