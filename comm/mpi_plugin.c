/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plug-in of transport `mpi`: memory of hosts, by the MPI library that started the ranks. It
 * is built against mpi.h of Open MPI 4.1 or 5, whose libraries have one name (libmpi.so.40) and the
 * same symbols for what is used here; the one of 4.1 runs with a library of 5.
 *
 * MPI has no limits of time, so it begins and ends in a thread of its own: MPI_Init waits for all
 * ranks, MPI_Finalize does as well, and each has the limit of the meeting of ranks. In a transfer,
 * and at the end, a rank waits for one that has ended until the parent, which knows of it, ends
 * all: long before that limit.
 */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sum_ranks.h"

#define PIECE	 ((size_t)1 << 20) /* elements of one call; MPI counts them in an int */
#define TAG	 0
#define BLAME_NS (2 * JM_SECOND)

/* Where MPI is in this process; a process has it once. */
enum stage { BEGINNING, BEGUN, ENDING, ENDED };

struct life {
	struct jm_comm_place place;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum stage stage;
	struct jm_err err; /* of BEGUN */
	bool failed;	   /* a transfer, or what else all ranks do together */
};

struct mpi {
	struct life *life; /* a group has that of all ranks */
	bool is_group;
	MPI_Comm comm;
	MPI_Op sum[JM_COMM_F16 + 1]; /* by type */
	int rank, world;
};

static const MPI_Datatype types[] = {[JM_COMM_BYTE] = MPI_BYTE,
	[JM_COMM_F32] = MPI_FLOAT,
	[JM_COMM_F64] = MPI_DOUBLE,
	[JM_COMM_BF16] = MPI_UINT16_T,
	[JM_COMM_F16] = MPI_UINT16_T};

static int check(int rc, const char *what, struct jm_err *err)
{
	char text[MPI_MAX_ERROR_STRING] = "no reason given";
	int n;

	if (rc == MPI_SUCCESS)
		return 0;
	MPI_Error_string(rc, text, &n);
	return jm_err_set(err, JM_EIO, "%s by MPI failed: %.300s.", what, text);
}

/* ---- beginning and ending, in a thread ------------------------------------------------------- */

static void move_on(struct life *l, enum stage stage)
{
	pthread_mutex_lock(&l->lock);
	l->stage = stage;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

/* until_ns: of the machine's clock. False: the stage was not reached by then. */
static bool await(struct life *l, enum stage stage, int64_t until_ns)
{
	struct timespec until = {until_ns / JM_SECOND, until_ns % JM_SECOND};
	bool reached;
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	while (l->stage < stage && !rc)
		rc = pthread_cond_clockwait(&l->changed, &l->lock, CLOCK_MONOTONIC, &until);
	reached = l->stage >= stage;
	pthread_mutex_unlock(&l->lock);
	return reached;
}

static int check_numbers(const struct jm_comm_place *place, struct jm_err *err)
{
	int rank = -1, world = -1;
	int rc = MPI_Comm_rank(MPI_COMM_WORLD, &rank);

	if (rc == MPI_SUCCESS)
		rc = MPI_Comm_size(MPI_COMM_WORLD, &world);
	if (rc != MPI_SUCCESS)
		return check(rc, "Counting the ranks", err);
	if (rank == place->rank && world == place->world)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"MPI says that this is rank %d of %d, but in this gang it is rank %d of %d; start "
		"all ranks by one mpirun, of the MPI whose library is loaded (LD_LIBRARY_PATH).",
		rank, world, place->rank, place->world);
}

/*
 * A call of mpirun serves several cases, each of which begins MPI in new processes. That works
 * since PMIx 4 (Debian's Open MPI 4.1 has it), as long as each rank has ended MPI; MPI_Init would
 * else wait for ever. A file in the folder of that call, which mpirun removes, stands for a rank
 * of its job that has begun.
 */
static bool can_repeat(void)
{
	const char *version = secure_getenv("PMIX_VERSION");

	return version && strtol(version, NULL, 10) >= 4;
}

