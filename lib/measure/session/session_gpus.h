/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs the work of a session runs on. */
#ifndef JM_SESSION_GPUS_H
#define JM_SESSION_GPUS_H

#include "session.h"

/*
 * The work runs on this GPU and on no other (jm_meters_own): what other GPUs draw stays in the
 * report and counts in no total. When no meter reads that GPU, totals are unknown. Before
 * jm_session_report, in the thread that looks at the session; as returned by jm_meters_own.
 */
int jm_session_own(struct jm_session *s, const char *uuid, const char *bus, bool *ret_slice);
/* It runs on this one too; as returned by jm_meters_own_too. */
int jm_session_own_too(struct jm_session *s, const char *uuid, const char *bus);

#endif
