/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a session that is over while the session goes on: its last readings, and a copy of
 * all. */
#include "measure/session/session_part.h"
#include "session_private.h"
#include "base/printable.h"

#include <stdio.h>

#define LONGEST                                                                                    \
	(1500 * JM_MILLISECOND) /* an edge of a slow sensor, and the reading that it waits for */
#define STEP (2 * JM_MILLISECOND)

static bool all_passed(const struct jm_session *s)
{
	for (int i = 0; i < s->n_sources; i++)
		if (!jm_reader_edge_passed(s->source[i].reader))
			return false;
	return true;
}

void jm_session_await_edge(struct jm_session *s)
{
	int64_t until = jm_ctx_now(s->ctx) + LONGEST;
	struct jm_sleeper sleeper;

	jm_sleeper_init(&sleeper, s->ctx->clock);
	for (int64_t now; !all_passed(s) && (now = jm_ctx_now(s->ctx)) < until;)
		jm_sleep_until(&sleeper, now + STEP);
	jm_sleeper_done(&sleeper);
}

void jm_session_rename(struct jm_session *s, int phase, const char *name)
{
	pthread_mutex_lock(&s->phase_lock);
	if (phase >= 0 && phase < s->n_phases) {
		snprintf(s->phase[phase].name, sizeof(s->phase[phase].name), "%s", name);
		jm_text_tame(s->phase[phase].name);
	}
	pthread_mutex_unlock(&s->phase_lock);
}

struct copy {
	struct jm_trace *trace;
	int signal;
	struct jm_err *err;
};

static int add_reading(void *arg, struct jm_reading reading)
{
	struct copy *copy = arg;

	return jm_trace_append(copy->trace, copy->signal, reading, copy->err);
}

int jm_session_part(struct jm_session *s, int64_t t0_ns, int64_t t1_ns, struct jm_trace **ret,
	struct jm_err *err)
{
	struct copy copy = {jm_trace_new(&s->set, err), 0, err};
	int rc = copy.trace ? 0 : err->code;

	pthread_mutex_lock(&s->lock);
	jm__session_drain(s);
	for (; !rc && copy.signal < s->set.n_signals; copy.signal++) {
		rc = jm_trace_each(s->trace, copy.signal, t0_ns, t1_ns, add_reading, &copy, err);
		if (!rc)
			rc = err->code;
	}
	pthread_mutex_unlock(&s->lock);
	if (rc)
		jm_trace_free(copy.trace);
	else
		*ret = copy.trace;
	return rc;
}
