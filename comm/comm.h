/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room comm: ranks and what they do together. One file = one transport; `local`, by shared memory between the
 * processes of one host, is the definition of every transfer.
 * May include: lib/base, vendor.
 *
 * A gang of `world` ranks opens a communicator together. From then on each rank starts the same transfers in the
 * same order, with the same kind, type and count. `start` may return before the transfer is done; memory that it
 * names belongs to it until then. A transport of host memory is done when `wait` returns; one of device memory
 * queues its work in a stream of the device, and is done when the stream has reached a place behind it.
 *
 * A communicator is used by one thread. An error is final for it: the gang has to end.
 */
#ifndef JM_COMM_H
#define JM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "joulemark.h"

#define JM_RANKS_MOST 64

enum jm_comm_type { JM_COMM_BYTE, JM_COMM_F32, JM_COMM_F64, JM_COMM_BF16 };

static inline size_t jm_comm_type_bytes(enum jm_comm_type type)
{
	static const size_t bytes[] = {
		[JM_COMM_BYTE] = 1, [JM_COMM_F32] = 4, [JM_COMM_F64] = 8, [JM_COMM_BF16] = 2};

	return bytes[type];
}

/*
 * n = count, W = world, elements of `type`:
 *	all-reduce	from [n], to [n]: the sum over the ranks, the same bits on each. from == to is allowed
 *	all-gather	from [n], to [W n]: what the ranks gave, in their order
 *	reduce-scatter	from [W n], to [n]: of the sum over the ranks the part of this rank
 *	broadcast	from [n] of rank `root`, to [n] of all; from == to is allowed
 * Sums are of f32, f64 and (device memory only) bf16. `local` adds in the order of the ranks.
 */
enum jm_transfer_kind { JM_ALL_REDUCE, JM_ALL_GATHER, JM_REDUCE_SCATTER, JM_BROADCAST };

struct jm_transfer {
	enum jm_transfer_kind kind;
	enum jm_comm_type type;
	const void *from;
	void *to;
	size_t count;
	int root;
	void *stream; /* of a transport of device memory; else NULL */
};

struct jm_comm;

/* Where a rank stands when a communicator is opened. */
struct jm_comm_place {
	int rank, world;
	int fd; /* local: of the file that the launcher made for the gang */
	const struct jm_comm
		*control; /* other transports: an open one of the same gang, to meet over */
};

struct jm_transport {
	const char *name;
	const char *summary;
	bool host_memory; /* else device memory, of the device that is current in the calling thread */
	int (*check)(struct jm_err *err); /* could it be opened here? NULL = always */
	/* Waits for all ranks. */
	int (*open)(const struct jm_comm_place *place, void **ret_state, struct jm_err *err);
	int (*start)(void *state, const struct jm_transfer *t, struct jm_err *err);
	int (*wait)(
		void *state, struct jm_err *err); /* for all that was started; NULL = start has */
	void (*close)(void *state);		  /* takes NULL */
};

extern const struct jm_transport *const jm_transports[]; /* NULL-terminated, generated */

const struct jm_transport *jm_transport_find(const char *name, struct jm_err *err);

/* An open communicator; all zero = there is none, and the rank is alone. */
struct jm_comm {
	const struct jm_transport *transport;
	void *state;
	int rank, world;
};

int jm_comm_open(const char *transport, const struct jm_comm_place *place, struct jm_comm *ret,
	struct jm_err *err);
void jm_comm_close(struct jm_comm *comm); /* one that is zeroed, too */
/* start, then wait. */
int jm_comm_run(const struct jm_comm *comm, const struct jm_transfer *t, struct jm_err *err);
/* Of host memory: the sum over the ranks in place; the value of rank 0 in place. Alone: nothing changes. */
int jm_comm_sum(const struct jm_comm *comm, double *value, int n, struct jm_err *err);
int jm_comm_from_first(const struct jm_comm *comm, void *value, size_t bytes, struct jm_err *err);

#endif
