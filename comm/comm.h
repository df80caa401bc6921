/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room comm: transfers between ranks. One file = one transport; `local`, by shared memory between
 * the processes of one host, defines the result of every transfer.
 * May include: lib/base, vendor.
 *
 * A gang of `world` ranks opens a communicator together. From then on each rank starts the same
 * transfers in the same order, with the same kind, type and count. Only send-receive is exempt: a
 * rank starts it where it sends or receives, and the messages of two ranks are matched in their
 * order. `start` may return before the transfer is done; until then the caller must not touch its
 * memory. A transfer in host memory is done when `wait` returns; one in device memory is queued on
 * a stream of the device and is done when the stream has passed it.
 *
 * A communicator is used by one thread. After an error it cannot be used again, and all ranks have
 * to end.
 */
#ifndef JM_COMM_H
#define JM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/net/meeting.h"
#include "joulemark.h"

#define JM_RANKS_MOST JM_MEET_MOST

enum jm_comm_type { JM_COMM_BYTE, JM_COMM_F32, JM_COMM_F64, JM_COMM_BF16, JM_COMM_F16 };

static inline size_t jm_comm_type_bytes(enum jm_comm_type type)
{
	static const size_t bytes[] = {[JM_COMM_BYTE] = 1,
		[JM_COMM_F32] = 4,
		[JM_COMM_F64] = 8,
		[JM_COMM_BF16] = 2,
		[JM_COMM_F16] = 2};

	return bytes[type];
}

/*
 * n = count, W = world, elements of `type`:
 *	all-reduce	from [n], to [n]: the sum over the ranks, the same bits on each. from == to
 *			is allowed
 *	all-gather	from [n], to [W n]: the data of all ranks in rank order. from may be the
 *			rank's own part of `to`, which is then only read, unless it is rounded
 *	reduce-scatter	from [W n], to [n]: this rank's part of the sum over the ranks
 *	broadcast	from [n] of rank `root`, to [n] of all; from == to is allowed
 *	all-to-all	from [W n], to [W n]: part r of `from` becomes part `rank` of `to` of rank r
 *	send-receive	from [n] to rank to_rank, and to [n] from rank from_rank, at the same time;
 *			-1 = not
 * Sums are of f32 and bf16, and of f64 and f16 (not host). `local` and `net` add in the order of
 * the ranks.
 */
enum jm_transfer_kind {
	JM_ALL_REDUCE,
	JM_ALL_GATHER,
	JM_REDUCE_SCATTER,
	JM_BROADCAST,
	JM_ALL_TO_ALL,
	JM_SEND_RECEIVE
};

struct jm_transfer {
	enum jm_transfer_kind kind;
	enum jm_comm_type type;
	/* f32 is rounded to bf16 for the way between ranks, and added in f32. For transports that
	 * round. The result of an all-reduce or all-gather is rounded on all ranks, that of a
	 * reduce-scatter is own data + rounded data of others. */
	bool rounds;
	const void *from;
	void *to;
	size_t count;
	int root;
	int to_rank, from_rank; /* of a send-receive */
	void *stream;		/* for a transport of device memory; else NULL */
};

struct jm_comm;
struct jm_lanes;
struct jm_meet;

/* What transfers may take of a device; all zero = what the transport chooses. */
struct jm_comm_limits {
	int min_ctas, max_ctas; /* blocks of threads of a transfer; 0 = no limit */
	bool copy_engines;	/* no blocks where the transport can do without */
};

/* What a rank needs to open a communicator. */
struct jm_comm_place {
	int rank, world;
	/* seconds that a rank waits for others until all have come (jm_comm_joined); 0 = without
	 * limit */
	double join_s;
	int fd; /* local, host: the file that the launcher made for the gang */
	const struct jm_meet *
		meet; /* net: where ranks of several hosts meet (base/net/meet.h); NULL = over `control` */
	const struct jm_comm *control; /* other transports: an open communicator of the same gang */
	void *device; /* host: of a backend, with its lanes (lanes.h); NULL = it has none */
	const struct jm_lanes *lanes;
	struct jm_comm_limits limits; /* of transports with `windows` */
	/* nccl: makes the device current in the calling thread */
	int (*enter)(void *arg, struct jm_err *err);
	void *enter_arg;
};

/* On the machine's clock, if the ranks begin to open now. */
static inline int64_t jm_comm_join_until(const struct jm_comm_place *place)
{
	if (!(place->join_s > 0))
		return JM_FOREVER;
	return jm_clock_now(jm_clock_real()) + (int64_t)(place->join_s * 1e9);
}

