/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport `host`: devices of one host, by copies through its memory. Copy engines move the data,
 * so that a transfer takes no multiprocessor but for its sums, and links between the devices may
 * sleep.
 *
 * The ranks map the gang's file behind the part of `local`. Each ordered pair of ranks has a
 * channel there: slots, and the numbers of pieces that the sender has posted and that the receiver
 * has taken. A piece k is copied to slot k % SLOTS when the receiver has taken piece k - SLOTS. The
 * device waits for these numbers and writes them, so that the host only queues the work. All ranks
 * go through the pieces of a transfer in the same order, and each piece to all ranks before the
 * next, so that the first piece that is not complete never waits for a later one. A group uses the
 * lanes and channels of the gang, whose pieces stay in order whatever communicator they belong to.
 */
#include "host_pieces.h"
#include "gang_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define AHEAD	 2		 /* pieces that are sent before the first is received */
#define ALIGN	 64		 /* elements at which the parts of a sum begin */
#define LEAVE_NS (2 * JM_SECOND) /* at most, until the lanes of a rank that leaves are idle */
#define PATIENCE_NS                                                                                \
	(5 * JM_SECOND) /* longer, so that the reason of the rank that left comes first */

/* ---- transfers ------------------------------------------------------------------------------- */

/* Elements [from, from + n) of a transfer that rank r sums, or that it has to give. */
struct part {
	size_t from, n;
};

/* Elements of a piece. */
static size_t piece_elements(const struct travel *travel)
{
	return PIECE / jm_comm_type_bytes(travel->type);
}

/* Elements of piece i of the part. */
static size_t count_of(const struct part *p, size_t i, const struct travel *travel)
{
	size_t at = i * piece_elements(travel), rest = at < p->n ? p->n - at : 0;

	return rest < piece_elements(travel) ? rest : piece_elements(travel);
}

static size_t most_pieces(
	const struct host *h, const struct part *part, const struct travel *travel)
{
	size_t most = 0;

	for (int r = 0; r < h->world; r++)
		most = part[r].n > most ? part[r].n : most;
	return (most + piece_elements(travel) - 1) / piece_elements(travel);
}

/* Sends piece i of each other rank's part of `from`. */
static int send_parts(struct host *h, const struct part *part, size_t i, const char *from,
	const struct travel *travel, struct jm_err *err)
{
	size_t size = jm_comm_type_bytes(travel->type);
	int code = 0;

	for (int r = 0; r < h->world && !code; r++)
		if (r != h->rank && count_of(&part[r], i, travel))
			code = jm__host_send(h, r, from + part[r].from * size + i * PIECE,
				count_of(&part[r], i, travel), travel, err);
	return code;
}

/* Receives piece i of the own part from each other rank, in their order; to = the sum with the own
 * data of `from`. */
static int sum_piece(struct host *h, const struct part *part, size_t i, const char *from, char *to,
	const struct travel *travel, struct jm_err *err)
{
	const struct part *own = &part[h->rank];
	const char *sum = from + own->from * jm_comm_type_bytes(travel->type) + i * PIECE;
	size_t n = count_of(own, i, travel);
	int code = 0;

	for (int r = 0; r < h->world && n && !code; r++) {
		if (r == h->rank)
			continue;
		code = jm__host_receive(h, r, to + i * PIECE, sum, n, travel, err);
		sum = to + i * PIECE;
	}
	return code;
}

/* Each rank gets the sum of its part of `from` over the ranks in `to`. Pieces are sent some ahead
 * of sums, because both the rounding of a piece and its sum run in the order of the stream. */
static int sum_parts(struct host *h, const struct part *part, const char *from, char *to,
	const struct travel *travel, struct jm_err *err)
{
	size_t n = most_pieces(h, part, travel);
	int code = 0;

	if (h->world == 1 && to != from && part->n) /* a group of one rank */
		return h->lane->copy(h->lanes, JM_LANE_TRANSFER, to, from,
			part->n * jm_comm_type_bytes(travel->type), err);
	for (size_t i = 0; i < n + AHEAD && !code; i++) {
		if (i < n)
			code = send_parts(h, part, i, from, travel, err);
		if (!code && i >= AHEAD)
			code = sum_piece(h, part, i - AHEAD, from, to, travel, err);
	}
	return code;
}

