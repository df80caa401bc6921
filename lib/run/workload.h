/* SPDX-License-Identifier: Apache-2.0 */
/* Contract of a workload: one file = one kind of work. See workloads/null.c for the smallest
 * one. */
#ifndef JM_WORKLOAD_H
#define JM_WORKLOAD_H

#include "base/ctx.h"
#include "base/clock.h"
#include "base/option.h"

/* The length of work whose parameters give neither epochs, steps nor seconds, or no warm-up. */
#define JM_WORK_WARM_S	 1.0
#define JM_WORK_STEADY_S 10.0

/* What one step did. NAN = unknown. */
struct jm_step {
	double items;	       /* in the workload's unit, over all devices; FLOPs and bytes too */
	double flops_model;    /* what the mathematics needs */
	double flops_executed; /* what was computed, recomputation included */
	double bytes;	       /* moved to and from memory */
	double loss;
	/* when the step was done, by the clock of the device; of one that works in the calling
	 * thread, by CLOCK_MONOTONIC; 0 = unknown */
	int64_t device_ns, host_ns;
};

/* What a device's clock was at some time between two of the machine's monotonic clock; ns. */
struct jm_work_time {
	int64_t device_ns, before_ns, after_ns;
};

/* Options that apply to every workload: --sm-share, --hold-power, --affinity. */
extern const struct jm_option jm_soft_options[];

/* A device that computes, by names that its meters may also have; "" = it has none. */
struct jm_own {
	char uuid[48], bus[24], name[96]; /* as in struct jm_device_props */
	char host[65]; /* of ranks on several hosts: where it is; "" = on that of the run */
	int units, of; /* number of multiprocessors used, and of all; 0 = all are used */
	/* Optional, when no step is under way: its clock, for times of steps. */
	int (*clock)(const void *arg, struct jm_work_time *ret, struct jm_err *err);
	const void *clock_arg;
	int unusable; /* not 0: setup failed because of the device: absent, unsuitable, lost */
};

#define JM_WORK_WINDOWS 96
/* A part of the run that is measured as a phase of its own; by the machine's clock. */
struct jm_work_window {
	const char *name;     /* of the phase; static */
	int64_t t0_ns, t1_ns; /* t1 = 0: there is none, and none follows */
	double items;	      /* done in it */
};

/* The environment of a workload; outlives it. */
struct jm_work {
	struct jm_ctx *ctx;
	struct jm_sleeper
		*sleeper; /* of the thread that runs the steps; for work in simulated time */
	const struct jm_values *options; /* of the workload's own rows, then of those chosen */
	const char *device;		 /* "cpu", "ref", "sim:h100x4" */
	const char *peer;      /* the device after it, where no ranks share the list; NULL = none */
	const char *precision; /* "f32", "bf16"; NULL = it has none */
	uint64_t seed;
	char run[48]; /* case and repeat, "1a2b3c4d-2", for names of files; "" = the call has one run */
	int rank, world; /* of the gang that runs the case; 0 of 0 or of 1: alone */
	int local;	 /* ranks that share the processors which this process may use; 0 = all */
	/* of operations against the reference before the first step, at most; 0 = none */
	double selftest_s;
	/* how long the warm-up and the measured steps will be; NAN = not given in seconds */
	double warm_s, steady_s;
	bool by_epochs; /* its length is epochs of all samples: --epochs without --epoch-steps */
	long given_epoch_steps; /* it is epochs of so many steps; 0 = it is not */
	int64_t steady_ns;	/* when the measured steps began; 0 = not yet */
	/* what an earlier case with the same command has started (keeps); 0 = nothing, or it has
	 * ended */
	pid_t kept;
	/* From now on the process is the parent's, which ends it, its session and what carries its
	 * environment, after the last case. NULL = the workload ends what it starts. */
	int (*keep)(void *arg, pid_t pid, struct jm_err *err);
	void *keep_arg;
	int gang_fd; /* of the file that its ranks share (comm/comm.h); -1 = none */
	const struct jm_meet *
		meet; /* where ranks of several hosts meet instead (base/net/meet.h); NULL = there is none */
	/* Has the case been asked to end? See jm_work_interrupted. NULL = it never is. */
	bool (*stopped)(void *arg);
	void *stopped_arg;
	/* filled while it runs: */
	bool ended; /* no further step is needed; that of rank 0 decides */
	/* filled by verify or before, after the measured steps: */
	struct jm_work_window window[JM_WORK_WINDOWS];
	/* filled by setup: */
	int n_devices;	  /* it runs on; throughput per device = total / n_devices */
	const char *unit; /* of an item where options decide it; NULL = the workload's; static */
	/* it sets `ended` when its aim is reached: a length that is given is the most */
	bool may_end;
	/* of the data that is learnt, for --epochs without --epoch-steps; 0 = unknown */
	long epoch_steps;
	char detail[256];  /* one line for the record: "124.4 M parameters, peak 1.9 GB" */
	char live[40];	   /* the latest news for the live line: "held-out loss 5.31"; "" = none */
	char note[512];	   /* something the user must know, such as a fallback; "" = nothing */
	struct jm_own own; /* of this rank */
	const struct jm_own *gang; /* [world], of all ranks; NULL = one rank */
	struct jm_own own_peer;	   /* of `peer`, if it is used */
	const struct jm_own *also; /* [n_also], devices besides `own` that this process uses */
	int n_also;
	/* A JSON object whose members join the record, filled until verify is over; NULL = not
	 * wanted. */
	struct json_t *more;
};

