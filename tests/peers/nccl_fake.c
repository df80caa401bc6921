/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake NCCL for the fake device of backend_later.c: its transfers run in a stream of that device,
 * by transport local over an unnamed file that rank 0 makes; the others find it by the identity.
 * Arguments are checked: memory of the device, and the same transfer on all ranks, where NCCL would
 * hang or compute nonsense. JM_FAKE_NCCL_US: microseconds that each transfer waits before it
 * begins. JM_FAKE_NCCL_FAILS=N: the N-th transfer is refused. JM_FAKE_NCCL_HANGS=N: the N-th
 * transfer waits until the communicator is aborted, and ncclCommGetAsyncError tells a fault, as
 * when a link fails. JM_FAKE_NCCL_LOSES=N: the N-th transfer is in progress until
 * ncclCommGetAsyncError tells a fault, and is never queued. JM_FAKE_NCCL_INIT_HANGS=RANK: the rank
 * that never opens its communicator, so that the others wait for it; RANK/N: only the N-th of a
 * process, in which it has this rank. JM_FAKE_NCCL_ORDER=own: sums begin at the rank whose number
 * is the first device's, so that two groups of ranks add the same values in other orders.
 *
 * JM_FAKE_NCCL_LOG: a file that gets a line for each communicator, with the smallest and the
 * largest number of CTAs and the policy that it asks for, -1 = none, and for each window, with its
 * bytes. With the policy "zero" transfers are in windows.
 *
 * With NCCL_COMM_BLOCKING=0 a communicator does not block: it opens in a thread, and a transfer is
 * queued by the second call of ncclCommGetAsyncError behind it. Until then every other call with it
 * is refused.
 */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/comm.h"
#include "fake_stream.h"
#include "nccl_order.h"

#define BAD_ARGUMENT 4
#define FAILED	     3
#define REMOTE	     6
#define IN_PROGRESS  7
#define MESSAGES     64 /* of a group */

extern const struct jm_transport jm_transport_local;

struct id {
	char bytes[128];
};

/* ncclConfig_t of 2.28. */
struct config {
	size_t size;
	unsigned magic, version;
	int blocking, cga, min_ctas, max_ctas;
	const char *net;
	int split, traffic;
	const char *name;
	int collnet, policy, shrink, nvls, channels, schedule;
};

/* Memory of ncclMemAlloc. */
static struct memory {
	char *at;
	size_t bytes;
	bool registered;
	struct memory *next;
} * memories;

struct work;

/* It is freed by its last user. */
struct comm {
	void *local;
	int rank, world, n, fd;
	bool hangs; /* it never opens */
	bool blocks, zero_ctas;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int users; /* its owner, the thread that opens it, and the transfers that are queued */
	int state; /* as ncclCommGetAsyncError tells it */
	bool aborted, loses;
	struct work *waiting[MESSAGES]; /* called for, but not queued yet */
	int n_waiting, asked;
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
	for (int i = 0; i < c->n_waiting; i++)
		free(c->waiting[i]);
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

static void *open_comm(void *arg)
{
	struct comm *c = arg;
	struct jm_comm_place place = {.rank = c->rank, .world = c->world, .fd = c->fd};
	int rc;

	while (c->hangs)
		pause();
	rc = jm_transport_local.open(&place, &c->local, NULL);
	close(c->fd);
	pthread_mutex_lock(&c->lock);
	c->state = rc ? FAILED : 0;
	pthread_mutex_unlock(&c->lock);
	leave(c);
	return NULL;
}

/* Of this rank, when it opens its communicator number `n`. */
static bool is_hung(int rank, int n)
{
	const char *hangs = getenv("JM_FAKE_NCCL_INIT_HANGS");
	const char *number = hangs ? strchr(hangs, '/') : NULL;

	return hangs && atoi(hangs) == rank && (!number || atoi(number + 1) == n);
}

static void write_log(const char *what, long a, long b, long c)
{
	const char *file = getenv("JM_FAKE_NCCL_LOG");
	FILE *f = file ? fopen(file, "ae") : NULL;

	if (!f)
		return;
	fprintf(f, "%s %ld %ld %ld\n", what, a, b, c);
	fclose(f);
}

static int given(int value)
{
	return value == INT_MIN ? -1 : value;
}

static void log_config(const struct config *c)
{
	bool limits = c->size > offsetof(struct config, max_ctas) && c->version >= 21700;
	bool policy = c->size > offsetof(struct config, policy) && c->version >= 22700;

	write_log("config", limits ? given(c->min_ctas) : -1, limits ? given(c->max_ctas) : -1,
		policy ? given(c->policy) : -1);
}

static bool blocks(const struct config *c)
{
	const char *asked = getenv("NCCL_COMM_BLOCKING");

	return asked ? atoi(asked) : c->blocking;
}

JM_API int ncclMemAlloc(void **ret, size_t bytes);
int ncclMemAlloc(void **ret, size_t bytes)
{
	struct memory *m = calloc(1, sizeof(*m));

	*m = (struct memory){.at = calloc(1, bytes), .bytes = bytes, .next = memories};
	*ret = m->at;
	memories = m;
	return 0;
}

JM_API int ncclMemFree(void *memory);
int ncclMemFree(void *memory)
{
	for (struct memory **at = &memories; *at; at = &(*at)->next) {
		struct memory *m = *at;

		if (m->at != memory)
			continue;
		*at = m->next;
		free(m->at);
		free(m);
		return 0;
	}
	return BAD_ARGUMENT;
}

/* The window that has all of this. */
static struct memory *memory_of(const void *from, size_t bytes)
{
	const char *at = from;
	struct memory *m = memories;