/* Piece i of the own part, to all others. */
static int give_piece(struct host *h, const struct part *part, size_t i, const char *own,
	const struct travel *travel, struct jm_err *err)
{
	size_t n = count_of(&part[h->rank], i, travel);
	int code = 0;

	for (int r = 0; r < h->world && n && !code; r++)
		if (r != h->rank)
			code = jm__host_send(h, r, own + i * PIECE, n, travel, err);
	return code;
}

static int take_piece(struct host *h, const struct part *part, size_t i, char *to,
	const struct travel *travel, struct jm_err *err)
{
	size_t size = jm_comm_type_bytes(travel->type);
	int code = 0;

	for (int r = 0; r < h->world && !code; r++)
		if (r != h->rank && count_of(&part[r], i, travel))
			code = jm__host_receive(h, r, to + part[r].from * size + i * PIECE, NULL,
				count_of(&part[r], i, travel), travel, err);
	return code;
}

/* Each rank gives its part, which is at `own`, to all others, which write it to its place in
 * `to`. */
static int give_parts(struct host *h, const struct part *part, const char *own, char *to,
	const struct travel *travel, struct jm_err *err)
{
	size_t n = most_pieces(h, part, travel);
	int code = 0;

	for (size_t i = 0; i < n + AHEAD && !code; i++) {
		if (i < n)
			code = give_piece(h, part, i, own, travel, err);
		if (!code && i >= AHEAD)
			code = take_piece(h, part, i - AHEAD, to, travel, err);
	}
	return code;
}

/* The own part of a result of give_parts, rounded as the others receive it. */
static int copy_own(struct host *h, char *to, const char *from, size_t n,
	const struct travel *travel, struct jm_err *err)
{
	size_t most = piece_elements(travel), size = jm_comm_type_bytes(travel->type);
	int code = 0;

	if (travel->way == travel->type && (to == from || !n))
		return 0;
	if (travel->way == travel->type)
		return h->lane->copy(h->lanes, JM_LANE_TRANSFER, to, from, n * size, err);
	for (size_t at = 0; at < n && !code; at += most) {
		char *room = h->staging + 2 * STAGES * PIECE;
		size_t some = n - at < most ? n - at : most;

		code = h->lane->cast(
			h->lanes, room, travel->way, from + at * size, travel->type, some, err);
		if (!code)
			code = h->lane->cast(h->lanes, to + at * size, travel->type, room,
				travel->way, some, err);
	}
	return code;
}

static struct travel travel_of(const struct jm_transfer *t)
{
	return (struct travel){t->type, t->rounds ? JM_COMM_BF16 : t->type};
}

static int all_reduce(struct host *h, const struct jm_transfer *t, struct jm_err *err)
{
	const struct travel travel = travel_of(t);
	size_t each = (t->count / (size_t)h->world / ALIGN + 1) * ALIGN;
	struct part part[MOST] = {0};
	char *own;
	int code;

	for (size_t r = 0; r < (size_t)h->world; r++) {
		size_t from = r * each, to = from + each;

		part[r].from = from < t->count ? from : t->count;
		part[r].n = (to < t->count ? to : t->count) - part[r].from;
	}
	own = (char *)t->to + part[h->rank].from * jm_comm_type_bytes(t->type);
	code = sum_parts(h, part, t->from, own, &travel, err);
	if (!code)
		code = h->lane->mark(h->lanes, SUMMED, JM_LANE_TRANSFER, err);
	if (!code)
		code = h->lane->follow(h->lanes, SUMMED, JM_LANE_SEND, err);
	if (!code)
		code = give_parts(h, part, own, t->to, &travel, err);
	return code ? code : copy_own(h, own, own, part[h->rank].n, &travel, err);
}

static void equal_parts(const struct host *h, const struct jm_transfer *t, struct part *ret)
{
	for (int r = 0; r < h->world; r++)
		ret[r] = (struct part){(size_t)r * t->count, t->count};
}

