/* SPDX-License-Identifier: Apache-2.0 */
/* What the parent knows of the ranks of its case, and how the case ended. */
#ifndef JM_WORKER_END_H
#define JM_WORKER_END_H

#include "base/ctx.h"
#include "base/process/stray_processes.h"
#include "case_reaper.h"
#include "case_options.h"
#include "host_traces.h"
#include "run/gang/frame.h"
#include "run/gang/launcher.h"

#define JM__TAIL_SIZE 4096 /* of its standard error, for the reason of a failure */

/* REFUSED: a setting of a phase could not be made. */
enum jm__stop { JM__RUNNING, JM__CANCELLED, JM__TIMED_OUT, JM__WATCHED_GONE, JM__REFUSED };

/* What is known of a rank. */
struct jm__member {
	struct jm_rank rank;
	pid_t pid; /* that it had */
	struct jm_frame_reader reader;
	json_t *record;	     /* as it came */
	struct jm_err error; /* as it came */
	char tail[JM__TAIL_SIZE + 1];
	size_t n_tail;
	bool ended; /* it sends nothing any more */
	/* until when it may close its device, once its result is there; 0 = it is not */
	int64_t closing_ns;
	bool overdue; /* it was killed because it did not end in time */
	int status;   /* as of waitpid, when all have ended */
};

struct jm__child {
	struct jm_ctx *ctx;
	const struct jm_case_options *o;
	const struct jm_launcher *launcher;
	struct jm__member *member; /* [world], by rank; rank 0 measures */
	int world;
	int failed; /* the rank that failed first; -1 = none */
	int watch_fd;
	/* on the machine's clock; heard, silence: of what rank 0 tells; asked: to end */
	int64_t start_ns, kill_ns, commit_ns, heard_ns, silence_ns, asked_ns;
	enum jm__stop stop;
	struct jm_err refusal;
	struct jm_case_reaper reaper;
	struct jm_strays strays;
	struct jm__host_traces traces; /* of several hosts */
	bool asked;		       /* to end after the step that is under way */
	bool has_begun;		       /* with its measured phase, or past it */
	bool verifies;		       /* what it has measured */
	bool hurried;		       /* cancelled while it was being stopped */
	long oom_before;
};

/* Adds what a worker wrote to its standard error. */
void jm__keep_tail(struct jm__member *m, const char *bytes, size_t n);
/* How many processes the kernel has killed because memory ran out; -1 = unknown. */
long jm__oom_kills(void);
/* What happens to processes that the workers have left. */
enum jm_strays_end jm__end_of_strays(const struct jm__child *c);
/* Of a case whose workers have ended: makes the record of one that left none, or whose work
 * failed. */
int jm__complete_record(struct jm__child *c, struct jm_err *err);

#endif
