/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport `net`: memory of hosts, by TCP between each two ranks. It connects ranks of several
 * hosts, which meet at an address with a secret (base/net/meet.h), or those of one host, which
 * agree on an address over `control`.
 *
 * Each rank adds one part of a sum, in the order of the ranks as `local` does, so that the result
 * has the same bits; small sums are added by all ranks. A rank waits for one that has ended no
 * longer than the network takes to say so.
 */
#include "net_flow.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/net/meet.h"
#include "base/net/tcp.h"
#include "sum_ranks.h"

#define PIECE ((size_t)1 << 20)
#define SMALL ((size_t)8 << 10) /* bytes of a sum that every rank makes itself */
#define ALIGN 64		/* elements at which the parts of a sum begin */

/* Bytes [from, from + n) of an array, of which there is one part for each rank. */
struct part {
	size_t from, n;
};

/* ---- transfers ------------------------------------------------------------------------------- */

/* The sum of what each rank has at `own`, from the others' in staging. */
static void add_staged(const struct jm__net *n, const struct jm_transfer *t, const char *own,
	char *to, size_t bytes)
{
	const char *from[JM_RANKS_MOST];

	for (int r = 0; r < n->world; r++)
		from[r] = r == n->rank ? own : n->staging + (size_t)(r - (r > n->rank)) * PIECE;
	jm__sum_ranks(t->type, to, from, n->world, bytes);
}

static void stage(struct jm__net *n, int r, size_t bytes)
{
	jm__net_take(n, r, n->staging + (size_t)(r - (r > n->rank)) * PIECE, bytes);
}

/* Bytes of piece i of a part. */
static size_t piece_of(const struct part *p, size_t i)
{
	size_t at = i * PIECE, rest = at < p->n ? p->n - at : 0;

	return rest < PIECE ? rest : PIECE;
}

static int sum_piece(struct jm__net *n, const struct jm_transfer *t, const struct part *part,
	size_t i, char *to, struct jm_err *err)
{
	const char *from = (const char *)t->from + i * PIECE;
	size_t own = piece_of(&part[n->rank], i);
	int code;

	for (int r = 0; r < n->world; r++) {
		if (r == n->rank)
			continue;
		if (piece_of(&part[r], i))
			jm__net_give(n, r, from + part[r].from, piece_of(&part[r], i));
		if (own)
			stage(n, r, own);
	}
	code = jm__net_exchange(n, t, err);
	if (!code && own)
		add_staged(n, t, from + part[n->rank].from, to + i * PIECE, own);
	return code;
}

/* to = the sum over the ranks of the own part of `from`. */
static int sum_parts(struct jm__net *n, const struct jm_transfer *t, const struct part *part,
	char *to, struct jm_err *err)
{
	size_t most = 0;
	int code = 0;

	for (int r = 0; r < n->world; r++)
		most = part[r].n > most ? part[r].n : most;
	for (size_t i = 0; i * PIECE < most && !code; i++)
		code = sum_piece(n, t, part, i, to, err);
	return code;
}

/* Each rank gives its part, which is at `own`, to all others, which write it to its place in
 * t->to. */
static int give_parts(struct jm__net *n, const struct jm_transfer *t, const struct part *part,
	const char *own, struct jm_err *err)
{
	for (int r = 0; r < n->world; r++) {
		if (r == n->rank)
			continue;
		if (part[n->rank].n)
			jm__net_give(n, r, own, part[n->rank].n);
		if (part[r].n)
			jm__net_take(n, r, (char *)t->to + part[r].from, part[r].n);
	}
	return jm__net_exchange(n, t, err);
}

static int sum_small(
	struct jm__net *n, const struct jm_transfer *t, size_t bytes, struct jm_err *err)
{
	int code;

	for (int r = 0; r < n->world && bytes; r++) {
		if (r == n->rank)
			continue;
		jm__net_give(n, r, t->from, bytes);
		stage(n, r, bytes);
	}
	code = jm__net_exchange(n, t, err);
	if (!code)
		add_staged(n, t, t->from, t->to, bytes);
	return code;
}

