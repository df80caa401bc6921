/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators, independent of their transport. */
#include "comm.h"

#include <stdlib.h>

#include "base/member.h"

JM_DEFINE_FIND(transport)

int jm_comm_open(const char *transport, const struct jm_comm_place *place, struct jm_comm *ret,
	struct jm_err *err)
{
	struct jm_comm c = {.rank = place->rank, .world = place->world, .control = place->control};
	int rc;

	if (place->world < 1 || place->world > JM_RANKS_MOST || place->rank < 0 ||
		place->rank >= place->world)
		return jm_err_set(err, JM_ERANGE,
			"Rank %d of %d is not valid: there may be 1 to %d ranks, counted from 0.",
			place->rank, place->world, JM_RANKS_MOST);
	c.transport = jm_transport_find(transport, err);
	if (!c.transport)
		return err->code;
	rc = c.transport->load ? c.transport->load(&c.transport, err) : 0;
	if (!rc)
		rc = c.transport->open(place, &c.state, err);
	if (!rc)
		*ret = c;
	return rc;
}

/* The first rank of this colour. */
static int first_of(const int *colours, int colour)
{
	int r = 0;

	while (colours[r] != colour)
		r++;
	return r;
}

static struct jm_comm_group find_group(const int *colours, int rank, int world)
{
	struct jm_comm_group g = {0};
	int first = first_of(colours, colours[rank]);

	for (int r = 0; r < world; r++) {
		g.before += first_of(colours, colours[r]) < first;
		if (r == rank)
			g.rank = g.n;
		if (colours[r] == colours[rank])
			g.member[g.n++] = r;
	}
	return g;
}

/* Through which the ranks exchange what they have to know of each other. */
static const struct jm_comm *control_of(const struct jm_comm *comm)
{
	return comm->transport->host_memory ? comm : comm->control;
}

static int split_control(
	const struct jm_comm *comm, int colour, struct jm_comm *ret, struct jm_err *err)
{
	int code;

	if (comm->transport->host_memory)
		return 0;
	ret->own_control = calloc(1, sizeof(*ret->own_control));
	if (!ret->own_control)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a group of ranks.");
	code = jm_comm_split(comm->control, colour, ret->own_control, err);
	ret->control = ret->own_control;
	return code;
}

/* All ranks know whether all have succeeded. */
static int split_all(const struct jm_comm *comm, const struct jm_comm_group *g, struct jm_comm *ret,
	struct jm_err *err)
{
	int code = comm->transport->split(comm->state, g, ret->control, &ret->state, err), rc;
	double failures = code != 0;

	rc = jm_comm_sum(control_of(comm), &failures, 1, code ? NULL : err);
	if (!code && !rc && failures > 0)
		rc = jm_err_set(err, JM_EIO, "Another rank could not make its group of ranks.");
	return code ? code : rc;
}

int jm_comm_split(const struct jm_comm *comm, int colour, struct jm_comm *ret, struct jm_err *err)
{
	int colours[JM_RANKS_MOST] = {0}, code;
	struct jm_comm_group g;
	const struct jm_transfer t = {.kind = JM_ALL_GATHER,
		.type = JM_COMM_BYTE,
		.from = &colour,
		.to = colours,
		.count = sizeof(colour)};

	code = jm_comm_run(control_of(comm), &t, err);
	if (code)
		return code;
	g = find_group(colours, comm->rank, comm->world);
	*ret = (struct jm_comm){.transport = comm->transport, .rank = g.rank, .world = g.n};
	code = split_control(comm, colour, ret, err);
	if (!code)
		code = split_all(comm, &g, ret, err);
	if (code)
		jm_comm_close(ret);
	return code;
}

void jm_comm_joined(const struct jm_comm *comm)
{
	if (comm->transport && comm->transport->joined)
		comm->transport->joined(comm->state);
}

int jm_comm_leave(struct jm_comm *comm, struct jm_err *err)
{
	if (!comm->transport || !comm->transport->leave)
		return 0;
	return comm->transport->leave(comm->state, err);
}

void jm_comm_close(struct jm_comm *comm)
{
	if (comm->transport)
		comm->transport->close(comm->state);
	if (comm->own_control)
		jm_comm_close(comm->own_control);
	free(comm->own_control);
	*comm = (struct jm_comm){0};
}

int jm_comm_run(const struct jm_comm *comm, const struct jm_transfer *t, struct jm_err *err)
{
	int rc = comm->transport->start(comm->state, t, err);

	return rc || !comm->transport->wait ? rc : comm->transport->wait(comm->state, err);
}

int jm_comm_sum(const struct jm_comm *comm, double *value, int n, struct jm_err *err)
{
	struct jm_transfer t = {.kind = JM_ALL_REDUCE,
		.type = JM_COMM_F64,
		.from = value,
		.to = value,
		.count = (size_t)n};

	return comm->transport ? jm_comm_run(comm, &t, err) : 0;
}

int jm_comm_from_first(const struct jm_comm *comm, void *value, size_t bytes, struct jm_err *err)
{
	struct jm_transfer t = {.kind = JM_BROADCAST,
		.type = JM_COMM_BYTE,
		.from = value,
		.to = value,
		.count = bytes};

	return comm->transport ? jm_comm_run(comm, &t, err) : 0;
}