static bool name_mark(char *ret, size_t size)
{
	const char *folder = secure_getenv("PMIX_SERVER_TMPDIR"),
		   *job = secure_getenv("PMIX_NAMESPACE"), *rank = secure_getenv("PMIX_RANK");

	if (!folder || !job || !rank)
		return false;
	snprintf(ret, size, "%s/joulemark-%.200s-%.20s", folder, job, rank);
	return true;
}

static int set_mark(struct jm_err *err)
{
	char path[4096];
	int fd;

	if (!name_mark(path, sizeof(path)))
		return 0;
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EEXIST)
		return jm_err_set(err, JM_ENOSUP,
			"MPI cannot begin again under this mpirun: %s; call mpirun anew, or use "
			"--transport net.",
			can_repeat() ? "a rank of an earlier case was ended before MPI was"
				     : "an earlier case has used it, and its PMIx is older than 4");
	if (fd >= 0)
		close(fd);
	return 0;
}

static void clear_mark(void)
{
	char path[4096];

	if (can_repeat() && name_mark(path, sizeof(path)))
		unlink(path);
}

/* The data of the job that mpirun shares in memory goes with the first case; it can send them
 * instead. A value set by the user has precedence. */
static void ask_for_job_data(void)
{
	if (can_repeat())
		setenv("PMIX_MCA_gds", "hash", 0);
}

static int begin(const struct jm_comm_place *place, struct jm_err *err)
{
	int offered = 0, rc = MPI_SUCCESS, code = set_mark(err);

	if (code)
		return code;
	/* this thread begins and ends MPI, and the caller's uses it between */
	rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &offered);
	if (rc != MPI_SUCCESS)
		return check(rc, "Beginning", err);
	rc = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (rc != MPI_SUCCESS)
		return check(rc, "Setting what follows an error", err);
	if (offered < MPI_THREAD_SERIALIZED)
		return jm_err_set(err, JM_ENOSUP,
			"This MPI was built without threads, which transport mpi needs; use "
			"--transport net.");
	return check_numbers(place, err);
}

static void *live(void *arg)
{
	struct life *l = arg;

	begin(&l->place, &l->err);
	move_on(l, BEGUN);
	await(l, ENDING, JM_FOREVER);
	if (MPI_Finalize() == MPI_SUCCESS)
		clear_mark();
	move_on(l, ENDED);
	return NULL;
}

/* It belongs to its thread as long as the process lives. */
static void leave_behind(struct life *l)
{
	pthread_detach(l->thread);
}

static int life_begin(const struct jm_comm_place *place, struct life **ret, struct jm_err *err)
{
	struct life *l = calloc(1, sizeof(*l));

	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a communicator.");
	*l = (struct life){.place = *place,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
		.err = JM_ERR_INIT};
	if (pthread_create(&l->thread, NULL, live, l)) {
		free(l);
		return jm_err_set(err, JM_ENOMEM, "A thread for MPI could not be made.");
	}
	if (!await(l, BEGUN, jm_comm_join_until(place))) {
		leave_behind(l);
		return jm_err_set(err, JM_EIO,
			"MPI has not begun within %g s: a rank or the way to it does not answer. "
			"JM_GANG_SECONDS gives it more time.",
			place->join_s);
	}
	*ret = l;
	return l->err.code ? jm_err_set(err, l->err.code, "%s", l->err.text) : 0;
}

/* After a failure MPI would wait for a rank that does not answer. Else it waits for those that
 * close later, as the one that makes the record does. */
static void life_end(struct life *l)
{
	if (!l->failed)
		move_on(l, ENDING);
	if (l->failed || !await(l, ENDED, jm_comm_join_until(&l->place))) {
		leave_behind(l);
		return;
	}
	pthread_join(l->thread, NULL);
	free(l);
}

/* ---- sums of types that MPI does not have ---------------------------------------------------- */

static void sum_bf16(void *from, void *to, int *n, MPI_Datatype *type)
{
	const char *both[] = {from, to};

	(void)type;
	jm__sum_ranks(JM_COMM_BF16, to, both, 2, (size_t)*n * sizeof(uint16_t));
}

static void sum_f16(void *from, void *to, int *n, MPI_Datatype *type)
{
	const char *both[] = {from, to};

	(void)type;
	jm__sum_ranks(JM_COMM_F16, to, both, 2, (size_t)*n * sizeof(uint16_t));
}

