/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for another process, until it answers or the user interrupts. */
#include "guard/guard_wait.h"

#include "base/ctx.h"
#include "base/process/process_identity.h"

#include <stdio.h>

#define ANNOUNCE_MS 1000

static int interrupts(const struct jm_guard_wait *w)
{
	return w->ctx->interrupts ? *w->ctx->interrupts : 0;
}

struct jm_guard_wait jm_guard_wait_begin(const struct jm_ctx *ctx, pid_t guard, const char *what)
{
	struct jm_guard_wait w = {.ctx = ctx, .guard = guard, .what = what};

	w.asked = interrupts(&w);
	return w;
}

static void announce(struct jm_guard_wait *w)
{
	char stopped[80] = "";

	if (jm_process_stopped(w->guard))
		snprintf(stopped, sizeof(stopped),
			"; it is stopped, and 'kill -CONT %d' continues it", (int)w->guard);
	jm_log(w->ctx, JM_WARNING, "Waiting for the guard (process %d), which %s%s.%s",
		(int)w->guard, w->what, stopped,
		!w->ctx->interrupts  ? ""
		: interrupts(w) == 0 ? " Interrupt twice to stop waiting."
				     : " Interrupt once more to stop waiting.");
	w->announced = true;
	w->warned = interrupts(w) > 0;
}

bool jm_guard_wait_goes_on(struct jm_guard_wait *w)
{
	int now = interrupts(w);

	w->ms += JM_GUARD_LOOK_MS;
	if (now > 1 && now > w->asked)
		return false;
	if ((!w->announced && w->ms >= ANNOUNCE_MS) || (w->announced && now && !w->warned))
		announce(w);
	return true;
}
