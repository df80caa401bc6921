/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_marks.h"

#include "base/clock.h"
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BETWEEN                                                                                    \
	(20 * JM_MILLISECOND) /* two marks: steps may be shorter than a mark takes to be read */

void jm_outer_marks_open(struct jm_outer_marks *o, struct jm_ctx *ctx)
{
	struct jm_err err = JM_ERR_INIT;

	o->ctx = ctx;
	if (jm_clock_simulated(ctx->clock) || !secure_getenv(JM_MARK_VARIABLE))
		return;
	if (jm_marker_new(&o->marker, &err))
		jm_log(ctx, JM_WARNING,
			"The joulemark that runs this one gets no marks of its steps: %s",
			err.text);
}

/* A receiver that has gone is no concern of the work. */
static void send_mark(struct jm_outer_marks *o, double items)
{
	jm_marker_mark(o->marker, o->phase, items, NULL);
	o->items = 0;
	o->sent_ns = jm_ctx_now(o->ctx);
}

void jm_outer_marks_phase(struct jm_outer_marks *o, const char *phase)
{
	/* the pause after a setting is no work, and joulemark's own name outside */
	if (!o->marker || !strcmp(phase, "settle"))
		return;
	snprintf(o->phase, sizeof(o->phase), "%s", phase);
	send_mark(o, o->items > 0 ? o->items : NAN);
}

void jm_outer_marks_credit(struct jm_outer_marks *o, double items)
{
	if (!o->marker || isnan(items))
		return;
	o->items += items;
	if (jm_ctx_now(o->ctx) - o->sent_ns >= BETWEEN)
		send_mark(o, o->items);
}

void jm_outer_marks_close(struct jm_outer_marks *o)
{
	if (o->marker && o->items > 0)
		send_mark(o, o->items);
	jm_marker_free(o->marker);
	o->marker = NULL;
}