/* At least 1. */
static inline int jm_work_world(const struct jm_work *work)
{
	return work->world > 1 ? work->world : 1;
}

/* For loops of setup. JM_EINTR: the case has been asked to end; 0: it goes on. */
static inline int jm_work_interrupted(const struct jm_work *work, struct jm_err *err)
{
	if (!work->stopped || !work->stopped(work->stopped_arg))
		return 0;
	return jm_err_set(err, JM_EINTR, "Interrupted during the setup.");
}

/* Adds a sentence to work->note, behind those that it has. */
void jm_work_note(struct jm_work *work, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct jm_workload {
	const char *name;
	const char *summary;
	const char *unit;		 /* of an item: "token", "image" */
	const struct jm_option *options; /* terminated by name NULL; may be NULL */
	/*
	 * Optional: the option among its own whose value brings in further rows ("model": those of
	 * the model that is named), and these rows; JM_EUSAGE: there is no such value. They have
	 * other names than its own, and are static.
	 */
	const char *chooser;
	int (*chosen_options)(
		const char *choice, const struct jm_option **ret_rows, struct jm_err *err);
	/* Optional: the option whose command starts a process that the cases with the same command
	 * use one after the other (kept, keep of struct jm_work). */
	const char *keeps;
	bool no_precision; /* has none to choose: none is passed on or kept */
	/* Optional: how many devices one case of one process uses if the option has the value; 1
	 * otherwise. */
	int (*devices_of)(const char *option, const char *value);
	/* Optional, before anything runs: can such a device and precision exist? Opens nothing. */
	int (*check)(const char *device, const char *precision, struct jm_err *err);
	/* A state that it returns is torn down also after a failure. */
	int (*setup)(struct jm_work *work, void **ret_state, struct jm_err *err);
	/*
	 * One more step. 0: a step is done and is in *ret; on an asynchronous device it may be an
	 * earlier one. Above 0: none is done yet. Finished steps are returned in order, each once.
	 */
	int (*step)(void *state, struct jm_step *ret, struct jm_err *err);
	/*
	 * Optional: waits for the next step that is still running. 0: it is in *ret; above 0: there
	 * is none. Called until then at the end of each phase, so that each phase includes all
	 * steps that it began.
	 */
	int (*finish)(void *state, struct jm_step *ret, struct jm_err *err);
	/*
	 * For workloads that can run on several ranks: the value becomes that of rank 0. Without
	 * this function there is one rank only. Every rank calls it at the same places between
	 * steps.
	 */
	int (*agree)(void *state, void *value, size_t bytes, struct jm_err *err);
	/* Was the result correct? 0: yes. JM_ERANGE: no, and err states what was wrong. Another
	 * error: the case failed before this was known. Above 0: it cannot be verified, and err has
	 * the reason. Called when no step is running. */
	int (*verify)(void *state, struct jm_err *err);
	void (*teardown)(void *state); /* takes NULL */
};

extern const struct jm_workload *const jm_workloads[]; /* NULL-terminated, generated */

const struct jm_workload *jm_workload_find(const char *name, struct jm_err *err);

#endif