static int reduce_scatter(struct host *h, const struct jm_transfer *t, struct jm_err *err)
{
	const struct travel travel = travel_of(t);
	struct part part[MOST] = {0};

	equal_parts(h, t, part);
	return sum_parts(h, part, t->from, t->to, &travel, err);
}

static int all_gather(struct host *h, const struct jm_transfer *t, struct jm_err *err)
{
	const struct travel travel = travel_of(t);
	struct part part[MOST] = {0};
	char *own;
	int code;

	equal_parts(h, t, part);
	own = (char *)t->to + part[h->rank].from * jm_comm_type_bytes(t->type);
	code = give_parts(h, part, t->from, t->to, &travel, err);
	return code ? code : copy_own(h, own, t->from, t->count, &travel, err);
}

static int broadcast(struct host *h, const struct jm_transfer *t, struct jm_err *err)
{
	const struct travel travel = travel_of(t);
	struct part part[MOST] = {0};
	int code;

	part[t->root].n = t->count;
	code = give_parts(h, part, t->from, t->to, &travel, err);
	if (code || h->rank != t->root)
		return code;
	return copy_own(h, t->to, t->from, t->count, &travel, err);
}

/* Piece i of n elements to one rank, and of another: -1 = not. */
static int swap_piece(struct host *h, const struct jm_transfer *t, int to_rank, int from_rank,
	size_t i, struct jm_err *err)
{
	const struct travel travel = travel_of(t);
	const struct part whole = {0, t->count};
	size_t n = count_of(&whole, i, &travel);
	int code = 0;

	if (to_rank >= 0 && to_rank != h->rank && n)
		code = jm__host_send(
			h, to_rank, (const char *)t->from + i * PIECE, n, &travel, err);
	if (!code && from_rank >= 0 && from_rank != h->rank && n)
		code = jm__host_receive(
			h, from_rank, (char *)t->to + i * PIECE, NULL, n, &travel, err);
	return code;
}

static int send_receive(struct host *h, const struct jm_transfer *t, struct jm_err *err)
{
	const struct travel travel = travel_of(t);
	size_t n = (t->count + piece_elements(&travel) - 1) / piece_elements(&travel);
	int code = 0;

	for (size_t i = 0; i < n && !code; i++)
		code = swap_piece(h, t, t->to_rank, t->from_rank, i, err);
	if (!code && t->to_rank == h->rank && t->from_rank == h->rank)
		code = copy_own(h, t->to, t->from, t->count, &travel, err);
	return code;
}

/* With each rank in turn, as all others do. */
static int all_to_all(struct host *h, const struct jm_transfer *t, struct jm_err *err)
{
	size_t each = t->count * jm_comm_type_bytes(t->type);
	int code = 0;

	for (int k = 0; k < h->world && !code; k++) {
		struct jm_transfer one = *t;

		one.to_rank = (h->rank + k) % h->world;
		one.from_rank = (h->rank - k + h->world) % h->world;
		one.from = (const char *)t->from + (size_t)one.to_rank * each;
		one.to = (char *)t->to + (size_t)one.from_rank * each;
		code = send_receive(h, &one, err);
	}
	return code;
}

typedef int transfer_fn(struct host *h, const struct jm_transfer *t, struct jm_err *err);

static transfer_fn *const transfers[] = {[JM_ALL_REDUCE] = all_reduce,
	[JM_ALL_GATHER] = all_gather,
	[JM_REDUCE_SCATTER] = reduce_scatter,
	[JM_BROADCAST] = broadcast,
	[JM_ALL_TO_ALL] = all_to_all,
	[JM_SEND_RECEIVE] = send_receive};

/* The lanes begin where the stream is now, and the stream goes on when they have ended. */
static int begin(const struct host *h, struct jm_err *err)
{
	int code = h->lane->mark(h->lanes, BEGUN, JM_LANE_TRANSFER, err);

	if (!code)
		code = h->lane->follow(h->lanes, BEGUN, JM_LANE_SEND, err);
	return code ? code : h->lane->follow(h->lanes, BEGUN, JM_LANE_RECEIVE, err);
}