static int make_sums(struct mpi *m)
{
	int rc = MPI_Op_create(sum_bf16, 1, &m->sum[JM_COMM_BF16]);

	if (rc == MPI_SUCCESS)
		rc = MPI_Op_create(sum_f16, 1, &m->sum[JM_COMM_F16]);
	m->sum[JM_COMM_F32] = MPI_SUM;
	m->sum[JM_COMM_F64] = MPI_SUM;
	return rc;
}

/* ---- transfers of elements [at, at + n) of each part ----------------------------------------- */

/* One piece of each part of an array of several parts. */
static int make_spread(size_t part_bytes, int piece_bytes, MPI_Datatype *ret)
{
	MPI_Datatype piece;
	int rc = MPI_Type_contiguous(piece_bytes, MPI_BYTE, &piece);

	if (rc != MPI_SUCCESS)
		return rc;
	rc = MPI_Type_create_resized(piece, 0, (MPI_Aint)part_bytes, ret);
	MPI_Type_free(&piece);
	return rc == MPI_SUCCESS ? MPI_Type_commit(ret) : rc;
}

static int all_reduce(const struct mpi *m, const struct jm_transfer *t, size_t at, int n)
{
	size_t size = jm_comm_type_bytes(t->type);
	const char *from = (const char *)t->from + at * size;

	return MPI_Allreduce(t->from == t->to ? MPI_IN_PLACE : from, (char *)t->to + at * size, n,
		types[t->type], m->sum[t->type], m->comm);
}

static int all_gather(const struct mpi *m, const struct jm_transfer *t, size_t at, int n)
{
	size_t size = jm_comm_type_bytes(t->type), each = t->count * size;
	const char *from = (const char *)t->from + at * size;
	char *to = (char *)t->to + at * size;
	bool in_place = from == to + (size_t)m->rank * each;
	MPI_Datatype spread;
	int bytes = n * (int)size, rc = make_spread(each, bytes, &spread);

	if (rc != MPI_SUCCESS)
		return rc;
	rc = MPI_Allgather(in_place ? MPI_IN_PLACE : from, bytes, MPI_BYTE, to, 1, spread, m->comm);
	MPI_Type_free(&spread);
	return rc;
}

/* A sum for each rank, all at the same time. */
static int reduce_scatter(const struct mpi *m, const struct jm_transfer *t, size_t at, int n)
{
	size_t size = jm_comm_type_bytes(t->type);
	char *to = (char *)t->to + at * size;
	MPI_Request request[JM_RANKS_MOST];
	int rc = MPI_SUCCESS;

	for (int r = 0; r < m->world && rc == MPI_SUCCESS; r++) {
		const char *from = (const char *)t->from + ((size_t)r * t->count + at) * size;

		rc = MPI_Ireduce(r == m->rank && from == to ? MPI_IN_PLACE : from,
			r == m->rank ? to : NULL, n, types[t->type], m->sum[t->type], r, m->comm,
			&request[r]);
	}
	/* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): all were begun in the loop */
	return rc == MPI_SUCCESS ? MPI_Waitall(m->world, request, MPI_STATUSES_IGNORE) : rc;
}

static int broadcast(const struct mpi *m, const struct jm_transfer *t, size_t at, int n)
{
	size_t size = jm_comm_type_bytes(t->type), bytes = (size_t)n * size;
	char *to = (char *)t->to + at * size;

	if (m->rank == t->root && t->from != t->to)
		memcpy(to, (const char *)t->from + at * size, bytes);
	return MPI_Bcast(to, (int)bytes, MPI_BYTE, t->root, m->comm);
}

static int all_to_all(const struct mpi *m, const struct jm_transfer *t, size_t at, int n)
{
	size_t size = jm_comm_type_bytes(t->type);
	MPI_Datatype spread;
	int rc = make_spread(t->count * size, n * (int)size, &spread);

	if (rc != MPI_SUCCESS)
		return rc;
	rc = MPI_Alltoall((const char *)t->from + at * size, 1, spread, (char *)t->to + at * size,
		1, spread, m->comm);
	MPI_Type_free(&spread);
	return rc;
}

