/* SPDX-License-Identifier: Apache-2.0 */
/* What host.c and host_pieces.c share: the memory of the ranks, and pieces that travel through
 * it. */
#ifndef JM_COMM_HOST_PIECES_H
#define JM_COMM_HOST_PIECES_H

#include <stdatomic.h>

#include "lanes.h"

#define PIECE	   ((size_t)4 << 20)
#define SLOTS	   4
#define STAGES	   4 /* pieces of the device's memory that wait for a sum or a copy */
#define MOST	   8 /* ranks: the slots of all pairs are page-locked */
#define HEAD_BYTES ((size_t)64 << 10)

struct channel {
	_Alignas(128) _Atomic uint32_t posted; /* pieces by the sender */
	_Alignas(128) _Atomic uint32_t taken;  /* pieces by the receiver */
};

struct head {
	_Atomic uint32_t left[MOST];	    /* 1 = the rank has closed */
	struct channel channel[MOST][MOST]; /* from, to */
};

_Static_assert(sizeof(struct head) <= HEAD_BYTES, "the slots follow");

/* Marks of the lanes. */
enum mark {
	BEGUN,
	SENT,
	RECEIVED,
	SUMMED,
	STAGED,			  /* [STAGES] a piece was received in staging */
	FREED = STAGED + STAGES,  /* [STAGES] and used */
	ROUNDED = FREED + STAGES, /* [STAGES] a piece was rounded in staging */
	LEFT = ROUNDED + STAGES,  /* [STAGES] and sent */
	MARKS = LEFT + STAGES
};

struct host {
	struct head *head; /* shared, with the slots behind it */
	const struct jm_lanes *lane;
	void *lanes;
	/* of the device: [STAGES][PIECE] received, [STAGES][PIECE] rounded, [PIECE] of the own
	 * part */
	char *staging;
	int rank, world;
	int member[MOST]; /* the ranks in the gang */
	struct host *
		gang; /* the communicator of all ranks, whose lanes and channels its groups use; its own: itself */
	/* of the gang */
	uint32_t sent[MOST], got[MOST]; /* pieces whose wait may be queued, to and from each rank */
	uint32_t staged, rounded;	/* pieces */
	int64_t missing_since; /* a rank that left owes a piece since then; 0 = none does */
	bool given_up;
};

/* How elements travel: in `way`, and in memory they have `type`. */
struct travel {
	enum jm_comm_type type, way;
};

size_t jm__host_bytes(int world); /* of the memory that the ranks share */
/* Sends n elements; those that are rounded are so by the device, in staging. */
int jm__host_send(struct host *h, int to, const char *from, size_t n, const struct travel *travel,
	struct jm_err *err);
/* Receives n elements of rank `from` in staging; to = own + these, or these alone. */
int jm__host_receive(struct host *h, int from, char *to, const char *own, size_t n,
	const struct travel *travel, struct jm_err *err);

#endif
