/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport `nccl`: NVIDIA GPUs of one or more hosts. The library is opened with the first
 * communicator; its functions are declared as in nccl.h of NCCL 2 (NVIDIA, BSD 3-Clause).
 *
 * Communicators block, because one that does not starts a thread for each transfer, which took 50
 * us on an H200. With NCCL_COMM_BLOCKING=0 they do not: a call that needs other ranks returns "in
 * progress", and this file asks NCCL for its end, or for an error of a link or a rank.
 */
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm.h"
#include "vendor/library.h"

#define ID_BYTES    128
#define SUM	    0	  /* ncclSum */
#define IN_PROGRESS 7	  /* ncclInProgress */
#define OLDEST	    21400 /* 2.14, the first with communicators that do not block */
#define LIMITS	    21700 /* the first with limits of CTAs */
#define WINDOWS	    22700 /* the first with windows */
#define ZERO_CTAS   22800 /* the first with copies by copy engines */
#define POLICY_ZERO 2	  /* NCCL_CTA_POLICY_ZERO */
#define SYMMETRIC   1	  /* NCCL_WIN_COLL_SYMMETRIC */
#define UNDEFINED   INT_MIN
#define SPIN_NS	    1000000 /* asks without a pause so long, then each PAUSE_NS */
#define PAUSE_NS    100000
#define GRACE_NS    1000000000

struct id {
	char bytes[ID_BYTES];
};

/* ncclConfig_t of 2.28; NCCL takes `size` bytes of it, which may be those of an older version. */
struct config {
	size_t size;
	unsigned magic, version;
	int blocking, cga_size, min_ctas, max_ctas;
	const char *net; /* the last one of 2.17 */
	int split_share, traffic_class;
	const char *name;
	int collnet, cta_policy, shrink_share, nvls_ctas, channels, nvlink_schedule;
};

struct calls {
	int (*version)(int *version);
	int (*get_id)(struct id *id);
	int (*init)(void **comm, int world, struct id id, int rank, struct config *config);
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
	/* since 2.19 and 2.27; NULL before */
	int (*allocate)(void **memory, size_t bytes);
	int (*release)(void *memory);
	int (*enroll)(void *comm, void *memory, size_t bytes, void **window, int flags);
};

#define ROW(member, name)                                                                          \
	{                                                                                          \
		name, offsetof(struct calls, member)                                               \
	}

static const struct jm_symbol symbols[] = {
	ROW(version, "ncclGetVersion"),
	ROW(get_id, "ncclGetUniqueId"),
	ROW(init, "ncclCommInitRankConfig"),
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
	ROW(allocate, "ncclMemAlloc"),
	ROW(release, "ncclMemFree"),
	ROW(enroll, "ncclCommWindowRegister"),
};

static const struct jm_library library = {
	.title = "NCCL",
	.variable = "JM_NCCL_LIB",
	.names = {"libnccl.so.2", "libnccl.so"},
	.mend = "install NVIDIA's libnccl2, or name its folder in LD_LIBRARY_PATH",
	.symbols = symbols,
	.n_symbols = sizeof(symbols) / sizeof(symbols[0]),
	.n_optional = 3,
};

struct nccl {
	struct calls call;
	int version;
	void *comm;
	struct jm_comm_place place;
	/* of opening */
	struct id id;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool connected;
	int code;
	struct jm_err err;
};

/* The values of enum ncclDataType_t. */
static const int types[] = {[JM_COMM_BYTE] = 1,
	[JM_COMM_F16] = 6,
	[JM_COMM_F32] = 7,
	[JM_COMM_F64] = 8,
	[JM_COMM_BF16] = 9};

static int check(const struct nccl *n, int rc, const char *what, struct jm_err *err)
{
	const char *more = rc ? n->call.last(n->comm) : "";

	if (!rc)
		return 0;
	return jm_err_set(err, JM_EIO, "%s by NCCL failed: %s%s%.300s.", what, n->call.text(rc),
		more && *more ? "; " : "", more ? more : "");
}

static int open_library(struct calls *ret, int *ret_version, struct jm_err *err)
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
			"NCCL has version %d, but 2.14 or newer is needed; update it.", version);
	*ret_version = version;
	return 0;
}

static int nccl_check(struct jm_err *err)
{
	struct calls calls;
	int version;

	return open_library(&calls, &version, err);
}

