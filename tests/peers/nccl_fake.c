/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake NCCL for the fake device of backend_later.c: its transfers run in a stream of that device,
 * by transport local over an unnamed file that rank 0 makes; the others find it by the identity.
 * Arguments are checked: memory of the device, and the same transfer on all ranks, where NCCL would
 * hang or compute nonsense. JM_FAKE_NCCL_US: microseconds that each transfer waits before it
 * begins. JM_FAKE_NCCL_FAILS=N: the N-th transfer is refused. JM_FAKE_NCCL_HANGS=N: the N-th
 * transfer waits until the communicator is aborted, and ncclCommGetAsyncError tells a fault, as
 * when a link fails. JM_FAKE_NCCL_INIT_HANGS=RANK: the rank that never opens its communicator, so
 * that the others wait for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/comm.h"
#include "fake_stream.h"

#define BAD_ARGUMENT 4
#define FAILED	     3
#define REMOTE	     6

extern const struct jm_transport jm_transport_local;

struct id {
	char bytes[128];
};

/* It is freed by the last of its transfers, or by ncclCommAbort. */
struct comm {
	void *local;
	int world, n;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int users; /* its owner, and the transfers that are queued */
	bool faulty, aborted;
};

struct work {
	struct comm *comm;
	struct jm_transfer t;
	bool hangs;
};

static void leave(struct comm *c)
{
	bool last;

	pthread_mutex_lock(&c->lock);
	last = !--c->users;
	pthread_mutex_unlock(&c->lock);
	if (!last)
		return;
	jm_transport_local.close(c->local);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

JM_API int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
	const char *given = getenv("JM_FAKE_NCCL_VERSION");

	*version = given ? atoi(given) : 22803;
	return 0;
}

JM_API int ncclGetUniqueId(struct id *id);
int ncclGetUniqueId(struct id *id)
{
	int fd = memfd_create("nccl-fake", MFD_CLOEXEC);

	snprintf(id->bytes, sizeof(id->bytes), "/proc/%d/fd/%d", (int)getpid(), fd);
	return fd < 0 ? FAILED : 0;
}

/* What NCCL_DEBUG asks for goes to the file that NCCL_DEBUG_FILE names, else to standard output. */
static void tell(int rank)
{
	const char *file = getenv("NCCL_DEBUG_FILE");
	FILE *f = getenv("NCCL_DEBUG") ? fopen(file ? file : "/dev/stdout", "we") : NULL;

	if (!f)
		return;
	fprintf(f, "nccl-fake INFO: rank %d\n", rank);
	fclose(f);
}

JM_API int ncclCommInitRank(void **ret, int world, struct id id, int rank);
int ncclCommInitRank(void **ret, int world, struct id id, int rank)
{
	const char *hangs = getenv("JM_FAKE_NCCL_INIT_HANGS");
	struct comm *c = calloc(1, sizeof(*c));
	int fd = open(id.bytes, O_RDWR | O_CLOEXEC);
	struct jm_comm_place place = {.rank = rank, .world = world, .fd = fd};
	int rc;

	while (hangs && atoi(hangs) == rank)
		pause();
	rc = fd < 0 || !c || jm_transport_local.open(&place, &c->local, NULL) ? FAILED : 0;
	tell(rank);
	if (c) {
		c->world = world;
		c->users = 1;
		pthread_mutex_init(&c->lock, NULL);
		pthread_cond_init(&c->changed, NULL);
	}
	if (fd >= 0)
		close(fd);
	*ret = c;
	return rc;
}

JM_API int ncclCommAbort(void *comm);
int ncclCommAbort(void *comm)
{
	struct comm *c = comm;

	if (!c)
		return BAD_ARGUMENT;
	pthread_mutex_lock(&c->lock);
	c->aborted = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	leave(c);
	return 0;
}

