/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the ranks of a pipeline run which parts of a step (1F1B: Narayanan et al., arXiv 2104.04473,
 * 2.2; interleaved with several chunks, as in Megatron-LM). Knows no device and no transport.
 *
 * Time goes in turns. In a turn a rank runs at most one part: the forward pass of a micro-step
 * through one of its chunks, or the gradients of that. After it what has been computed is sent, all
 * forward results before all gradients, so that no rank waits for one that waits for it. A rank
 * keeps the data of micro-step i of a chunk in slot i % slots of this chunk, from the turn before
 * its forward pass to that of its gradients.
 */
#ifndef JM_PIPE_SCHEDULE_H
#define JM_PIPE_SCHEDULE_H

#include <stdbool.h>

#include "joulemark.h"

#define JM_CHUNKS_MOST 16

struct jm_pipe {
	int stages, chunks; /* of each stage */
	int micro_steps;    /* with several chunks a multiple of the stages */
};

struct jm_pipe_part {
	int chunk, micro;
	bool backward;
};

/* A transfer: the result of the part `from`, or the operand of the part `to`. */
struct jm_pipe_move {
	int stage; /* the other one; -1 = there is no transfer */
	struct jm_pipe_part part;
};

struct jm_pipe_turn {
	bool runs;
	struct jm_pipe_part part;
	/* [0]: forward results, [1]: gradients. send: of the own part; receive: of the part which
	 * needs it */
	struct jm_pipe_move send[2], receive[2];
	bool at_once; /* no stage receives two results: both kinds may be sent together */
};

/* The turns of a stage, to be freed by the caller; turns without a part and transfers are left out.
 * slots: [chunks], of the stage. */
int jm_pipe_turns(const struct jm_pipe *pipe, int stage, struct jm_pipe_turn **ret, int *ret_n,
	int *slots, struct jm_err *err);

/* The share of a step in which a rank waits, if all parts take equally long and transfers no time:
 * (p - 1) / (m v + p - 1). */
double jm_pipe_bubble(const struct jm_pipe *pipe);

#endif
