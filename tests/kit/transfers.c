/* SPDX-License-Identifier: Apache-2.0 */
#include "transfers.h"

#include <stdlib.h>
#include <string.h>

/* The value that rank r gives as element i; sums of a few of them are exact in f32. */
static float value(int r, size_t i)
{
	return (float)((i * 7 + (size_t)r * 13) % 1024) - 300.0f;
}

static bool is_of_all(enum jm_transfer_kind kind, bool to)
{
	return kind == JM_ALL_TO_ALL || kind == (to ? JM_ALL_GATHER : JM_REDUCE_SCATTER);
}

/* On the device, by a copy of `from` and, behind it, what `to` was. */
static int transfer_there(const struct jm_device *d, const struct jm_comm *c, struct jm_transfer t,
	size_t from_bytes, size_t to_bytes, struct jm_err *err)
{
	char *room = d->backend->alloc(d->dev, from_bytes + to_bytes + 1), *to = room + from_bytes;
	void *result = t.to;
	int code = d->backend->stream(d->dev, JM_QUEUE_COMM, &t.stream, err);

	if (!code)
		code = jm_device_copy(
			d, JM_QUEUE_COMM, room, t.from, from_bytes, JM_TO_DEVICE, err);
	if (!code)
		code = jm_device_copy(d, JM_QUEUE_COMM, to, t.to, to_bytes, JM_TO_DEVICE, err);
	t.to = t.from == t.to ? room : to;
	t.from = room;
	if (!code)
		code = jm_comm_run(c, &t, err);
	if (!code)
		code = jm_device_copy(d, JM_QUEUE_COMM, result, t.to, to_bytes, JM_TO_HOST, err);
	if (!code)
		code = jm_device_sync(d, err);
	d->backend->release(d->dev, room);
	return code;
}

static int run(struct transfer_rank *r, const struct jm_comm *c, const struct jm_transfer *t)
{
	size_t bytes = t->count * sizeof(float), world = (size_t)c->world;

	if (!r->device)
		return jm_comm_run(c, t, &r->err);
	return transfer_there(r->device, c, *t, bytes * (is_of_all(t->kind, false) ? world : 1),
		bytes * (is_of_all(t->kind, true) ? world : 1), &r->err);
}

static int transfer(struct transfer_rank *r, const struct jm_comm *c, enum jm_transfer_kind kind,
	const float *from, float *to)
{
	const struct jm_transfer t = {.kind = kind,
		.type = JM_COMM_F32,
		.from = from,
		.to = to,
		.count = r->n,
		.root = c->world - 1};

	return run(r, c, &t);
}

/* To the next rank, from the one before; with `chain` nothing from the last one to the first. */
static int pass_on(
	struct transfer_rank *r, const struct jm_comm *c, const float *from, float *to, bool chain)
{
	int world = c->world, rank = c->rank;
	const struct jm_transfer t = {.kind = JM_SEND_RECEIVE,
		.type = JM_COMM_F32,
		.from = from,
		.to = to,
		.count = r->n,
		.to_rank = chain && rank == world - 1 ? -1 : (rank + 1) % world,
		.from_rank = chain && !rank ? -1 : (rank + world - 1) % world};

	return run(r, c, &t);
}

static int transfer_all(struct transfer_rank *r, struct jm_comm *c)
{
	size_t n = r->n;
	float *own = malloc((n * (size_t)c->world + 1) * sizeof(*own));
	int rc;

	for (size_t i = 0; i < n * (size_t)c->world; i++)
		own[i] = value(c->rank, i);
	memcpy(r->sum, own, n * sizeof(*own));
	rc = transfer(r, c, JM_ALL_REDUCE, r->sum, r->sum);
	if (!rc)
		rc = transfer(r, c, JM_ALL_GATHER, own, r->all);
	if (!rc)
		rc = transfer(r, c, JM_REDUCE_SCATTER, own, r->part);
	if (!rc)
		rc = transfer(r, c, JM_BROADCAST, own, r->told);
	if (!rc)
		rc = transfer(r, c, JM_ALL_TO_ALL, own, r->swapped);
	if (!rc)
		rc = pass_on(r, c, own, r->passed, false);
	if (!rc)
		rc = pass_on(r, c, own, r->sent, true);
	free(own);
	return rc;
}

static float sum_of(int world, size_t i)
{
	float sum = 0;

	for (int r = 0; r < world; r++)
		sum += value(r, i);
	return sum;
}

static bool results_are_right(const struct transfer_rank *r)
{
	int world = r->place.world, rank = r->place.rank, before = (rank + world - 1) % world;
	bool right = true;

	for (size_t i = 0; i < r->n; i++) {
		size_t part = (size_t)rank * r->n + i;

		right = right && r->sum[i] == sum_of(world, i) &&
			r->part[i] == sum_of(world, part) && r->told[i] == value(world - 1, i) &&
			r->passed[i] == value(before, i) &&
			r->sent[i] == (rank ? value(before, i) : 0);
		for (int k = 0; k < world; k++)
			right = right && r->all[(size_t)k * r->n + i] == value(k, i) &&
				r->swapped[(size_t)k * r->n + i] == value(k, part);
	}
	return right;
}

void transfers_make_room(struct transfer_rank *r)
{
	size_t n = r->n, all = n * (size_t)r->place.world;
	float *room = calloc(5 * n + 2 * all + 1, sizeof(*room));

	r->sum = room;
	r->part = r->sum + n;
	r->told = r->part + n;
	r->passed = r->told + n;
	r->sent = r->passed + n;
	r->all = r->sent + n;
	r->swapped = r->all + all;
}

/* Groups of ranks of one parity: all transfers, in one of the groups twice. */
static int split_and_transfer(struct transfer_rank *r, const struct jm_comm *c)
{
	struct transfer_rank member = {.n = r->n, .device = r->device};
	struct jm_comm group = {0};
	int code = jm_comm_split(c, c->rank % 2, &group, &r->err);

	if (code)
		return code;
	member.place = (struct jm_comm_place){.rank = group.rank, .world = group.world};
	transfers_make_room(&member);
	for (int i = 0; i < 1 + c->rank % 2 && !code; i++)
		code = transfer_all(&member, &group);
	r->group_is_right = results_are_right(&member) && group.rank == c->rank / 2 &&
			    group.world == (c->world + 1 - c->rank % 2) / 2;
	if (code)
		r->err = member.err;
	free(member.sum);
	jm_comm_close(&group);
	return code;
}

int transfers_run(struct transfer_rank *r, struct jm_comm *c)
{
	int code = split_and_transfer(r, c);

	if (!code)
		code = transfer_all(r, c);
	return code ? code : split_and_transfer(r, c); /* the gang goes on beside its groups */
}

bool transfers_are_right(const struct transfer_rank *r)
{
	return results_are_right(r) && r->group_is_right;
}
