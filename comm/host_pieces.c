/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of transport `host` on their way through the slots (host.c). */
#include "host_pieces.h"

size_t jm__host_bytes(int world)
{
	return HEAD_BYTES + (size_t)world * (size_t)(world - 1) * SLOTS * PIECE;
}

static char *slot(const struct host *h, int from, int to, uint32_t piece)
{
	int pair = from * (h->gang->world - 1) + to - (to > from);

	return (char *)h->head + HEAD_BYTES + ((size_t)pair * SLOTS + piece % SLOTS) * PIECE;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int send(struct host *h, int to, const char *from, size_t bytes, struct jm_err *err)
{
	int own = h->gang->rank, other = h->member[to];
	struct channel *c = &h->head->channel[own][other];
	uint32_t k = h->gang->sent[other]++;
	int code = h->lane->await(h->lanes, JM_LANE_SEND, &c->taken, k + 1 - SLOTS, err);

	if (!code)
		code = h->lane->copy(
			h->lanes, JM_LANE_SEND, slot(h, own, other, k), from, bytes, err);
	if (!code)
		code = h->lane->post(h->lanes, JM_LANE_SEND, &c->posted, k + 1, err);
	return code;
}

static int receive(struct host *h, int from, char *to, size_t bytes, struct jm_err *err)
{
	int own = h->gang->rank, other = h->member[from];
	struct channel *c = &h->head->channel[other][own];
	uint32_t k = h->gang->got[other]++;
	int code = h->lane->await(h->lanes, JM_LANE_RECEIVE, &c->posted, k + 1, err);

	if (!code)
		code = h->lane->copy(
			h->lanes, JM_LANE_RECEIVE, to, slot(h, other, own, k), bytes, err);
	if (!code)
		code = h->lane->post(h->lanes, JM_LANE_RECEIVE, &c->taken, k + 1, err);
	return code;
}

/* Makes the lane that uses this staging wait for the one that used it before. */
static char *next_stage(struct host *h, enum mark freed, uint32_t *count, enum jm_lane user,
	int *ret_stage, struct jm_err *err)
{
	int stage = (int)((*count)++ % STAGES);

	*ret_stage = stage;
	if (h->lane->follow(h->lanes, (int)freed + stage, user, err))
		return NULL;
	return h->staging + (size_t)(freed == FREED ? stage : STAGES + stage) * PIECE;
}

int jm__host_send(struct host *h, int to, const char *from, size_t n, const struct travel *travel,
	struct jm_err *err)
{
	char *staging;
	int stage, code;

	if (travel->way == travel->type)
		return send(h, to, from, n * jm_comm_type_bytes(travel->type), err);
	staging = next_stage(h, LEFT, &h->gang->rounded, JM_LANE_TRANSFER, &stage, err);
	if (!staging)
		return err->code;
	code = h->lane->cast(h->lanes, staging, travel->way, from, travel->type, n, err);
	if (!code)
		code = h->lane->mark(h->lanes, ROUNDED + stage, JM_LANE_TRANSFER, err);
	if (!code)
		code = h->lane->follow(h->lanes, ROUNDED + stage, JM_LANE_SEND, err);
	if (!code)
		code = send(h, to, staging, n * jm_comm_type_bytes(travel->way), err);
	return code ? code : h->lane->mark(h->lanes, LEFT + stage, JM_LANE_SEND, err);
}

int jm__host_receive(struct host *h, int from, char *to, const char *own, size_t n,
	const struct travel *travel, struct jm_err *err)
{
	char *staging;
	int stage, code;

	if (!own && travel->way == travel->type)
		return receive(h, from, to, n * jm_comm_type_bytes(travel->type), err);
	staging = next_stage(h, FREED, &h->gang->staged, JM_LANE_RECEIVE, &stage, err);
	if (!staging)
		return err->code;
	code = receive(h, from, staging, n * jm_comm_type_bytes(travel->way), err);
	if (!code)
		code = h->lane->mark(h->lanes, STAGED + stage, JM_LANE_RECEIVE, err);
	if (!code)
		code = h->lane->follow(h->lanes, STAGED + stage, JM_LANE_TRANSFER, err);
	if (!code && own)
		code = h->lane->add(h->lanes, to, travel->type, own, staging, travel->way, n, err);
	else if (!code)
		code = h->lane->cast(h->lanes, to, travel->type, staging, travel->way, n, err);
	return code ? code : h->lane->mark(h->lanes, FREED + stage, JM_LANE_TRANSFER, err);
}