static int end(const struct host *h, struct jm_err *err)
{
	int code = h->lane->mark(h->lanes, SENT, JM_LANE_SEND, err);

	if (!code)
		code = h->lane->follow(h->lanes, SENT, JM_LANE_TRANSFER, err);
	if (!code)
		code = h->lane->mark(h->lanes, RECEIVED, JM_LANE_RECEIVE, err);
	return code ? code : h->lane->follow(h->lanes, RECEIVED, JM_LANE_TRANSFER, err);
}

static int host_start(void *state, const struct jm_transfer *t, struct jm_err *err)
{
	struct host *h = state;
	bool sums = t->kind == JM_ALL_REDUCE || t->kind == JM_REDUCE_SCATTER;
	int code;

	if ((sums && t->type != JM_COMM_F32 && t->type != JM_COMM_BF16) ||
		(t->rounds && t->type != JM_COMM_F32))
		return jm_err_set(
			err, JM_ENOSUP, "Transport host adds f32 and bf16, and rounds f32 only.");
	code = begin(h, err);
	if (!code)
		code = transfers[t->kind](h, t, err);
	return code ? code : end(h, err);
}

/* ---- ranks that leave ------------------------------------------------------------------------ */

static bool is_behind(_Atomic uint32_t *flag, uint32_t value)
{
	return (int32_t)(atomic_load(flag) - value) < 0;
}

/* A rank that left and without which queued work cannot end; -1 = none. */
static int debtor(const struct host *h)
{
	for (int r = 0; r < h->world; r++) {
		struct channel *in = &h->head->channel[r][h->rank],
			       *out = &h->head->channel[h->rank][r];

		if (r != h->rank && atomic_load(&h->head->left[r]) &&
			(is_behind(&in->posted, h->got[r]) ||
				is_behind(&out->taken, h->sent[r] - SLOTS)))
			return r;
	}
	return -1;
}

/* Ends what this rank's lanes wait for. */
static void release(const struct host *h)
{
	for (int r = 0; r < h->world; r++) {
		struct channel *in = &h->head->channel[r][h->rank],
			       *out = &h->head->channel[h->rank][r];

		if (is_behind(&in->posted, h->got[r]))
			atomic_store(&in->posted, h->got[r]);
		if (is_behind(&out->taken, h->sent[r]))
			atomic_store(&out->taken, h->sent[r]);
	}
}

static int host_poll(void *state, struct jm_err *err)
{
	struct host *h = ((struct host *)state)->gang;
	int64_t now = jm_clock_now(jm_clock_real());
	int r = debtor(h);

	if (h->given_up) {
		release(h);
		return jm_err_set(err, JM_EGONE, "The transfers over the host were given up.");
	}
	if (r < 0) {
		h->missing_since = 0;
		return 0;
	}
	if (!h->missing_since)
		h->missing_since = now;
	if (now - h->missing_since < PATIENCE_NS)
		return 0;
	release(h);
	h->given_up = true;
	return jm_err_set(
		err, JM_EGONE, "Rank %d ended while rank %d was waiting for it.", r, h->rank);
}

/* Waits a while until the lanes are idle. Releases again and again, because a rank that goes on may
 * still write smaller numbers. */
static bool passes(const struct host *h, bool releases)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	int64_t until = jm_clock_now(jm_clock_real()) + LEAVE_NS;

	for (;;) {
		if (releases)
			release(h);
		if (h->lane->passed(h->lanes))
			return true;
		if (jm_clock_now(jm_clock_real()) >= until)
			return false;
		nanosleep(&nap, NULL);
	}
}

/* Lanes that do not end keep their memory and that of the gang: the end of the process frees both.
 * A rank that leaves a group stays in the gang if the transfers end by themselves. */