/* The ranks of a communicator that have one colour, in their order. */
struct jm_comm_group {
	int n, rank; /* how many, and which of them this one is */
	/* ranks of groups whose first rank is lower: no two groups share a place in memory */
	int before;
	int member[JM_RANKS_MOST]; /* their ranks in the communicator */
};

/* Increased with any change of this file, or of jm_err, that a plug-in notices. */
#define JM_TRANSPORT_ABI 1

struct jm_transport {
	const char *name;
	const char *summary;
	bool host_memory; /* false: memory of the device that is current in the calling thread */
	bool rounds;	  /* a transfer may be rounded */
	bool windows;	  /* it takes limits, and has window and window_free */
	int (*check)(struct jm_err *err); /* 0 = the transport can be opened here; NULL = always */
	/* Of a plug-in: its own table, in place of this one, which has no more. NULL = built in. */
	int (*load)(const struct jm_transport **ret, struct jm_err *err);
	/* Waits for all ranks. */
	int (*open)(const struct jm_comm_place *place, void **ret_state, struct jm_err *err);
	/* A communicator of a part of the ranks, which borrows what this one has; all ranks call
	 * it. control: of the group, where transfers are in memory of the device; else NULL. */
	int (*split)(void *state, const struct jm_comm_group *group, const struct jm_comm *control,
		void **ret_state, struct jm_err *err);
	/* Memory of the device that is registered for transfers. All ranks take windows of the same
	 * size in the same order; one is freed behind `leave`. */
	int (*window)(void *state, size_t bytes, void **ret_memory, struct jm_err *err);
	void (*window_free)(void *state, void *memory); /* takes NULL */
	/* All ranks have come: from now on waits for them have no limit of time. NULL = only open
	 * has one. */
	void (*joined)(void *state);
	int (*start)(void *state, const struct jm_transfer *t, struct jm_err *err);
	/* Waits for all transfers that were started; NULL = start waits. */
	int (*wait)(void *state, struct jm_err *err);
	/*
	 * 0 = no transfer that was started has failed so far; takes microseconds. On failure the
	 * transfers end without a result, so that their stream is passed. NULL = start and wait
	 * report every failure.
	 */
	int (*poll)(void *state, struct jm_err *err);
	/* Ends all transfers, with a result or without, so that the memory they read and write may
	 * be freed; only close follows. An error: they have not ended, and their memory must stay.
	 * NULL = a transfer ends where it starts. */
	int (*leave)(void *state, struct jm_err *err);
	void (*close)(void *state); /* takes NULL */
};

/* What a plug-in gives; the first member never moves. */
struct jm_transport_plugin {
	uint32_t abi; /* JM_TRANSPORT_ABI */
	const struct jm_transport *transport;
};
JM_API const struct jm_transport_plugin *jm_transport_entry(void);

extern const struct jm_transport *const jm_transports[]; /* NULL-terminated, generated */

const struct jm_transport *jm_transport_find(const char *name, struct jm_err *err);

/* An open communicator; all zero = none, for a single rank. */
struct jm_comm {
	const struct jm_transport *transport;
	void *state;
	int rank, world;
	const struct jm_comm
		*control; /* in memory of the device: of the same ranks, in memory of the host */
	struct jm_comm *own_control; /* a group's, which is closed with it; NULL = none */
};

int jm_comm_open(const char *transport, const struct jm_comm_place *place, struct jm_comm *ret,
	struct jm_err *err);
/*
 * Splits the communicator: the ranks that give the same colour become a group, with ranks counted
 * from 0 in their order. All ranks call it. A group is closed before the communicator; ranks that
 * belong to several communicators start transfers of these in one order. The control communicator
 * is split as well, so that it must be that of the whole gang.
 */
int jm_comm_split(const struct jm_comm *comm, int colour, struct jm_comm *ret, struct jm_err *err);
void jm_comm_joined(const struct jm_comm *comm);
/* Ends all transfers before the memory of some is freed; only jm_comm_close may follow. A zeroed
 * one is allowed. An error: they have not ended, and the memory must stay. */
int jm_comm_leave(struct jm_comm *comm, struct jm_err *err);
void jm_comm_close(struct jm_comm *comm); /* a zeroed one is allowed */
/* Starts the transfer and waits for it. */
int jm_comm_run(const struct jm_comm *comm, const struct jm_transfer *t, struct jm_err *err);
/* In host memory: replaces the values by their sum over the ranks, or by the value of rank 0. For a
 * single rank nothing changes. */
int jm_comm_sum(const struct jm_comm *comm, double *value, int n, struct jm_err *err);
int jm_comm_from_first(const struct jm_comm *comm, void *value, size_t bytes, struct jm_err *err);

#endif
