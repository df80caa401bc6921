/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The energy of GPUs divided among the processes that use them and among their instances (MIG). In
 * each interval between two looks, the energy of a GPU is divided as its driver divides its use;
 * the energy of unused time is attributed to no process. An estimate: every use is assumed to draw
 * the same power at one moment.
 */
#ifndef JM_DEVICE_SHARE_H
#define JM_DEVICE_SHARE_H

#include <sys/types.h>

#include "measure/session/session.h"
#include "base/clock.h"

#define JM_DEVICE_SHARE_LOOK JM_SECOND /* between looks, at least */

struct jm_device_share;

struct jm_device_share_options {
	/* Is this process one of those that are measured? -1 = unknown. NULL = energy is divided by
	 * instance only. */
	int (*is_own)(void *arg, pid_t pid);
	void *arg;
	const char *blind; /* why processes cannot be distinguished; NULL = they can */
};

/* Of a session that has started, from now on. */
int jm_device_share_new(struct jm_session *s, const struct jm_device_share_options *o,
	struct jm_device_share **ret, struct jm_err *err);
/* Ends the current interval and begins the next one; the last call ends the measurement. */
void jm_device_share_look(struct jm_device_share *s);
/*
 * After the session's stop: one object per GPU, of a phase that the looks span: {"meter", "method",
 * "share", "joules_estimated", "reason", "instances": [{"name", "share", "joules_estimated"}]}.
 * Unknown is null; reason says why.
 */
json_t *jm_device_share_json(struct jm_device_share *s, int phase, struct jm_err *err);
void jm_device_share_free(struct jm_device_share *s); /* takes NULL */

#endif
