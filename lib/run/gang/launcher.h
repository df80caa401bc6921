/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contract of a launcher: one file = one way to start the workers (the gang) that run a case.
 * `local` starts them as children on this host; others (mpirun, srun) start one program that starts
 * the ranks, and pass on the messages of each rank.
 *
 * A worker reads its job from standard input and has the descriptors below.
 */
#ifndef JM_LAUNCHER_H
#define JM_LAUNCHER_H

#include <jansson.h>
#include <sys/types.h>

#include "agent_links.h"
#include "joulemark.h"

/* Descriptors of a worker. */
enum jm_worker_fd {
	JM_WORKER_FRAMES = 3, /* it writes messages, frame.h */
	JM_WORKER_ORDERS,     /* it reads orders, orders.h */
	/* the file that the ranks of a gang share, or the socket at which rank 0 awaits the
	 * others */
	JM_WORKER_GANG,
};

/* What is to be started. */
struct jm_launch {
	const char *program; /* NULL = this one, /proc/self/exe */
	const json_t *job;   /* of each rank, but for "gang" (jm_rank_start) */
	int world;
	struct jm_agent_links *agents; /* launcher `started`: of the other ranks */
	int out_fd; /* where standard output of rank 0 goes; -1 = nowhere, as that of the others */
	char *const *env; /* NULL = the parent's environment */
};

/* The parent's side of a rank. */
struct jm_rank {
	pid_t pid; /* of the process group that it leads; 0 = was not started */
	int frames_fd, err_fd, orders_fd; /* the first two are to be read; -1 = closed */
	const struct jm_agent_link *link; /* to the agent that started it; NULL = it runs here */
	bool exited;			  /* of such a rank: its status has come */
	int status;
	int64_t stopped_ns; /* since when it has been seen stopped; 0 = it is not */
};

struct jm_launcher {
	const char *name;
	const char *summary;
	/* Fills rank[world]. After an error, what was started has been ended again. */
	int (*start)(const struct jm_launch *what, struct jm_rank *rank, struct jm_err *err);
	/* Signals a rank alone, or also all processes that it has started. */
	void (*signal)(const struct jm_rank *rank, int number, bool with_children);
	/* Waits for the end of the rank and kills the rest of its process group: the status as of
	 * waitpid. One that does not end within JM_DRIVER_LIMIT_NS is killed; -1 = and does not end
	 * then either, as while it is in a driver. */
	int (*wait)(struct jm_rank *rank);
};

extern const struct jm_launcher jm_launcher_local;
extern const struct jm_launcher
	jm_launcher_agents; /* ranks on one or more hosts, each by a command of its own */

/*
 * Starts a rank on this host. gang: its place in the gang, {rank, world, launcher}, and of ranks on
 * several hosts {host, measures, local, here, meet{host, port, key}}: whether it measures for its
 * host, how many ranks run there and which, and where all meet. gang_fd: for JM_WORKER_GANG, at 16
 * or above; -1 = none.
 */
int jm_rank_start(const struct jm_launch *what, const json_t *gang, int gang_fd,
	struct jm_rank *rank, struct jm_err *err);
/* A descriptor that is not in the way of those of a worker; closes the one given. -1: of -1, or
 * none is free (*err). */
int jm_rank_high_fd(int fd, struct jm_err *err);
/* Is the host of a rank, or the way to it, down? */
bool jm_rank_lost(const struct jm_rank *rank);
/* Ends a rank that runs here and has been stopped (SIGSTOP) for 4 s, so that others wait for it in
 * vain; *why says so. False: it was not. To be asked every second or so. One that computes for long
 * is not stopped. */
bool jm_rank_end_stopped(struct jm_rank *rank, struct jm_err *why);
/* Closes what is open. */
void jm_rank_close(struct jm_rank *rank);

#endif
