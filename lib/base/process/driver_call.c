/* SPDX-License-Identifier: Apache-2.0 */
/* A thread, a flag, and a limited wait for it. */
#include "driver_call.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/process/quiet_thread.h"
#include "base/text/locale.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct jm_driver_call {
	void (*fn)(void *arg);
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
};

static void *run(void *arg)
{
	struct jm_driver_call *c = arg;

	jm_locale_enter();
	c->fn(c->arg);
	pthread_mutex_lock(&c->lock);
	c->done = true;
	pthread_cond_signal(&c->ended);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

static struct jm_driver_call *new_call(void (*fn)(void *arg), void *arg)
{
	struct jm_driver_call *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;

	if (!c)
		return NULL;
	c->fn = fn;
	c->arg = arg;
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->ended, &attr);
	pthread_condattr_destroy(&attr);
	return c;
}

static void free_call(struct jm_driver_call *c)
{
	pthread_cond_destroy(&c->ended);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static bool wait_until(struct jm_driver_call *c, int64_t limit_ns)
{
	struct timespec until = jm_clock_from_now(limit_ns);
	bool done;

	pthread_mutex_lock(&c->lock);
	while (!c->done && pthread_cond_timedwait(&c->ended, &c->lock, &until) != ETIMEDOUT)
		;
	done = c->done;
	pthread_mutex_unlock(&c->lock);
	return done;
}

bool jm_driver_call(
	void (*fn)(void *arg), void *arg, int64_t limit_ns, struct jm_driver_call **ret_left)
{
	struct jm_driver_call *c = new_call(fn, arg);

	/* without a thread the call is made directly, without a limit */
	if (!c || jm_quiet_thread(&c->thread, run, c)) {
		if (c)
			free_call(c);
		fn(arg);
		return true;
	}
	*ret_left = c;
	return jm_driver_call_again(c, limit_ns);
}

bool jm_driver_call_again(struct jm_driver_call *c, int64_t limit_ns)
{
	if (!wait_until(c, limit_ns))
		return false;
	pthread_join(c->thread, NULL);
	free_call(c);
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