static int send_receive(const struct mpi *m, const struct jm_transfer *t, size_t at, int n)
{
	size_t size = jm_comm_type_bytes(t->type);
	bool sends = t->to_rank >= 0, receives = t->from_rank >= 0;
	int bytes = n * (int)size;

	return MPI_Sendrecv(sends ? (const char *)t->from + at * size : NULL, sends ? bytes : 0,
		MPI_BYTE, sends ? t->to_rank : MPI_PROC_NULL, TAG,
		receives ? (char *)t->to + at * size : NULL, receives ? bytes : 0, MPI_BYTE,
		receives ? t->from_rank : MPI_PROC_NULL, TAG, m->comm, MPI_STATUS_IGNORE);
}

typedef int piece_fn(const struct mpi *m, const struct jm_transfer *t, size_t at, int n);

static piece_fn *const pieces[] = {[JM_ALL_REDUCE] = all_reduce,
	[JM_ALL_GATHER] = all_gather,
	[JM_REDUCE_SCATTER] = reduce_scatter,
	[JM_BROADCAST] = broadcast,
	[JM_ALL_TO_ALL] = all_to_all,
	[JM_SEND_RECEIVE] = send_receive};

static int mpi_start(void *state, const struct jm_transfer *t, struct jm_err *err)
{
	struct mpi *m = state;
	int rc = MPI_SUCCESS, code = jm__sum_check(t, "mpi", err);

	if (code)
		return code;
	for (size_t at = 0; at < t->count && rc == MPI_SUCCESS; at += PIECE)
		rc = pieces[t->kind](
			m, t, at, (int)(t->count - at < PIECE ? t->count - at : PIECE));
	m->life->failed |= rc != MPI_SUCCESS;
	/* a rank that has ended is the reason, and is reported first */
	if (rc != MPI_SUCCESS)
		nanosleep(&(struct timespec){BLAME_NS / JM_SECOND, 0}, NULL);
	return check(rc, "A transfer", err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void mpi_close(void *state)
{
	struct mpi *m = state;

	/* all ranks would have to free a group together; MPI_Finalize does it */
	if (m && m->life && !m->is_group)
		life_end(m->life);
	free(m);
}

/* Without a launcher each process would be an MPI of one rank. */
static int check_launcher(struct jm_err *err)
{
	if (secure_getenv("PMIX_RANK") || secure_getenv("PMI_RANK"))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"Transport mpi needs ranks that mpirun has started (--launcher started); start "
		"them by mpirun, or use --transport net.");
}

static int mpi_open(const struct jm_comm_place *place, void **ret_state, struct jm_err *err)
{
	struct mpi *m = calloc(1, sizeof(*m));
	int code = m ? check_launcher(err)
		     : jm_err_set(err, JM_ENOMEM, "Out of memory for a communicator.");

	if (code) {
		free(m);
		return code;
	}
	m->rank = place->rank;
	m->world = place->world;
	m->comm = MPI_COMM_WORLD;
	ask_for_job_data();
	code = life_begin(place, &m->life, err);
	if (!code)
		code = check(make_sums(m), "Making sums", err);
	if (code && m->life)
		m->life->failed = true;
	if (code)
		mpi_close(m);
	else
		*ret_state = m;
	return code;
}

static int mpi_split(void *state, const struct jm_comm_group *group, const struct jm_comm *control,
	void **ret_state, struct jm_err *err)
{
	const struct mpi *all = state;
	struct mpi *m = calloc(1, sizeof(*m));
	int code;

	(void)control;
	if (!m)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a group of ranks.");
	*m = *all;
	m->is_group = true;
	m->rank = group->rank;
	m->world = group->n;
	code = check(MPI_Comm_split(all->comm, group->member[0], group->rank, &m->comm),
		"Making a group of ranks", err);
	if (code) {
		all->life->failed = true;
		mpi_close(m);
	} else {
		*ret_state = m;
	}
	return code;
}

static const struct jm_transport transport = {
	.name = "mpi",
	.host_memory = true,
	.open = mpi_open,
	.split = mpi_split,
	.start = mpi_start,
	.close = mpi_close,
};

const struct jm_transport_plugin *jm_transport_entry(void)
{
	static const struct jm_transport_plugin plugin = {
		.abi = JM_TRANSPORT_ABI, .transport = &transport};

	return &plugin;
}