	while (m && !(at >= m->at && at + bytes <= m->at + m->bytes))
		m = m->next;
	return m;
}

JM_API int ncclCommWindowRegister(
	void *comm, void *memory, size_t bytes, void **ret_window, int flags);
int ncclCommWindowRegister(void *comm, void *memory, size_t bytes, void **ret_window, int flags)
{
	struct memory *m = memory_of(memory, bytes);

	if (!comm || !m || flags != 1)
		return BAD_ARGUMENT;
	m->registered = true;
	*ret_window = m;
	write_log("window", (long)bytes, 0, 0);
	return 0;
}

JM_API int ncclCommInitRankConfig(
	void **ret, int world, struct id id, int rank, const struct config *config);
int ncclCommInitRankConfig(
	void **ret, int world, struct id id, int rank, const struct config *config)
{
	static _Atomic int opened;
	struct comm *c = calloc(1, sizeof(*c));
	pthread_t thread;

	tell(rank);
	if (config->magic == 0xcafebeef)
		log_config(config);
	*ret = c;
	if (!c || config->magic != 0xcafebeef)
		return BAD_ARGUMENT;
	*c = (struct comm){.rank = rank,
		.world = world,
		.users = 2,
		.state = IN_PROGRESS,
		.blocks = blocks(config),
		.zero_ctas = config->size == sizeof(*config) && config->policy == 2,
		.hangs = is_hung(rank, ++opened),
		.fd = open(id.bytes, O_RDWR | O_CLOEXEC)};
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	if (c->fd < 0 || pthread_create(&thread, NULL, open_comm, c)) {
		c->users = 1;
		return FAILED;
	}
	if (c->blocks)
		return pthread_join(thread, NULL) ? FAILED : c->state;
	pthread_detach(thread);
	return IN_PROGRESS;
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

static int queue_waiting(struct comm *c);

JM_API int ncclCommGetAsyncError(void *comm, int *result);
int ncclCommGetAsyncError(void *comm, int *result)
{
	struct comm *c = comm;
	int rc = 0;

	if (!c)
		return BAD_ARGUMENT;
	if (c->n_waiting && c->asked++)
		rc = c->loses ? REMOTE : queue_waiting(c);
	pthread_mutex_lock(&c->lock);
	if (rc)
		c->state = rc;
	*result = c->n_waiting && !rc ? IN_PROGRESS : c->state;
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
		c->state = REMOTE;
	while (w->hangs && !c->aborted)
		pthread_cond_wait(&c->changed, &c->lock);
	aborted = c->aborted;
	pthread_mutex_unlock(&c->lock);
	return aborted;
}

/* A rank whose sums are wrong by the last bit of their first element. */
static void bend(const struct comm *c, const struct jm_transfer *t)
{
	const char *rank = getenv("JM_FAKE_NCCL_BENDS");

	if (rank && atoi(rank) == c->rank && t->kind == JM_ALL_REDUCE)
		*(unsigned char *)t->to ^= 1;
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
		if (jm_fake_has_own_order(&w->t))
			jm_fake_sum_in_own_order(
				w->comm->local, w->comm->rank, w->comm->world, &w->t);
		else if (jm_transport_local.start(w->comm->local, &w->t, NULL))
			abort();
		bend(w->comm, &w->t);
	}
	leave(w->comm);
	free(w);
}

static bool has(
	const struct comm *c, const struct jm_fake_stream *s, const void *from, size_t bytes)
{
	const struct memory *m = memory_of(from, bytes);

	return (m && m->registered) || (!c->zero_ctas && s->owns(s, from, bytes));
}

static bool owns(const struct comm *c, const struct jm_transfer *t)
{
	const struct jm_fake_stream *s = t->stream;
	size_t bytes = t->count * jm_comm_type_bytes(t->type);
	size_t from = t->kind == JM_REDUCE_SCATTER ? (size_t)c->world : 1;
	size_t to = t->kind == JM_ALL_GATHER ? (size_t)c->world : 1;

	return (!t->from || has(c, s, t->from, from * bytes)) &&
	       (!t->to || has(c, s, t->to, to * bytes));
}

static int queue_waiting(struct comm *c)
{
	int rc = 0;

	for (int i = 0; i < c->n_waiting; i++) {
		const struct jm_fake_stream *s = c->waiting[i]->t.stream;

		pthread_mutex_lock(&c->lock);
		c->users++;
		pthread_mutex_unlock(&c->lock);
		if (!rc)
			rc = s->put(s, run, c->waiting[i]) ? FAILED : 0;
	}
	c->n_waiting = c->asked = 0;
	return rc;
}

static int put(struct comm *c, struct jm_transfer t, int type)
{
	static const int types[] = {[1] = JM_COMM_BYTE,
		[6] = JM_COMM_F16,
		[7] = JM_COMM_F32,
		[8] = JM_COMM_F64,
		[9] = JM_COMM_BF16};
	const char *fails = getenv("JM_FAKE_NCCL_FAILS"), *hangs = getenv("JM_FAKE_NCCL_HANGS");
	const char *loses = getenv("JM_FAKE_NCCL_LOSES");
	struct work *w = calloc(1, sizeof(*w));

	t.type = (enum jm_comm_type)types[type == 1 || (type >= 6 && type <= 9) ? type : 1];
	if (!w || !t.stream || (type != 1 && (type < 6 || type > 9)) || c->n_waiting == MESSAGES ||
		c->asked || !owns(c, &t)) {
		free(w);
		return BAD_ARGUMENT;
	}
	c->n++;
	if (fails && c->n == atoi(fails)) {
		free(w);
		return FAILED;
	}
	*w = (struct work){c, t, hangs && c->n == atoi(hangs)};
	c->loses = loses && c->n == atoi(loses);
	c->waiting[c->n_waiting++] = w;
	return IN_PROGRESS;
}

/* A communicator that blocks queues its transfers in the call. */
static int call_done(struct comm *c, int rc)
{
	if (!c->blocks || rc != IN_PROGRESS)
		return rc;
	return c->loses ? REMOTE : queue_waiting(c);
}

/* 0 = the communicator takes calls. */
static int not_ready(struct comm *c)
{
	int state;

	pthread_mutex_lock(&c->lock);
	state = c->state;
	pthread_mutex_unlock(&c->lock);
	return c->n_waiting || state == IN_PROGRESS ? BAD_ARGUMENT : state;
}

static int put_one(struct comm *c, enum jm_transfer_kind kind, const void *from, void *to, size_t n,
	int type, int root, void *stream)
{
	struct jm_transfer t = {
		.kind = kind, .from = from, .to = to, .count = n, .root = root, .stream = stream};
	int rc = not_ready(c);

	return rc ? rc : call_done(c, put(c, t, type));
}

JM_API int ncclAllReduce(
	const void *from, void *to, size_t n, int type, int op, void *comm, void *stream);
int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, void *comm, void *stream)
{
	if (op)
		return BAD_ARGUMENT;
	return put_one(comm, JM_ALL_REDUCE, from, to, n, type, 0, stream);
}

