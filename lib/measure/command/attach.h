/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what runs already: for some time, until a process or a control group is gone, or until
 * it is asked to end. The processor time of the process or group is read together with that of the
 * machine, so that energy of processors can be shared out by it (an estimate; see
 * docs/measuring.md).
 */
#ifndef JM_ATTACH_H
#define JM_ATTACH_H

#include <sys/types.h>

#include "device_share.h"
#include "measure/session/session.h"

struct jm_attach;

struct jm_attach_options {
	pid_t pid;	    /* 0 = none */
	const char *cgroup; /* its folder, or its path below /sys/fs/cgroup; NULL = none */
	int64_t for_ns;	    /* 0 = without limit */
	int wake_fd;	    /* readable = end; -1 = none */
	int64_t tick_ns;    /* between calls of tick; 0 = none */
	void (*tick)(void *arg);
	void *tick_arg;
};

struct jm_attached {
	int phase; /* of the session */
	int64_t start_ns, end_ns;
	/* it may have ended so long before end_ns, see end_watch.h; 0 = the end was seen */
	int64_t unseen_ns;
	char what
		[512]; /* "process 123 (sleep 60)", "control group /sys/fs/cgroup/a", "the machine" */
	/* processor time of the process or group in the phase; NAN = unknown, or none was named */
	double cpu_s;
	double machine_cpu_s;		 /* of everything that ran; NAN = unknown */
	bool ended;			 /* the process or group was gone */
	struct jm_device_share *devices; /* of GPUs; owned by the jm_attach */
};

/* Finds the process or control group, before sensors are opened. options and their texts outlive
 * it. JM_ENOENT: there is none; JM_EUSAGE: a thread; JM_EPERM: it cannot be seen. */
int jm_attach_open(struct jm_ctx *ctx, const struct jm_attach_options *options,
	struct jm_attach **ret, struct jm_err *err);
/* Under a session that has started; one phase, "attached". */
int jm_attach_run(
	struct jm_attach *a, struct jm_session *s, struct jm_attached *ret, struct jm_err *err);
void jm_attach_close(struct jm_attach *a); /* takes NULL */

/*
 * After the session's stop: {"what", "cpu_s", "machine_cpu_s", "share", "joules_estimated",
 * "meters": [ids], "gpus"}: the share of the processor time, and that share of the energy of the
 * topmost meters of processor packages; the GPUs as in device_share.h.
 * Unknown is null. NULL without memory.
 */
json_t *jm_attached_json(const struct jm_attached *a, struct jm_session *s, struct jm_err *err);

#endif
