/* SPDX-License-Identifier: Apache-2.0 */
/* What a command has of the processors, whose meters measure the whole machine with its
 * neighbours. */
#ifndef JM_PROCESSOR_SHARE_H
#define JM_PROCESSOR_SHARE_H

#include "measure/session/session.h"

/* Processor time of everything that ran since the machine was started, in seconds; NAN = unknown,
 * as where a container's own time is mounted over that of the machine. */
double jm_machine_cpu_s(const struct jm_ctx *ctx);
/* Is it the meter of a processor package, and no part of another package's meter? */
bool jm_is_processor(const struct jm_meters *set, int meter);
/* Energy of the topmost meters of processor packages in the phase; their ids are appended. NAN =
 * there is none, or one is unknown. After the session's stop. */
int jm_processor_joules(
	struct jm_session *s, int phase, json_t *ids, double *ret, struct jm_err *err);

struct jm_own_share {
	double machine_begin_s,
		machine_s;   /* jm_machine_cpu_s before, and its growth during all runs */
	double watts_before; /* that its meters measured when it began; NAN = not known then */
};
/* Right before a run of the command, without waiting for anything; and right after it. From 0. */
void jm_own_share_begin(struct jm_own_share *o, struct jm_session *s, const struct jm_ctx *ctx);
void jm_own_share_end(struct jm_own_share *o, const struct jm_ctx *ctx);
/* {"cpu_s", "machine_cpu_s", "share", "joules_estimated", "meters", "watts_before"}; unknown is
 * null. After the session's stop. cpu_s: of all runs of the command and their children. phase: of a
 * single run; -1 = there were several, whose joules and watts_before are null. NULL without
 * memory. */
json_t *jm_own_share_json(const struct jm_own_share *o, double cpu_s, struct jm_session *s,
	int phase, struct jm_err *err);

#endif