JM_API int ncclAllGather(const void *from, void *to, size_t n, int type, void *comm, void *stream);
int ncclAllGather(const void *from, void *to, size_t n, int type, void *comm, void *stream)
{
	return put_one(comm, JM_ALL_GATHER, from, to, n, type, 0, stream);
}

JM_API int ncclReduceScatter(
	const void *from, void *to, size_t n, int type, int op, void *comm, void *stream);
int ncclReduceScatter(
	const void *from, void *to, size_t n, int type, int op, void *comm, void *stream)
{
	if (op)
		return BAD_ARGUMENT;
	return put_one(comm, JM_REDUCE_SCATTER, from, to, n, type, 0, stream);
}

JM_API int ncclBroadcast(
	const void *from, void *to, size_t n, int type, int root, void *comm, void *stream);
int ncclBroadcast(
	const void *from, void *to, size_t n, int type, int root, void *comm, void *stream)
{
	return put_one(comm, JM_BROADCAST, from, to, n, type, root, stream);
}

/* The messages of a group: the k-th that is sent goes beside the k-th that is received. */
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

	group.open = false;
	if (most)
		rc = not_ready(group.comm);
	for (int i = 0; i < most && (!rc || rc == IN_PROGRESS); i++)
		rc = put(group.comm, group.t[i], group.type);
	return most ? call_done(group.comm, rc) : rc;
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
