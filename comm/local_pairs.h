/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers of transport `local` between two ranks, beside those of all: each ordered pair has
 * slots of its own. */
#ifndef JM_COMM_LOCAL_PAIRS_H
#define JM_COMM_LOCAL_PAIRS_H

#include "comm.h"

/* Pairs of ranks; shared by all of them. */
struct jm__pairs {
	char *pair; /* [all][all]: from, to; see jm__pairs_bytes */
	int all, rank;
	int member[JM_RANKS_MOST]; /* of a group: its ranks among all; of all: each itself */
	bool (*has_left)(void *arg, int rank);
	void *arg;
};

/* At most 1.2 GB: the more ranks, the smaller the slots of a pair. */
size_t jm__pairs_bytes(int world);
/* A JM_SEND_RECEIVE: both ways at the same time. */
int jm__pairs_exchange(struct jm__pairs *p, const struct jm_transfer *t, struct jm_err *err);

#endif
