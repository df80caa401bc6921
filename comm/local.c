/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport `local`: processes of one host share an unnamed file that they all map, so that no file
 * remains after they end.
 *
 * The file holds the slots of pairs (local_pairs.c) behind a seat for each rank: two slots and the
 * number of pieces that it has posted. A transfer is made in pieces: a rank copies its part into
 * one slot, posts it, waits until all ranks have posted the same number of pieces, and reads the
 * slots of the others. The next piece uses the other slot. A rank that writes slot k % 2 again has
 * seen all ranks post piece k - 1, which they do after reading piece k - 2, so one wait per piece
 * is enough.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gang_file.h"
#include "local_pairs.h"
#include "sum_ranks.h"

/* small enough that the slots of several ranks stay in a cache */
#define SLOT_BYTES ((size_t)256 << 10)
#define PAGE	   ((size_t)64 << 10) /* a multiple of any kernel's */
#define SPINS	   2000
#define POLL_NS	   100000000 /* interval of the check whether a rank has ended */
/* The error of a rank that waits must not reach the parent before that of the rank it waits for,
 * which closes before it sends its own; the parent then ends all others. */
#define LEFT_POLLS 20

struct seat {
	_Alignas(64) _Atomic uint32_t posted; /* number of pieces; wraps around */
	_Atomic uint32_t sleepers;	      /* ranks that wait for a piece in the kernel */
	_Atomic uint32_t left;		      /* 1 = the rank has closed */
	_Alignas(64) char slot[2][SLOT_BYTES];
};

struct local {
	struct seat *seat; /* [world], shared */
	void *map;	   /* in which they are */
	size_t map_bytes;
	int fd;	      /* the gang's file; -1 = of a group, which cannot be split itself */
	int n_splits; /* so far */
	int rank, world;
	uint32_t piece; /* the piece that this rank posts next */
	double join_s;
	int64_t join_ns; /* until when all have to come; JM_FOREVER = no longer, they have */
	struct jm__pairs pairs;
};

/* ---- posting and waiting --------------------------------------------------------------------- */