static int all_reduce(struct jm__net *n, const struct jm_transfer *t, struct jm_err *err)
{
	size_t size = jm_comm_type_bytes(t->type), bytes = t->count * size;
	size_t each = (t->count / (size_t)n->world / ALIGN + 1) * ALIGN * size;
	struct part part[JM_RANKS_MOST] = {0};
	char *own;
	int code;

	if (bytes <= SMALL)
		return sum_small(n, t, bytes, err);
	for (size_t r = 0; r < (size_t)n->world; r++) {
		size_t from = r * each, to = from + each;

		part[r].from = from < bytes ? from : bytes;
		part[r].n = (to < bytes ? to : bytes) - part[r].from;
	}
	own = (char *)t->to + part[n->rank].from;
	code = sum_parts(n, t, part, own, err);
	return code ? code : give_parts(n, t, part, own, err);
}

static void equal_parts(const struct jm__net *n, const struct jm_transfer *t, struct part *ret)
{
	size_t bytes = t->count * jm_comm_type_bytes(t->type);

	for (int r = 0; r < n->world; r++)
		ret[r] = (struct part){(size_t)r * bytes, bytes};
}

static int all_gather(struct jm__net *n, const struct jm_transfer *t, struct jm_err *err)
{
	struct part part[JM_RANKS_MOST] = {0};
	char *own;
	int code;

	equal_parts(n, t, part);
	own = (char *)t->to + part[n->rank].from;
	code = give_parts(n, t, part, t->from, err);
	if (!code && own != t->from && part[n->rank].n)
		memcpy(own, t->from, part[n->rank].n);
	return code;
}

static int reduce_scatter(struct jm__net *n, const struct jm_transfer *t, struct jm_err *err)
{
	struct part part[JM_RANKS_MOST] = {0};

	equal_parts(n, t, part);
	return sum_parts(n, t, part, t->to, err);
}

static int broadcast(struct jm__net *n, const struct jm_transfer *t, struct jm_err *err)
{
	struct part part[JM_RANKS_MOST] = {0};
	int code;

	part[t->root].n = t->count * jm_comm_type_bytes(t->type);
	code = give_parts(n, t, part, t->from, err);
	if (!code && n->rank == t->root && t->to != t->from && t->count)
		memcpy(t->to, t->from, part[t->root].n);
	return code;
}

static int all_to_all(struct jm__net *n, const struct jm_transfer *t, struct jm_err *err)
{
	size_t each = t->count * jm_comm_type_bytes(t->type), own = (size_t)n->rank * each;

	for (int r = 0; r < n->world && each; r++) {
		if (r == n->rank)
			continue;
		jm__net_give(n, r, (const char *)t->from + (size_t)r * each, each);
		jm__net_take(n, r, (char *)t->to + (size_t)r * each, each);
	}
	if (each)
		memcpy((char *)t->to + own, (const char *)t->from + own, each);
	return jm__net_exchange(n, t, err);
}

static int send_receive(struct jm__net *n, const struct jm_transfer *t, struct jm_err *err)
{
	size_t bytes = t->count * jm_comm_type_bytes(t->type);

	if (t->to_rank >= 0 && t->to_rank != n->rank && bytes)
		jm__net_give(n, t->to_rank, t->from, bytes);
	if (t->from_rank >= 0 && t->from_rank != n->rank && bytes)
		jm__net_take(n, t->from_rank, t->to, bytes);
	if (t->from_rank == n->rank && t->to_rank == n->rank && bytes)
		memcpy(t->to, t->from, bytes);
	return jm__net_exchange(n, t, err);
}

typedef int transfer_fn(struct jm__net *n, const struct jm_transfer *t, struct jm_err *err);

static transfer_fn *const transfers[] = {[JM_ALL_REDUCE] = all_reduce,
	[JM_ALL_GATHER] = all_gather,
	[JM_REDUCE_SCATTER] = reduce_scatter,
	[JM_BROADCAST] = broadcast,
	[JM_ALL_TO_ALL] = all_to_all,
	[JM_SEND_RECEIVE] = send_receive};

