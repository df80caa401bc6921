/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a workload: how they agree, and what sums their gradients. */
#ifndef JM_WORK_GANG_H
#define JM_WORK_GANG_H

#include "comm/comm.h"
#include "engine/device/device.h"
#include "engine/run/reduce.h"
#include "run/workload.h"

/* The option --transport of a workload with ranks. more: what `host` does besides; by_itself: what
 * `auto` is. */
extern const char *const jm_gang_transports[];
#define JM_GANG_TRANSPORT(STRUCT, FIELD, more, by_itself)                                          \
	{                                                                                          \
		.name = "transport", JM_BIND(JM_CHOICE, STRUCT, FIELD),                            \
		.choices = jm_gang_transports, .fallback = "auto", .needs = "ranks",               \
		.help = "with --ranks on GPUs: nccl exchanges data by NCCL; host copies it "       \
			"through the memory of the host, for at most 8 ranks of one host, so "     \
			"that links between GPUs sleep and take no power" more                     \
			". auto = " by_itself                                                      \
			". Ranks without GPUs share the memory of their host; net exchanges data " \
			"by TCP, as between hosts; mpi by the MPI library whose mpirun started "   \
			"the ranks"                                                                \
	}

/* How the ranks exchange data of their devices. */
struct jm_gang_way {
	const char *transport; /* one of jm_gang_transports */
	bool prefers_host;     /* auto = host if all ranks prefer it */
	struct jm_comm_limits limits;
};

struct jm_gang {
	struct jm_work *work;
	struct jm_comm control; /* host memory; all zero: one rank alone */
	struct jm_comm device;	/* of the device's memory; all zero: `control` is used instead */
	/* of the groups of jm_gang_share, for data on the device; all zero: one of them is the
	 * whole gang */
	struct jm_comm tp, models, model;
	int n_tp, n_stages;	   /* ranks that share a stage, stages of a model; at least 1 */
	struct jm_own *own;	   /* [world], of each rank */
	struct jm_device *watched; /* the device whose waits poll `device`; NULL = none */
};

/* Opens the communicators for work->world ranks, and stores the devices of all ranks in work->gang.
 * d: the device of work, open; waits of the host for it end when a transfer fails. way: NULL = they
 * exchange nothing of their devices. */
int jm_gang_open(struct jm_gang *g, struct jm_work *work, struct jm_device *d,
	const struct jm_gang_way *way, struct jm_err *err);
/* Where a rank is in a gang: tp ranks that follow each other share a stage of a model, then come
 * the ranks of the same stage of other models, then those of the next stage. */
struct jm_gang_seat {
	int tp_rank, model, stage;
};
struct jm_gang_seat jm_gang_seat(const struct jm_work *work, int tp, int stages);
/* Groups the ranks: those that share a stage (`tp`), those with the same part of a model, which sum
 * its gradients (`models`), and those of all stages of a model (`model`). All ranks call it,
 * once. */
int jm_gang_share(struct jm_gang *g, int tp, int stages, struct jm_err *err);
/* Ends all transfers of the device, so that the memory they read and write may be freed; only
 * jm_gang_close may follow. false: they have not ended, and their memory, the device and the gang
 * must stay until the process ends. */
bool jm_gang_leave(struct jm_gang *g);
void jm_gang_close(struct jm_gang *g); /* one that is zeroed, too */
/* Waits until the devices of all ranks have finished their work. */
int jm_gang_meet(const struct jm_gang *g, const struct jm_device *d, struct jm_err *err);
/* The error of a rank whose value is not that of the first rank of its stage: `what` differs. */
int jm_gang_same(const struct jm_gang *g, uint64_t value, const char *what, struct jm_err *err);
/* The error of a rank whose value, of the data that it reads, is not that of rank 0. */
int jm_gang_same_data(const struct jm_gang *g, uint64_t value, struct jm_err *err);
/* Does act(arg), the first rank of each stage before the others, one after the other. A backend
 * may choose by timing, and every rank of a stage must choose the same in every run: the others
 * find the choices of the first where the backend keeps them. */
int jm_gang_in_turn(const struct jm_gang *g, int (*act)(void *arg, struct jm_err *err), void *arg,
	struct jm_err *err);
/* The communicator for data on the device: `device` or, where there is none, `control`. */
const struct jm_comm *jm_gang_comm(const struct jm_gang *g);
/* The same of the groups, as jm_reduce_open takes them. */
struct jm_ranks jm_gang_ranks(const struct jm_gang *g);
/* True if data on the device travels by transport host. */
bool jm_gang_by_host(const struct jm_gang *g);
/* The number of different devices that the ranks use: several ranks may share one. */
int jm_gang_devices(const struct jm_work *work);
/* Threads of a rank on the host's processors, if `wanted` were given: 0 = all that may be used, of
 * which a rank has its share. */
int jm_gang_threads(const struct jm_work *work, int wanted);
/* Processors of this rank: its share of those that this process may use; at least one. */
int jm_gang_cores(const struct jm_work *work);

#endif
