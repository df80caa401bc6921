/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport `nccl`: NVIDIA GPUs of one or more hosts. The library is opened with the first
 * communicator; its functions are declared as in nccl.h of NCCL 2 (NVIDIA, BSD 3-Clause).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm.h"
#include "vendor/library.h"

#define ID_BYTES    128
#define SUM	    0	  /* ncclSum */
#define IN_PROGRESS 7	  /* ncclInProgress */
#define OLDEST	    21300 /* 2.13, the first with ncclGetLastError */

struct id {
	char bytes[ID_BYTES];
};

struct calls {
	int (*version)(int *version);
	int (*get_id)(struct id *id);
	int (*init)(void **comm, int world, struct id id, int rank);
	int (*abort)(void *comm);
	int (*fault)(void *comm, int *result);
	int (*all_reduce)(
		const void *from, void *to, size_t n, int type, int op, void *comm, void *stream);
	int (*all_gather)(const void *from, void *to, size_t n, int type, void *comm, void *stream);
	int (*reduce_scatter)(
		const void *from, void *to, size_t n, int type, int op, void *comm, void *stream);
	int (*broadcast)(
		const void *from, void *to, size_t n, int type, int root, void *comm, void *stream);
	int (*send)(const void *from, size_t n, int type, int to, void *comm, void *stream);
	int (*receive)(void *to, size_t n, int type, int from, void *comm, void *stream);
	int (*group_begin)(void);
	int (*group_end)(void);
	const char *(*text)(int result);
	const char *(*last)(void *comm);
};

#define ROW(member, name)                                                                          \
	{                                                                                          \
		name, offsetof(struct calls, member)                                               \
	}

static const struct jm_symbol symbols[] = {
	ROW(version, "ncclGetVersion"),
	ROW(get_id, "ncclGetUniqueId"),
	ROW(init, "ncclCommInitRank"),
	ROW(abort, "ncclCommAbort"),
	ROW(fault, "ncclCommGetAsyncError"),
	ROW(all_reduce, "ncclAllReduce"),
	ROW(all_gather, "ncclAllGather"),
	ROW(reduce_scatter, "ncclReduceScatter"),
	ROW(broadcast, "ncclBroadcast"),
	ROW(send, "ncclSend"),
	ROW(receive, "ncclRecv"),
	ROW(group_begin, "ncclGroupStart"),
	ROW(group_end, "ncclGroupEnd"),
	ROW(text, "ncclGetErrorString"),
	ROW(last, "ncclGetLastError"),
};

static const struct jm_library library = {
	.title = "NCCL",
	.variable = "JM_NCCL_LIB",
	.names = {"libnccl.so.2", "libnccl.so"},
	.mend = "install NVIDIA's libnccl2, or name its folder in LD_LIBRARY_PATH",
	.symbols = symbols,
	.n_symbols = sizeof(symbols) / sizeof(symbols[0]),
};

struct nccl {
	struct calls call;
	void *comm;
	/* of opening */
	struct jm_comm_place place;
	struct id id;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool connected;
	int code;
	struct jm_err err;
};

/* The values of enum ncclDataType_t. */
static const int types[] = {
	[JM_COMM_BYTE] = 1, [JM_COMM_F32] = 7, [JM_COMM_F64] = 8, [JM_COMM_BF16] = 9};

static int check(const struct nccl *n, int rc, const char *what, struct jm_err *err)
{
	const char *more = rc ? n->call.last(n->comm) : "";

	if (!rc)
		return 0;
	return jm_err_set(err, JM_EIO, "%s by NCCL failed: %s%s%.300s.", what, n->call.text(rc),
		more && *more ? "; " : "", more ? more : "");
}