JM_API int ncclCommGetAsyncError(void *comm, int *result);
int ncclCommGetAsyncError(void *comm, int *result)
{
	struct comm *c = comm;

	if (!c)
		return BAD_ARGUMENT;
	pthread_mutex_lock(&c->lock);
	*result = c->faulty ? REMOTE : 0;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

/* Ends the process if a rank started another transfer. */
static void compare(const struct work *w)
{
	const struct jm_transfer *t = &w->t;
	uint64_t mine[] = {(uint64_t)t->kind, (uint64_t)t->type, (uint64_t)t->root, t->count},
		 first[4];
	struct jm_transfer told = {.kind = JM_BROADCAST,
		.type = JM_COMM_BYTE,
		.from = memcpy(first, mine, sizeof(mine)),
		.to = first,
		.count = sizeof(first)};

	if (!jm_transport_local.start(w->comm->local, &told, NULL) &&
		!memcmp(first, mine, sizeof(mine)))
		return;
	fprintf(stderr, "nccl-fake: the ranks started different transfers\n");
	abort();
}

/* A transfer that hangs returns when it is. */
static bool is_aborted(const struct work *w)
{
	struct comm *c = w->comm;
	bool aborted;

	pthread_mutex_lock(&c->lock);
	if (w->hangs)
		c->faulty = true;
	while (w->hangs && !c->aborted)
		pthread_cond_wait(&c->changed, &c->lock);
	aborted = c->aborted;
	pthread_mutex_unlock(&c->lock);
	return aborted;
}

static void run(void *arg)
{
	const char *delay = getenv("JM_FAKE_NCCL_US");
	struct work *w = arg;

	if (delay)
		usleep((unsigned)atoi(delay));
	if (!is_aborted(w)) {
		if (w->t.kind != JM_SEND_RECEIVE) /* which a rank may start alone */
			compare(w);
		if (jm_transport_local.start(w->comm->local, &w->t, NULL))
			abort();
	}
	leave(w->comm);
	free(w);
}

static bool owns(const struct comm *c, const struct jm_transfer *t)
{
	const struct jm_fake_stream *s = t->stream;
	size_t bytes = t->count * jm_comm_type_bytes(t->type);
	size_t from = t->kind == JM_REDUCE_SCATTER ? (size_t)c->world : 1;
	size_t to = t->kind == JM_ALL_GATHER ? (size_t)c->world : 1;

	return (!t->from || s->owns(s, t->from, from * bytes)) &&
	       (!t->to || s->owns(s, t->to, to * bytes));
}

static int put(struct comm *c, struct jm_transfer t, int type)
{
	static const int types[] = {
		[1] = JM_COMM_BYTE, [7] = JM_COMM_F32, [8] = JM_COMM_F64, [9] = JM_COMM_BF16};
	const char *fails = getenv("JM_FAKE_NCCL_FAILS"), *hangs = getenv("JM_FAKE_NCCL_HANGS");
	const struct jm_fake_stream *s = t.stream;
	struct work *w = calloc(1, sizeof(*w));

	if (!w || !s || (type != 1 && (type < 7 || type > 9))) {
		free(w);
		return BAD_ARGUMENT;
	}
	t.type = (enum jm_comm_type)types[type];
	if (!owns(c, &t)) {
		free(w);
		return BAD_ARGUMENT;
	}
	c->n++;
	if (fails && c->n == atoi(fails)) {
		free(w);
		return FAILED;
	}
	*w = (struct work){c, t, hangs && c->n == atoi(hangs)};
	pthread_mutex_lock(&c->lock);
	c->users++;
	pthread_mutex_unlock(&c->lock);
	return s->put(s, run, w) ? FAILED : 0;
}

JM_API int ncclAllReduce(
	const void *from, void *to, size_t n, int type, int op, void *comm, void *stream);
int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, void *comm, void *stream)
{
	if (op)
		return BAD_ARGUMENT;
	return put(comm,
		(struct jm_transfer){.kind = JM_ALL_REDUCE,
			.from = from,
			.to = to,
			.count = n,
			.stream = stream},
		type);
}

JM_API int ncclAllGather(const void *from, void *to, size_t n, int type, void *comm, void *stream);
int ncclAllGather(const void *from, void *to, size_t n, int type, void *comm, void *stream)
{
	return put(comm,
		(struct jm_transfer){.kind = JM_ALL_GATHER,
			.from = from,
			.to = to,
			.count = n,
			.stream = stream},
		type);
}

JM_API int ncclReduceScatter(
	const void *from, void *to, size_t n, int type, int op, void *comm, void *stream);
int ncclReduceScatter(
	const void *from, void *to, size_t n, int type, int op, void *comm, void *stream)
{
	if (op)
		return BAD_ARGUMENT;
	return put(comm,
		(struct jm_transfer){.kind = JM_REDUCE_SCATTER,
			.from = from,
			.to = to,
			.count = n,
			.stream = stream},
		type);
}

JM_API int ncclBroadcast(
	const void *from, void *to, size_t n, int type, int root, void *comm, void *stream);
int ncclBroadcast(
	const void *from, void *to, size_t n, int type, int root, void *comm, void *stream)
{
	return put(comm,
		(struct jm_transfer){.kind = JM_BROADCAST,
			.from = from,
			.to = to,
			.count = n,
			.root = root,
			.stream = stream},
		type);
}

/* The messages of a group: the k-th that is sent goes beside the k-th that is received. */
#define MESSAGES 64
static _Thread_local struct group {
	bool open;
	int n[2], type;
	struct comm *comm;
	struct jm_transfer t[MESSAGES];
} group;

static struct jm_transfer *next(int way, size_t n, int type, void *comm, void *stream)
{
	struct jm_transfer *t = &group.t[group.n[way]];

	if (!group.open || group.n[way]++ == MESSAGES)
		return NULL;
	if (group.n[way] > group.n[!way])
		*t = (struct jm_transfer){.kind = JM_SEND_RECEIVE,
			.to_rank = -1,
			.from_rank = -1,
			.count = n,
			.stream = stream};
	group.comm = comm;
	group.type = type;
	return t;
}

JM_API int ncclGroupStart(void);
int ncclGroupStart(void)
{
	group = (struct group){.open = true};
	return 0;
}

JM_API int ncclSend(const void *from, size_t n, int type, int peer, void *comm, void *stream);
int ncclSend(const void *from, size_t n, int type, int peer, void *comm, void *stream)
{
	struct jm_transfer *t = next(0, n, type, comm, stream);

	if (!t)
		return BAD_ARGUMENT;
	t->from = from;
	t->to_rank = peer;
	return 0;
}

JM_API int ncclRecv(void *to, size_t n, int type, int peer, void *comm, void *stream);
int ncclRecv(void *to, size_t n, int type, int peer, void *comm, void *stream)
{
	struct jm_transfer *t = next(1, n, type, comm, stream);

	if (!t)
		return BAD_ARGUMENT;
	t->to = to;
	t->from_rank = peer;
	return 0;
}

JM_API int ncclGroupEnd(void);
int ncclGroupEnd(void)
{
	int most = group.n[0] > group.n[1] ? group.n[0] : group.n[1], rc = 0;

	for (int i = 0; i < most && !rc; i++)
		rc = put(group.comm, group.t[i], group.type);
	group.open = false;
	return rc;
}

JM_API const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result)
{
	if (result == REMOTE)
		return "remote process exited or there was a network error";
	return result == BAD_ARGUMENT ? "invalid argument" : "internal error";
}

JM_API const char *ncclGetLastError(void *comm);
const char *ncclGetLastError(void *comm)
{
	(void)comm;
	return "the fake NCCL was told to fail";
}