static int host_leave(void *state, struct jm_err *err)
{
	struct host *h = ((struct host *)state)->gang;
	bool passed;

	if (!h->lanes || (h != state && passes(h, false)))
		return 0;
	atomic_store(&h->head->left[h->rank], 1);
	passed = passes(h, true);
	if (passed)
		h->lane->close(h->lanes);
	else
		h->head = NULL;
	h->lanes = NULL;
	return passed ? 0
		      : jm_err_set(err, JM_EGONE,
				"Transfers over the host have not ended %d s after they were given "
				"up: "
				"the device does not answer.",
				(int)(LEAVE_NS / JM_SECOND));
}

/* ---- opening --------------------------------------------------------------------------------- */

static void host_close(void *state)
{
	struct host *h = state;

	if (!h)
		return;
	host_leave(h, NULL);
	if (h->gang == h && h->head)
		munmap(h->head, jm__host_bytes(h->world));
	free(h);
}

static int map(struct host *h, int fd, struct jm_err *err)
{
	size_t bytes = jm__host_bytes(h->world);
	void *at = MAP_FAILED;

	/* every rank sets the same size, so that their order does not matter */
	if (!ftruncate(fd, (off_t)JM__HOST_FROM + (off_t)bytes))
		at = mmap(
			NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)JM__HOST_FROM);
	if (at == MAP_FAILED)
		return jm_err_set(err, JM_EIO,
			"The memory that %d ranks share (%zu bytes) cannot be mapped: %s.",
			h->world, bytes, strerror(errno));
	h->head = at;
	return 0;
}

static int open_lanes(struct host *h, const struct jm_comm_place *place, struct jm_err *err)
{
	const struct jm_lanes_want want = {.shared = h->head,
		.shared_bytes = jm__host_bytes(h->world),
		.staging_bytes = (2 * STAGES + 1) * PIECE,
		.marks = MARKS};
	void *staging = NULL;
	int code = place->lanes->open(place->device, &want, &h->lanes, &staging, err);

	h->staging = staging;
	return code;
}

static int host_open(const struct jm_comm_place *place, void **ret_state, struct jm_err *err)
{
	struct host *h = calloc(1, sizeof(*h));
	double failures;
	int code, rc;

	if (!h)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a communicator.");
	*h = (struct host){
		.rank = place->rank, .world = place->world, .lane = place->lanes, .gang = h};
	for (int r = 0; r < MOST; r++)
		h->member[r] = r;
	if (place->world > MOST)
		code = jm_err_set(err, JM_ENOSUP,
			"Transport host connects at most %d ranks; use --transport nccl.", MOST);
	else if (!place->lanes)
		code = jm_err_set(err, JM_ENOSUP,
			"This device has no copies through memory that processes share, which "
			"transport host needs; omit --transport.");
	else
		code = map(h, place->fd, err);
	if (!code)
		code = open_lanes(h, place, err);
	/* all have mapped the file before the first writes, or all know that one cannot */
	failures = code != 0;
	rc = jm_comm_sum(place->control, &failures, 1, code ? NULL : err);
	if (!code && !rc && failures > 0)
		rc = jm_err_set(err, JM_ENOSUP,
			"Another rank cannot use transport host; use --transport nccl.");
	code = code ? code : rc;
	if (code)
		host_close(h);
	else
		*ret_state = h;
	return code;
}

static int host_split(void *state, const struct jm_comm_group *group, const struct jm_comm *control,
	void **ret_state, struct jm_err *err)
{
	const struct host *all = state;
	struct host *h = calloc(1, sizeof(*h));

	(void)control;
	if (!h)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a group of ranks.");
	*h = (struct host){.head = all->head,
		.lane = all->lane,
		.lanes = all->lanes,
		.staging = all->staging,
		.rank = group->rank,
		.world = group->n,
		.gang = all->gang};
	for (int r = 0; r < group->n; r++)
		h->member[r] = all->member[group->member[r]];
	*ret_state = h;
	return 0;
}

const struct jm_transport jm_transport_host = {
	.name = "host",
	.summary = "GPUs of one host, by copies through its memory",
	.rounds = true,
	.open = host_open,
	.split = host_split,
	.start = host_start,
	.poll = host_poll,
	.leave = host_leave,
	.close = host_close,
};