static int open_library(struct calls *ret, struct jm_err *err)
{
	int version = 0, code;

	/*
	 * NVLink multicast needs a service of the host that containers may lack; a value set by the
	 * user has precedence.
	 */
	setenv("NCCL_NVLS_ENABLE", "0", 0);
	/* NCCL writes what NCCL_DEBUG asks for to standard output, which only rank 0 may have. */
	setenv("NCCL_DEBUG_FILE", "/dev/stderr", 0);
	code = jm_library_open(&library, ret, err);
	if (code)
		return code;
	if (ret->version(&version) || version < OLDEST)
		return jm_err_set(err, JM_EVERSION,
			"NCCL has version %d, but 2.13 or newer is needed; update it.", version);
	return 0;
}

static int nccl_check(struct jm_err *err)
{
	struct calls calls;

	return open_library(&calls, err);
}

/* Rank 0 makes the id of the communicator, which all others receive. */
static int share_id(struct nccl *n, struct jm_err *err)
{
	int code = 0;

	if (!n->place.rank)
		code = check(n, n->call.get_id(&n->id), "Making a communicator", err);
	return code ? code : jm_comm_from_first(n->place.control, &n->id, sizeof(n->id), err);
}

static void *connect_ranks(void *arg)
{
	struct nccl *n = arg;
	int code = n->place.enter(n->place.enter_arg, &n->err);

	if (!code)
		code = check(n, n->call.init(&n->comm, n->place.world, n->id, n->place.rank),
			"Opening a communicator", &n->err);
	pthread_mutex_lock(&n->lock);
	n->code = code;
	n->connected = true;
	pthread_cond_signal(&n->changed);
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

static bool is_connected_by(struct nccl *n, int64_t until_ns)
{
	const struct timespec until = {
		.tv_sec = until_ns / JM_SECOND, .tv_nsec = until_ns % JM_SECOND};
	bool connected;
	int rc = 0;

	pthread_mutex_lock(&n->lock);
	while (!n->connected && !rc)
		rc = pthread_cond_clockwait(&n->changed, &n->lock, CLOCK_MONOTONIC, &until);
	connected = n->connected;
	pthread_mutex_unlock(&n->lock);
	return connected;
}

/*
 * ncclCommInitRank returns when all ranks have come, which one that hangs never does: it is called
 * in a thread. A communicator that does not block could be aborted instead, but it would start a
 * thread for each transfer. On failure n is freed, or belongs to the thread as long as the process
 * lives.
 */
static int connect_in_time(struct nccl *n, struct jm_err *err)
{
	pthread_t thread;
	int code = 0;

	if (pthread_create(&thread, NULL, connect_ranks, n))
		code = jm_err_set(err, JM_ENOMEM, "A thread for a communicator could not be made.");
	if (!code && !is_connected_by(n, jm_comm_join_until(&n->place))) {
		pthread_detach(thread);
		return jm_err_set(err, JM_EIO,
			"Opening a communicator by NCCL has not ended within %g s: a rank or the "
			"link to it does not answer. NCCL_DEBUG=INFO prints what NCCL does, and "
			"JM_GANG_SECONDS gives it more time.",
			n->place.join_s);
	}
	if (!code)
		pthread_join(thread, NULL);
	if (!code && n->code)
		code = jm_err_set(err, n->code, "%s", n->err.text);
	if (code)
		free(n);
	return code;
}

static int nccl_open(const struct jm_comm_place *place, void **ret_state, struct jm_err *err)
{
	struct nccl *n = calloc(1, sizeof(*n));
	int code;

	if (!n)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a communicator.");
	*n = (struct nccl){.place = *place,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
		.err = JM_ERR_INIT};
	code = open_library(&n->call, err);
	if (!code)
		code = share_id(n, err);
	if (code) {
		free(n);
		return code;
	}
	code = connect_in_time(n, err);
	if (!code)
		*ret_state = n;
	return code;
}

/* NCCL has groups of its own since 2.18; a communicator opened by the ranks of the group is the
 * same in all versions. */
static int nccl_split(void *state, const struct jm_comm_group *group, const struct jm_comm *control,
	void **ret_state, struct jm_err *err)
{
	const struct nccl *all = state;
	struct jm_comm_place place = all->place;

	place.rank = group->rank;
	place.world = group->n;
	place.control = control;
	return nccl_open(&place, ret_state, err);
}

/* One message to a rank and one from a rank, -1 = none; the calls of a group go on at the same
 * time. */
static int swap(const struct nccl *n, const struct jm_transfer *t, size_t part_bytes, int to_rank,
	int from_rank)
{
	const char *from = (const char *)t->from + (size_t)(to_rank < 0 ? 0 : to_rank) * part_bytes;
	char *to = (char *)t->to + (size_t)(from_rank < 0 ? 0 : from_rank) * part_bytes;
	int type = types[t->type], rc = 0;

	if (to_rank >= 0)
		rc = n->call.send(from, t->count, type, to_rank, n->comm, t->stream);
	if (!rc && from_rank >= 0)
		rc = n->call.receive(to, t->count, type, from_rank, n->comm, t->stream);
	return rc;
}

static int start_group(const struct nccl *n, const struct jm_transfer *t)
{
	size_t each = t->count * jm_comm_type_bytes(t->type);
	int rank = n->place.rank, world = n->place.world;
	int rc = n->call.group_begin(), end;

	if (rc)
		return rc;
	if (t->kind == JM_SEND_RECEIVE)
		rc = swap(n, t, 0, t->to_rank, t->from_rank);
	for (int k = 0; t->kind == JM_ALL_TO_ALL && k < world && !rc; k++)
		rc = swap(n, t, each, (rank + k) % world, (rank - k + world) % world);
	end = n->call.group_end();
	return rc ? rc : end;
}

static int nccl_start(void *state, const struct jm_transfer *t, struct jm_err *err)
{
	const struct nccl *n = state;
	const struct calls *c = &n->call;
	int type = types[t->type], rc = 0;

	switch (t->kind) {
	case JM_ALL_REDUCE:
		rc = c->all_reduce(t->from, t->to, t->count, type, SUM, n->comm, t->stream);
		break;
	case JM_ALL_GATHER:
		rc = c->all_gather(t->from, t->to, t->count, type, n->comm, t->stream);
		break;
	case JM_REDUCE_SCATTER:
		rc = c->reduce_scatter(t->from, t->to, t->count, type, SUM, n->comm, t->stream);
		break;
	case JM_BROADCAST:
		rc = c->broadcast(t->from, t->to, t->count, type, t->root, n->comm, t->stream);
		break;
	case JM_ALL_TO_ALL:
	case JM_SEND_RECEIVE:
		rc = start_group(n, t);
		break;
	}
	return check(n, rc, "A transfer", err);
}

/* Faults of links and of other ranks do not end a transfer: its kernel waits until the communicator
 * is aborted. */
static int nccl_poll(void *state, struct jm_err *err)
{
	struct nccl *n = state;
	int result = 0, rc, code;

	if (!n->comm)
		return jm_err_set(err, JM_EGONE, "The transfers by NCCL were aborted.");
	rc = n->call.fault(n->comm, &result);
	if (result == IN_PROGRESS)
		result = 0;
	code = check(n, rc ? rc : result, "A transfer", err);
	if (code) {
		n->call.abort(n->comm);
		n->comm = NULL;
	}
	return code;
}

/* Aborts the communicator, because ncclCommDestroy waits for all ranks, some of which may have
 * ended. */
static int nccl_leave(void *state, struct jm_err *err)
{
	struct nccl *n = state;

	(void)err;
	if (n->comm)
		n->call.abort(n->comm);
	n->comm = NULL;
	return 0;
}

static void nccl_close(void *state)
{
	if (state)
		nccl_leave(state, NULL);
	free(state);
}

const struct jm_transport jm_transport_nccl = {
	.name = "nccl",
	.summary = "NVIDIA GPUs, by NCCL (NVLink, PCIe, network)",
	.check = nccl_check,
	.open = nccl_open,
	.split = nccl_split,
	.start = nccl_start,
	.poll = nccl_poll,
	.leave = nccl_leave,
	.close = nccl_close,
};
