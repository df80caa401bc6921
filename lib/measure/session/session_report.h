/* SPDX-License-Identifier: Apache-2.0 */
/* What a session has measured, as JSON, and its trace. */
#ifndef JM_SESSION_REPORT_H
#define JM_SESSION_REPORT_H

#include "session.h"

/* Hands all of the trace to fn; may be called again. */
int jm_session_chunks(struct jm_session *s,
	int (*fn)(void *arg, const struct jm_chunk *chunk, struct jm_err *err), void *arg,
	struct jm_err *err);
/*
 * {"phase": name, "sampler_cpu_s": processor time of reading, "start_ns": the clock when the
 * session began, "meters": [...], "total": {...}, "quality": {...}, "phases": [...]}: meters, total
 * and quality of the phase `main_phase`, phases of all, their times in seconds since the session
 * began. The caller owns the value.
 */
json_t *jm_session_report(struct jm_session *s, int main_phase, struct jm_err *err);
/* The same with the phases alone that lie within the main phase: of one run of several. Also while
 * the session runs, once the phase has ended and its edge has passed (jm_session_await_edge); what
 * reading took is then unknown. */
json_t *jm_session_report_within(struct jm_session *s, int main_phase, struct jm_err *err);

#endif
