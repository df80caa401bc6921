/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers of transport `local` between two ranks, beside those of all: each ordered pair has
 * slots of its own. */
#ifndef JM_COMM_LOCAL_PAIRS_H
#define JM_COMM_LOCAL_PAIRS_H

#include "comm.h"

struct jm__pair;

/* Pairs of ranks; shared by all of them. */
struct jm__pairs {
	struct jm__pair *pair; /* [all][all]: from, to */
	int all, rank;
	int member[JM_RANKS_MOST]; /* of a group: its ranks among all; of all: each itself */
	bool (*has_left)(void *arg, int rank);
	void *arg;
};

size_t jm__pairs_bytes(int world);
/* A JM_SEND_RECEIVE: both ways at the same time. */
int jm__pairs_exchange(struct jm__pairs *p, const struct jm_transfer *t, struct jm_err *err);

#endif