/* ---- calls in progress ----------------------------------------------------------------------- */

static void pause_since(int64_t began_ns)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};

	if (jm_clock_now(jm_clock_real()) - began_ns > SPIN_NS)
		nanosleep(&pause, NULL);
}

static int give_up(const struct nccl *n, const char *what, struct jm_err *err)
{
	return jm_err_set(err, JM_EIO,
		"%s by NCCL has not ended within %g s: a rank or the link to it does not answer. "
		"NCCL_DEBUG=INFO prints what NCCL does, and JM_GANG_SECONDS gives it more time.",
		what, n->place.join_s);
}

/* rc: of the call. Waits until NCCL has done what was called for, at most until until_ns. */
static int settle(
	const struct nccl *n, int rc, int64_t until_ns, const char *what, struct jm_err *err)
{
	int64_t began_ns = jm_clock_now(jm_clock_real());

	while (rc == IN_PROGRESS) {
		int failed = n->call.fault(n->comm, &rc);

		rc = failed ? failed : rc;
		if (rc == IN_PROGRESS && jm_clock_now(jm_clock_real()) >= until_ns)
			return give_up(n, what, err);
		if (rc == IN_PROGRESS)
			pause_since(began_ns);
	}
	return check(n, rc, what, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Versions that differ may hang: each rank learns those of all, so that all end alike. */
static int compare_versions(const struct nccl *n, struct jm_err *err)
{
	double version[JM_RANKS_MOST] = {0};
	int world = n->place.world, rank = 1, code;

	version[n->place.rank] = n->version;
	code = jm_comm_sum(n->place.control, version, world, err);
	while (!code && rank < world && version[rank] == version[0])
		rank++;
	if (code || rank >= world)
		return code;
	return jm_err_set(err, JM_EVERSION,
		"NCCL differs between ranks: rank 0 has version %.0f, rank %d has %.0f; install "
		"the same on all hosts.",
		version[0], rank, version[rank]);
}

/* Rank 0 makes the id of the communicator, which all others receive. */
static int share_id(struct nccl *n, struct jm_err *err)
{
	int code = 0;

	if (!n->place.rank)
		code = check(n, n->call.get_id(&n->id), "Making a communicator", err);
	return code ? code : jm_comm_from_first(n->place.control, &n->id, sizeof(n->id), err);
}

static int too_old(const struct nccl *n, const char *what, int needed, struct jm_err *err)
{
	return jm_err_set(err, JM_EVERSION,
		"NCCL %d.%d has no %s, which need %d.%d or newer; update it, or omit the option.",
		n->version / 10000, n->version / 100 % 100, what, needed / 10000,
		needed / 100 % 100);
}

static int check_limits(const struct nccl *n, struct jm_err *err)
{
	const struct jm_comm_limits *limits = &n->place.limits;

	if ((limits->min_ctas || limits->max_ctas) && n->version < LIMITS)
		return too_old(n, "limits of CTAs", LIMITS, err);
	if (limits->copy_engines && n->version < ZERO_CTAS)
		return too_old(n, "transfers by copy engines", ZERO_CTAS, err);
	return 0;
}

/* As short as it may be, so that older versions know all of it. */
static struct config config_of(const struct jm_comm_limits *limits)
{
	return (struct config){.size = limits->copy_engines ? sizeof(struct config)
							    : offsetof(struct config, split_share),
		.magic = 0xcafebeef,
		.version = limits->copy_engines ? ZERO_CTAS : LIMITS,
		.blocking = 1,
		.cga_size = UNDEFINED,
		.min_ctas = limits->min_ctas ? limits->min_ctas : UNDEFINED,
		.max_ctas = limits->max_ctas ? limits->max_ctas : UNDEFINED,
		.split_share = UNDEFINED,
		.traffic_class = UNDEFINED,
		.collnet = UNDEFINED,
		.cta_policy = POLICY_ZERO,
		.shrink_share = UNDEFINED,
		.nvls_ctas = UNDEFINED,
		.channels = UNDEFINED,
		.nvlink_schedule = UNDEFINED};
}

static int connect_ranks(struct nccl *n, struct jm_err *err)
{
	struct config config = config_of(&n->place.limits);
	int64_t until_ns = jm_comm_join_until(&n->place);
	int rc, code = n->place.enter(n->place.enter_arg, err);

	if (code)
		return code;
	rc = n->call.init(&n->comm, n->place.world, n->id, n->place.rank, &config);
	return settle(n, rc, until_ns, "Opening a communicator", err);
}

static void *connect_in_thread(void *arg)
{
	struct nccl *n = arg;
	int code = connect_ranks(n, &n->err);

	pthread_mutex_lock(&n->lock);
	n->code = code;
	n->connected = true;
	pthread_cond_signal(&n->changed);
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

/* A communicator that does not block gives up by itself before. */
static bool is_connected_in_time(struct nccl *n)
{
	int64_t until_ns = jm_comm_join_until(&n->place);
	struct timespec until;
	bool connected;
	int rc = 0;

	until_ns = until_ns > JM_FOREVER - GRACE_NS ? JM_FOREVER : until_ns + GRACE_NS;
	until = (struct timespec){until_ns / JM_SECOND, until_ns % JM_SECOND};
	pthread_mutex_lock(&n->lock);
	while (!n->connected && !rc)
		rc = pthread_cond_clockwait(&n->changed, &n->lock, CLOCK_MONOTONIC, &until);
	connected = n->connected;
	pthread_mutex_unlock(&n->lock);
	return connected;
}

/* A communicator that blocks opens when all ranks have come, which one that hangs never does: it
 * opens in a thread. ret_left: n belongs to this thread as long as the process lives. */
static int connect_in_time(struct nccl *n, bool *ret_left, struct jm_err *err)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, connect_in_thread, n))
		return jm_err_set(err, JM_ENOMEM, "A thread for a communicator could not be made.");
	*ret_left = !is_connected_in_time(n);
	if (*ret_left) {
		pthread_detach(thread);
		return give_up(n, "Opening a communicator", err);
	}
	pthread_join(thread, NULL);
	return n->code ? jm_err_set(err, n->code, "%s", n->err.text) : 0;
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

static int nccl_open(const struct jm_comm_place *place, void **ret_state, struct jm_err *err)
{
	struct nccl *n = calloc(1, sizeof(*n));
	bool left = false;
	int code;

	if (!n)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a communicator.");
	*n = (struct nccl){.place = *place,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
		.err = JM_ERR_INIT};
	code = open_library(&n->call, &n->version, err);
	if (!code)
		code = check_limits(n, err);
	if (!code)
		code = compare_versions(n, err);
	if (!code)
		code = share_id(n, err);
	if (!code)
		code = connect_in_time(n, &left, err);
	if (code && !left)
		nccl_close(n);
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

/* Symmetric: all ranks have one of this size, so that each may read and write those of the
 * others. The communicator forgets it when it is aborted. */
static int nccl_window(void *state, size_t bytes, void **ret_memory, struct jm_err *err)
{
	const struct nccl *n = state;
	void *memory = NULL, *window = NULL;
	int code;

	if (!n->call.allocate || !n->call.release || !n->call.enroll)
		return too_old(n, "windows", WINDOWS, err);
	code = check(n, n->call.allocate(&memory, bytes), "Allocating a window", err);
	if (code)
		return code;
	code = settle(n, n->call.enroll(n->comm, memory, bytes, &window, SYMMETRIC), JM_FOREVER,
		"Registering a window", err);
	if (code)
		n->call.release(memory);
	else
		*ret_memory = memory;
	return code;
}

static void nccl_window_free(void *state, void *memory)
{
	const struct nccl *n = state;

	if (memory)
		n->call.release(memory);
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
	if ((!rc || rc == IN_PROGRESS) && from_rank >= 0)
		rc = n->call.receive(to, t->count, type, from_rank, n->comm, t->stream);
	return rc == IN_PROGRESS ? 0 : rc;
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
	return settle(n, rc, JM_FOREVER, "A transfer", err);
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

const struct jm_transport jm_transport_nccl = {
	.name = "nccl",
	.summary = "NVIDIA GPUs, by NCCL (NVLink, PCIe, network)",
	.windows = true,
	.check = nccl_check,
	.open = nccl_open,
	.split = nccl_split,
	.window = nccl_window,
	.window_free = nccl_window_free,
	.start = nccl_start,
	.poll = nccl_poll,
	.leave = nccl_leave,
	.close = nccl_close,
};
