/* SPDX-License-Identifier: Apache-2.0 */
/* What net.c and net_flow.c share: connections to all ranks, and what flows over them at once. */
#ifndef JM_COMM_NET_FLOW_H
#define JM_COMM_NET_FLOW_H

#include "comm.h"

/* Before each message: a rank that started another transfer is noticed before it waits forever. */
struct jm__net_head {
	uint32_t number; /* of the exchange between the two ranks; wraps around */
	uint16_t kind, type;
	uint64_t count;
	int32_t root, unused;
};

/* One way of a connection: a head and so many bytes. */
struct jm__net_way {
	bool open; /* to be sent, or received */
	struct jm__net_head head;
	char *data;
	size_t bytes, done; /* done: head included */
};

/* The connection to a rank, which the groups have in common. */
struct jm__net_link {
	int rank; /* of the gang */
	int fd;	  /* -1: the own place */
	uint32_t number;
};

struct jm__net {
	int rank, world;
	struct jm__net_link *link[JM_RANKS_MOST];
	struct jm__net_link
		*own; /* [world] of the gang; NULL = of a group, which borrows those of its gang */
	struct jm__net_way out[JM_RANKS_MOST], in[JM_RANKS_MOST];
	double join_s;
	int64_t join_ns; /* until when all have to come; JM_FOREVER = no longer, they have */
	char *staging;	 /* [world - 1] pieces of a sum */
};

/* What the next exchange sends to a rank, and receives from it. */
void jm__net_give(struct jm__net *n, int rank, const char *data, size_t bytes);
void jm__net_take(struct jm__net *n, int rank, char *data, size_t bytes);
/* Sends and receives all of it. A rank that has ended is named, as is one that started another
 * transfer. */
int jm__net_exchange(struct jm__net *n, const struct jm_transfer *t, struct jm_err *err);

#endif
