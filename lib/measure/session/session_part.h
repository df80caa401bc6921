/* SPDX-License-Identifier: Apache-2.0 */
/* Stretches of the trace of a session, and names of its phases. */
#ifndef JM_SESSION_PART_H
#define JM_SESSION_PART_H

#include "session.h"

/* The readings from t0_ns to t1_ns, and those next to them, as a trace for the caller to free; also
 * while it runs. */
int jm_session_part(struct jm_session *s, int64_t t0_ns, int64_t t1_ns, struct jm_trace **ret,
	struct jm_err *err);
/* Waits until the readings of the last edge (begin, end, jm_session_edge) have come, as
 * jm_session_stop does; at most about a second. */
void jm_session_await_edge(struct jm_session *s);
/* Another name for a phase, as where it is known at its end only. */
void jm_session_rename(struct jm_session *s, int phase, const char *name);

#endif
