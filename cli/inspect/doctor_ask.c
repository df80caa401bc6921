/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor_ask.h"

#include "base/process/driver_call.h"

#include <stdlib.h>
#include <string.h>

struct question {
	jm_doctor_fn *fn;
	struct jm_ctx *ctx;
	const void *member;
	struct jm_finding *found; /* with texts of their own */
	size_t n;
};

static void keep(void *arg, const struct jm_finding *f)
{
	struct question *q = arg;
	struct jm_finding *grown = reallocarray(q->found, q->n + 1, sizeof(*grown));

	if (!grown)
		return;
	q->found = grown;
	grown += q->n;
	*grown = *f;
	grown->what = strdup(f->what);
	grown->why = strdup(f->why);
	grown->mend = strdup(f->mend);
	q->n++;
}

static void ask_in_thread(void *arg)
{
	struct question *q = arg;

	q->fn(q->ctx, q->member, keep, q);
}

static void hand_out(struct question *q, jm_finding_fn *say, void *arg)
{
	for (size_t i = 0; i < q->n; i++) {
		struct jm_finding *f = &q->found[i];

		if (f->what && f->why && f->mend)
			say(arg, f);
		free((char *)f->what);
		free((char *)f->why);
		free((char *)f->mend);
	}
	free(q->found);
	free(q);
}

bool jm_doctor_ask(
	struct jm_ctx *ctx, jm_doctor_fn *fn, const void *member, jm_finding_fn *say, void *arg)
{
	struct question *q = calloc(1, sizeof(*q));

	if (!q) { /* then without a limit */
		fn(ctx, member, say, arg);
		return true;
	}
	*q = (struct question){.fn = fn, .ctx = ctx, .member = member};
	if (!jm_driver_call_once(ctx, ask_in_thread, q))
		return false;
	hand_out(q, say, arg);
	return true;
}