static void post(struct local *l)
{
	struct seat *own = &l->seat[l->rank];

	atomic_store(&own->posted, ++l->piece);
	if (atomic_load(&own->sleepers))
		syscall(SYS_futex, &own->posted, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static bool has_posted(struct seat *seat, uint32_t piece)
{
	return (int32_t)(atomic_load(&seat->posted) - piece) >= 0;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/* Sleeps in the kernel until the rank posts the piece, for POLL_NS at most. */
static void sleep_for(struct seat *seat, uint32_t piece)
{
	const struct timespec nap = {.tv_nsec = POLL_NS};
	uint32_t now;

	atomic_fetch_add(&seat->sleepers, 1);
	now = atomic_load(&seat->posted);
	if ((int32_t)(now - piece) < 0)
		syscall(SYS_futex, &seat->posted, FUTEX_WAIT, now, &nap, NULL, 0);
	atomic_fetch_sub(&seat->sleepers, 1);
}

static int check_joining(const struct local *l, int rank, struct jm_err *err)
{
	if (jm_clock_now(jm_clock_real()) < l->join_ns)
		return 0;
	return jm_err_set(err, JM_EIO,
		"Rank %d has not joined the other ranks within %g s; its device or its data may "
		"not "
		"answer. JM_GANG_SECONDS gives it more time.",
		l->pairs.member[rank], l->join_s);
}

static int wait_for(struct local *l, int rank, struct jm_err *err)
{
	struct seat *seat = &l->seat[rank];
	int polls = 0, rc = 0;

	for (int i = 0; i < SPINS; i++) {
		if (has_posted(seat, l->piece))
			return 0;
		relax();
	}
	while (!has_posted(seat, l->piece) && !rc) {
		if (atomic_load(&seat->left) && !has_posted(seat, l->piece) &&
			polls++ == LEFT_POLLS)
			return jm_err_set(err, JM_EGONE,
				"Rank %d ended while rank %d was waiting for it.",
				l->pairs.member[rank], l->pairs.member[l->rank]);
		sleep_for(seat, l->piece);
		rc = check_joining(l, rank, err);
	}
	return rc;
}

/* Posts the piece in this rank's slot, and waits until all ranks have posted theirs. */
static int meet(struct local *l, struct jm_err *err)
{
	int rc = 0;

	post(l);
	for (int r = 0; r < l->world && !rc; r++)
		if (r != l->rank)
			rc = wait_for(l, r, err);
	return rc;
}

/* The slot of rank r for the next piece; after `meet`, for the piece that all ranks have posted. */
static char *slot_of(const struct local *l, int r, uint32_t piece)
{
	return l->seat[r].slot[piece % 2];
}

static void give(const struct local *l, const char *from, size_t bytes)
{
	memcpy(slot_of(l, l->rank, l->piece), from, bytes);
}

static const char *given(const struct local *l, int r)
{
	return slot_of(l, r, l->piece - 1);
}

static void sum_given(const struct local *l, enum jm_comm_type type, char *to, size_t bytes)
{
	const char *from[JM_RANKS_MOST];

	for (int r = 0; r < l->world; r++)
		from[r] = given(l, r);
	jm__sum_ranks(type, to, from, l->world, bytes);
}

/* ---- transfers of bytes `at` to at + n, n at most a slot ------------------------------------- */

static int all_reduce(
	struct local *l, const struct jm_transfer *t, size_t at, size_t n, struct jm_err *err)
{
	int rc;

	give(l, (const char *)t->from + at, n);
	rc = meet(l, err);
	if (!rc)
		sum_given(l, t->type, (char *)t->to + at, n);
	return rc;
}

static int all_gather(
	struct local *l, const struct jm_transfer *t, size_t at, size_t n, struct jm_err *err)
{
	size_t each = t->count * jm_comm_type_bytes(t->type);
	/* what lies there already may be read meanwhile */
	bool in_place = t->from == (char *)t->to + (size_t)l->rank * each;
	int rc;

	give(l, (const char *)t->from + at, n);
	rc = meet(l, err);
	for (int r = 0; r < l->world && !rc; r++)
		if (r != l->rank || !in_place)
			memcpy((char *)t->to + (size_t)r * each + at, given(l, r), n);
	return rc;
}

static int reduce_scatter(
	struct local *l, const struct jm_transfer *t, size_t at, size_t n, struct jm_err *err)
{
	size_t each = t->count * jm_comm_type_bytes(t->type);
	int rc = 0;

	for (int r = 0; r < l->world && !rc; r++) {
		give(l, (const char *)t->from + (size_t)r * each + at, n);
		rc = meet(l, err);
		if (!rc && r == l->rank)
			sum_given(l, t->type, (char *)t->to + at, n);
	}
	return rc;
}

static int broadcast(
	struct local *l, const struct jm_transfer *t, size_t at, size_t n, struct jm_err *err)
{
	int rc;

	if (l->rank == t->root)
		give(l, (const char *)t->from + at, n);
	rc = meet(l, err);
	if (!rc && (l->rank != t->root || t->to != t->from))
		memcpy((char *)t->to + at, given(l, t->root), n);
	return rc;
}

typedef int piece_fn(
	struct local *l, const struct jm_transfer *t, size_t at, size_t n, struct jm_err *err);

static piece_fn *const pieces[] = {[JM_ALL_REDUCE] = all_reduce,
	[JM_ALL_GATHER] = all_gather,
	[JM_REDUCE_SCATTER] = reduce_scatter,
	[JM_BROADCAST] = broadcast};

static bool has_left(void *arg, int rank)
{
	const struct local *l = arg;

	return atomic_load(&l->seat[rank].left);
}

/* With each rank in turn: the one that is k after this rank gets, while the one k before it
 * gives. */
static int all_to_all(struct local *l, const struct jm_transfer *t, struct jm_err *err)
{
	size_t each = t->count * jm_comm_type_bytes(t->type);
	int code = 0;

	for (int k = 0; k < l->world && !code; k++) {
		struct jm_transfer one = *t;

		one.to_rank = (l->rank + k) % l->world;
		one.from_rank = (l->rank - k + l->world) % l->world;
		one.from = (const char *)t->from + (size_t)one.to_rank * each;
		one.to = (char *)t->to + (size_t)one.from_rank * each;
		code = jm__pairs_exchange(&l->pairs, &one, err);
	}
	return code;
}

static int local_start(void *state, const struct jm_transfer *t, struct jm_err *err)
{
	struct local *l = state;
	size_t bytes = t->count * jm_comm_type_bytes(t->type);
	int rc = jm__sum_check(t, "local", err);

	if (t->kind == JM_SEND_RECEIVE)
		return jm__pairs_exchange(&l->pairs, t, err);
	if (t->kind == JM_ALL_TO_ALL)
		return all_to_all(l, t, err);
	for (size_t at = 0; at < bytes && !rc; at += SLOT_BYTES)
		rc = pieces[t->kind](
			state, t, at, bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES, err);
	return rc;
}

/* ---- the gang's file ------------------------------------------------------------------------- */

static size_t whole_pages(size_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Of the gang: seats and pairs. The seats of the groups of each split follow. */
static size_t file_bytes(int world)
{
	return whole_pages((size_t)world * sizeof(struct seat) + jm__pairs_bytes(world));
}

/* Maps a part of the file, which grows where it is smaller; all ranks ask for the same parts in the
 * same order. */
static int map(struct local *l, int fd, size_t from, size_t bytes, struct jm_err *err)
{
	struct stat st;
	int rc = fstat(fd, &st);

	if (!rc && (size_t)st.st_size < from + bytes)
		rc = ftruncate(fd, (off_t)(from + bytes));
	l->map_bytes = bytes;
	l->map = rc ? MAP_FAILED
		    : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
	if (l->map != MAP_FAILED)
		return 0;
	return jm_err_set(err, JM_EIO,
		"The memory that %d ranks share (%zu bytes) cannot be mapped: %s.", l->world, bytes,
		strerror(errno));
}

static void local_close(void *state)
{
	struct local *l = state;

	if (!l)
		return;
	atomic_store(&l->seat[l->rank].left, 1);
	syscall(SYS_futex, &l->seat[l->rank].posted, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	munmap(l->map, l->map_bytes);
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}

static int local_open(const struct jm_comm_place *place, void **ret_state, struct jm_err *err)
{
	struct local *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a communicator.");
	*l = (struct local){.rank = place->rank,
		.world = place->world,
		.join_s = place->join_s,
		.join_ns = jm_comm_join_until(place)};
	rc = map(l, place->fd, 0, file_bytes(l->world), err);
	if (rc) {
		free(l);
		return rc;
	}
	l->fd = fcntl(place->fd, F_DUPFD_CLOEXEC, 0);
	l->seat = l->map;
	l->pairs = (struct jm__pairs){.pair = (char *)&l->seat[l->world],
		.all = l->world,
		.rank = l->rank,
		.has_left = has_left,
		.arg = l};
	for (int r = 0; r < l->world; r++)
		l->pairs.member[r] = r;
	rc = meet(l, err);
	if (rc)
		local_close(l);
	else
		*ret_state = l;
	return rc;
}

/* The seats of all groups of a split lie behind those of the split before, and the pairs are those
 * of the gang. */
static int local_split(void *state, const struct jm_comm_group *group,
	const struct jm_comm *control, void **ret_state, struct jm_err *err)
{
	struct local *all = state, *l = calloc(1, sizeof(*l));
	size_t bytes = whole_pages((size_t)all->world * sizeof(struct seat));
	size_t from = file_bytes(all->world) + (size_t)all->n_splits++ * bytes;
	int rc = 0;

	(void)control;
	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a group of ranks.");
	*l = (struct local){.rank = group->rank,
		.world = group->n,
		.fd = -1,
		.join_ns = JM_FOREVER,
		.pairs = all->pairs};
	if (all->fd < 0 || from + bytes > JM__HOST_FROM)
		rc = jm_err_set(err, JM_ERANGE,
			"Transport local makes groups of the whole gang only, and %zu times at "
			"most.",
			(JM__HOST_FROM - file_bytes(all->world)) / bytes);
	if (!rc)
		rc = map(l, all->fd, from, bytes, err);
	if (rc) {
		free(l);
		return rc;
	}
	l->seat = (struct seat *)l->map + group->before;
	l->pairs.rank = group->rank;
	l->pairs.arg = l;
	memcpy(l->pairs.member, group->member, sizeof(l->pairs.member));
	*ret_state = l;
	return 0;
}

static void local_joined(void *state)
{
	struct local *l = state;

	l->join_ns = JM_FOREVER;
}

const struct jm_transport jm_transport_local = {
	.name = "local",
	.summary = "processes of one host, by shared memory",
	.host_memory = true,
	.open = local_open,
	.joined = local_joined,
	.split = local_split,
	.start = local_start,
	.close = local_close,
};