static int net_start(void *state, const struct jm_transfer *t, struct jm_err *err)
{
	int code = jm__sum_check(t, "net", err);

	return code ? code : transfers[t->kind](state, t, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What rank 0 tells the others of the same host. */
struct invitation {
	int port; /* 0 = it could not listen */
	unsigned char key[JM_KEY_BYTES];
};

/* The ranks of one host agree on where to meet. */
static int invite(const struct jm_comm_place *place, struct jm_meet *m, struct jm_err *err)
{
	struct invitation all = {0};
	char host[JM_HOST_SIZE];
	int code = 0, rc;

	m->host = "127.0.0.1";
	if (!place->rank)
		code = jm_tcp_listen(m->host, 0, &m->door_fd, err);
	if (!code && !place->rank)
		code = jm_key_new(all.key, err);
	if (!code && !place->rank)
		all.port = jm_tcp_own_end(m->door_fd, host);
	rc = jm_comm_from_first(place->control, &all, sizeof(all), code ? NULL : err);
	if (!code && !rc && !all.port)
		rc = jm_err_set(err, JM_EIO, "Rank 0 could not open a port for transport net.");
	m->port = all.port;
	memcpy(m->key, all.key, sizeof(m->key));
	return code ? code : rc;
}

static int meet(struct jm__net *n, const struct jm_comm_place *place, struct jm_err *err)
{
	struct jm_meet m = {.door_fd = -1, .differs = "The gang"};
	int fd[JM_RANKS_MOST], code = 0;

	if (place->meet)
		m = *place->meet;
	m.rank = place->rank;
	m.world = place->world;
	m.join_s = place->join_s;
	m.until_ns = n->join_ns;
	if (!place->meet)
		code = invite(place, &m, err);
	if (code && m.door_fd >= 0)
		close(m.door_fd);
	if (!code)
		code = jm_meet(&m, fd, err);
	for (int r = 0; r < n->world && !code; r++)
		n->own[r].fd = fd[r];
	return code;
}

static void net_close(void *state)
{
	struct jm__net *n = state;

	if (!n)
		return;
	for (int r = 0; n->own && r < n->world; r++)
		if (n->own[r].fd >= 0)
			close(n->own[r].fd);
	free(n->own);
	free(n->staging);
	free(n);
}

/* Waits until each rank is connected to all others. */
static int gather(struct jm__net *n, struct jm_err *err)
{
	double nothing = 0;
	const struct jm_transfer t = {.kind = JM_ALL_REDUCE,
		.type = JM_COMM_F64,
		.from = &nothing,
		.to = &nothing,
		.count = 1};

	return all_reduce(n, &t, err);
}

static int net_open(const struct jm_comm_place *place, void **ret_state, struct jm_err *err)
{
	struct jm__net *n = calloc(1, sizeof(*n));
	int code = 0;

	if (!n)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a communicator.");
	n->rank = place->rank;
	n->world = place->world;
	n->join_s = place->join_s;
	n->join_ns = jm_comm_join_until(place);
	n->own = calloc((size_t)n->world, sizeof(*n->own));
	for (int r = 0; n->own && r < n->world; r++) {
		n->own[r] = (struct jm__net_link){.rank = r, .fd = -1};
		n->link[r] = &n->own[r];
	}
	n->staging = malloc((size_t)n->world * PIECE);
	if (!n->staging || !n->own)
		code = jm_err_set(
			err, JM_ENOMEM, "Out of memory for pieces of %d ranks.", n->world);
	if (!code)
		code = meet(n, place, err);
	if (!code)
		code = gather(n, err);
	if (code)
		net_close(n);
	else
		*ret_state = n;
	return code;
}

/* The connections are those of the gang, whose messages stay in order whatever group they belong
 * to. */
static int net_split(void *state, const struct jm_comm_group *group, const struct jm_comm *control,
	void **ret_state, struct jm_err *err)
{
	const struct jm__net *all = state;
	struct jm__net *n = calloc(1, sizeof(*n));

	(void)control;
	if (n)
		n->staging = malloc((size_t)group->n * PIECE);
	if (!n || !n->staging) {
		free(n);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a group of ranks.");
	}
	n->rank = group->rank;
	n->world = group->n;
	n->join_ns = JM_FOREVER;
	for (int r = 0; r < n->world; r++)
		n->link[r] = all->link[group->member[r]];
	*ret_state = n;
	return 0;
}

static void net_joined(void *state)
{
	struct jm__net *n = state;

	n->join_ns = JM_FOREVER;
}

const struct jm_transport jm_transport_net = {
	.name = "net",
	.summary = "memory of one or more hosts, by TCP",
	.host_memory = true,
	.open = net_open,
	.joined = net_joined,
	.split = net_split,
	.start = net_start,
	.close = net_close,
};
