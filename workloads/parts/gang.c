/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks meet in memory of the host first; what else they need they arrange over it. */
#include "gang.h"
#include "engine/plan/bucket.h"

#include <stdlib.h>
#include <string.h>

#include "base/process/cpu_list.h"
#include "run/gang/gang_place.h"

const char *const jm_gang_transports[] = {"auto", "nccl", "host", "net", "mpi", NULL};

/* Exchanges the devices of all ranks. */
static int introduce(struct jm_gang *g, struct jm_work *work, struct jm_err *err)
{
	const struct jm_transfer t = {.kind = JM_ALL_GATHER,
		.type = JM_COMM_BYTE,
		.from = &work->own,
		.to = g->own,
		.count = sizeof(work->own)};
	int code = jm_comm_run(&g->control, &t, err);

	if (!code)
		work->gang = g->own;
	return code;
}

/* All ranks take the same transport, also where their devices are not alike. */
static int choose_transport(struct jm_gang *g, const struct jm_device *d,
	const struct jm_gang_way *way, const char **ret, struct jm_err *err)
{
	double n = way->prefers_host && !g->work->meet;
	int code = jm_gang_same(g, d->backend->stream != NULL, "Ways to exchange data", err);

	if (!code)
		code = jm_comm_sum(&g->control, &n, 1, err);
	if (code)
		return code;
	if (strcmp(way->transport, "auto") != 0)
		*ret = way->transport;
	else
		*ret = n == g->control.world ? "host" : jm_reduce_transport(d);
	return 0;
}

/* Makes the device current in the calling thread. */
static int enter(void *arg, struct jm_err *err)
{
	const struct jm_device *d = arg;
	void *stream;

	return d->backend->stream(d->dev, JM_QUEUE_COMM, &stream, err);
}

/* Can ranks on this device use the transport? "local": `control` is used. */
static int check_transport(struct jm_gang *g, const struct jm_work *work, struct jm_device *d,
	const char *name, struct jm_err *err)
{
	const struct jm_transport *transport = jm_transport_find(name, err);
	int code;

	if (!transport)
		return err->code;
	if (transport->host_memory && !d->backend->stream)
		return 0;
	if (work->meet && !strcmp(name, "host"))
		return jm_err_set(err, JM_ENOSUP,
			"Transport host connects devices of one host, but these ranks may be on "
			"several; use --transport nccl.");
	if (transport->host_memory)
		return jm_err_set(err, JM_ENOSUP,
			"Transport %s exchanges memory of hosts, but the data of ranks on %s is in "
			"memory of the device; use --transport nccl, or host on one host.",
			name, work->own.name);
	if (!d->backend->stream)
		return jm_err_set(err, JM_ENOSUP,
			"Ranks on %s exchange data through the memory of the host by themselves; "
			"omit --transport %s, which is for GPUs.",
			work->own.name, name);
	code = enter(d, err);
	for (int r = 0; r < work->world && !code; r++)
		if (r != work->rank && !strcmp(g->own[r].uuid, work->own.uuid))
			code = jm_err_set(err, JM_EUSAGE,
				"Ranks %d and %d are both on %s, but transport %s needs a device "
				"for each; give one for each rank with --device.",
				r < work->rank ? r : work->rank, r < work->rank ? work->rank : r,
				work->own.name, name);
	return code;
}

static int check_limits(const struct jm_comm_limits *limits, const char *name, struct jm_err *err)
{
	const struct jm_transport *transport = jm_transport_find(name, err);

	if (!transport)
		return err->code;
	if (transport->windows || (!limits->min_ctas && !limits->max_ctas))
		return 0;
	return jm_err_set(err, JM_ENOSUP,
		"Transport %s has no limits of CTAs; omit --min-ctas and --max-ctas, or use "
		"--transport nccl.",
		name);
}

static int open_device_comm(struct jm_gang *g, const struct jm_work *work, struct jm_device *d,
	const char *name, const struct jm_comm_limits *limits, struct jm_err *err)
{
	const struct jm_comm_place place = {.rank = work->rank,
		.world = work->world,
		.join_s = jm_gang_seconds(),
		.fd = work->gang_fd,
		.control = &g->control,
		.device = d->dev,
		.limits = *limits,
		.lanes = d->backend->lanes,
		.enter = enter,
		.enter_arg = d};
	int code;

	code = check_transport(g, work, d, name, err);
	if (!code)
		code = check_limits(limits, name, err);
	if (code || !strcmp(name, "local") || !strcmp(name, g->control.transport->name))
		return code;
	return jm_comm_open(name, &place, &g->device, err);
}

static int poll_transfers(void *arg, struct jm_err *err)
{
	const struct jm_gang *g = arg;
	const struct jm_comm *comm[] = {&g->device, &g->tp, &g->models, &g->model};
	int code = 0;

	for (int i = 0; i < 4 && !code; i++)
		if (comm[i]->transport)
			code = comm[i]->transport->poll(comm[i]->state, err);
	return code;
}

static int watch(struct jm_gang *g, struct jm_device *d, struct jm_err *err)
{
	if (!g->device.transport || !g->device.transport->poll)
		return 0;
	g->watched = d;
	return jm_device_watch(d, poll_transfers, g, err);
}

int jm_gang_open(struct jm_gang *g, struct jm_work *work, struct jm_device *d,
	const struct jm_gang_way *way, struct jm_err *err)
{
	const struct jm_comm_place place = {.rank = work->rank,
		.world = work->world,
		.join_s = jm_gang_seconds(),
		.fd = work->gang_fd,
		.meet = work->meet};
	const char *transport = NULL;
	int code;

	*g = (struct jm_gang){.work = work};
	if (work->world < 2)
		return 0;
	g->own = calloc((size_t)work->world, sizeof(*g->own));
	if (!g->own)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d ranks.", work->world);
	code = jm_comm_open(work->meet ? "net" : "local", &place, &g->control, err);
	if (!code)
		code = introduce(g, work, err);
	if (!code && way)
		code = choose_transport(g, d, way, &transport, err);
	if (!code && way)
		code = open_device_comm(g, work, d, transport, &way->limits, err);
	/* all ranks fail together, so all take the other way */
	if (code && transport && !strcmp(transport, "host") && !strcmp(way->transport, "auto")) {
		jm_log(work->ctx, JM_INFO, "Transport host is not used: %s", err->text);
		*err = (struct jm_err)JM_ERR_INIT;
		code = open_device_comm(g, work, d, jm_reduce_transport(d), &way->limits, err);
	}
	if (!code)
		jm_comm_joined(&g->control);
	return code ? code : watch(g, d, err);
}

struct jm_gang_seat jm_gang_seat(const struct jm_work *work, int tp, int stages)
{
	int models = jm_work_world(work) / (tp * stages), rank = work->rank;

	return (struct jm_gang_seat){rank % tp, rank / tp % models, rank / (tp * models)};
}

int jm_gang_share(struct jm_gang *g, int tp, int stages, struct jm_err *err)
{
	int world = g->work->world, models = world / (tp * stages), code = 0;
	struct jm_gang_seat seat = jm_gang_seat(g->work, tp, stages);
	const struct jm_comm *all = jm_gang_comm(g);

	g->n_tp = tp;
	g->n_stages = stages;
	if (tp > 1 && tp < world)
		code = jm_comm_split(all, seat.stage * models + seat.model, &g->tp, err);
	if (!code && models > 1 && models < world)
		code = jm_comm_split(all, seat.stage * tp + seat.tp_rank, &g->models, err);
	if (!code && stages > 1 && models > 1)
		code = jm_comm_split(all, seat.model, &g->model, err);
	return code;
}

bool jm_gang_leave(struct jm_gang *g)
{
	struct jm_err err = JM_ERR_INIT;

	if (g->watched)
		jm_device_watch(g->watched, NULL, NULL, NULL);
	g->watched = NULL;
	if (!jm_comm_leave(&g->tp, &err) && !jm_comm_leave(&g->models, &err) &&
		!jm_comm_leave(&g->model, &err) && !jm_comm_leave(&g->device, &err))
		return true;
	jm_log(g->work->ctx, JM_WARNING, "%s", err.text);
	return false;
}

void jm_gang_close(struct jm_gang *g)
{
	jm_gang_leave(g);
	jm_comm_close(&g->tp);
	jm_comm_close(&g->models);
	jm_comm_close(&g->model);
	jm_comm_close(&g->device);
	jm_comm_close(&g->control);
	if (g->work)
		g->work->gang = NULL; /* it may be read after a setup that failed */
	free(g->own);
	*g = (struct jm_gang){0};
}

int jm_gang_meet(const struct jm_gang *g, const struct jm_device *d, struct jm_err *err)
{
	double nothing = 0;
	int code = jm_device_sync(d, err);

	return code ? code : jm_comm_sum(&g->control, &nothing, 1, err);
}

/* Of a stage; all while there are no stages yet. */
static int ranks_of_stage(const struct jm_gang *g)
{
	int world = g->work ? g->work->world : 1;

	return g->n_stages > 0 ? world / g->n_stages : world;
}

/* values[JM_RANKS_MOST]: of all ranks; without others the own one. */
static int gather(const struct jm_gang *g, uint64_t value, uint64_t *values, struct jm_err *err)
{
	const struct jm_transfer t = {.kind = JM_ALL_GATHER,
		.type = JM_COMM_BYTE,
		.from = &value,
		.to = values,
		.count = sizeof(value)};

	values[0] = value;
	return g->control.transport ? jm_comm_run(&g->control, &t, err) : 0;
}

int jm_gang_same_data(const struct jm_gang *g, uint64_t value, struct jm_err *err)
{
	uint64_t values[JM_RANKS_MOST];
	int code = gather(g, value, values, err);

	if (code || values[0] == value)
		return code;
	return jm_err_set(err, JM_EUSAGE,
		"The data of rank %d are not those of rank 0, so the ranks would learn other "
		"samples than one rank does; give every host the same files for --text or --data.",
		g->work->rank);
}

int jm_gang_same(const struct jm_gang *g, uint64_t value, const char *what, struct jm_err *err)
{
	uint64_t values[JM_RANKS_MOST];
	int code = gather(g, value, values, err);
	int each = ranks_of_stage(g), first = each ? g->work->rank / each * each : 0;

	if (code || !g->control.transport || values[first] == value)
		return code;
	return jm_err_set(err, JM_ENOSUP,
		"%s of rank %d on %s differ from those of rank %d on %s, so nothing can be summed "
		"over the ranks; use devices of the same type for all ranks.",
		what, g->work->rank, g->work->own.name, first, g->own[first].name);
}

int jm_gang_in_turn(const struct jm_gang *g, int (*act)(void *arg, struct jm_err *err), void *arg,
	struct jm_err *err)
{
	int rank = g->work ? g->work->rank : 0, world = g->work ? g->work->world : 1, code = 0;
	bool acted = false;
	double nothing = 0;

	for (int first = 0; first < world && !code; first += ranks_of_stage(g)) {
		if (rank == first) {
			code = act(arg, err);
			acted = true;
		}
		if (!code)
			code = jm_comm_sum(&g->control, &nothing, 1, err);
	}
	return code || acted ? code : act(arg, err);
}

const struct jm_comm *jm_gang_comm(const struct jm_gang *g)
{
	return g->device.transport ? &g->device : &g->control;
}

/* The group if it was made, else all ranks if there are as many. */
static const struct jm_comm *group_of(const struct jm_gang *g, const struct jm_comm *group, int n)
{
	if (group->transport)
		return group;
	return n > 1 ? jm_gang_comm(g) : NULL;
}

struct jm_ranks jm_gang_ranks(const struct jm_gang *g)
{
	int shared = g->n_tp * g->n_stages, models = g->work->world / shared;

	return (struct jm_ranks){.models = group_of(g, &g->models, models),
		.tp = group_of(g, &g->tp, g->n_tp),
		.model = g->n_stages > 1 ? group_of(g, &g->model, shared) : NULL,
		.all = jm_gang_comm(g),
		.apart = g->n_tp * models};
}

bool jm_gang_by_host(const struct jm_gang *g)
{
	return g->device.transport && !strcmp(g->device.transport->name, "host");
}

/* Is the device of rank r one that no rank before it has? */
static bool is_new(const struct jm_own *own, int r)
{
	for (int i = 0; i < r; i++)
		if (!strcmp(own[i].uuid, own[r].uuid) && !strcmp(own[i].host, own[r].host))
			return false;
	return true;
}

int jm_gang_devices(const struct jm_work *work)
{
	int n = 0;

	for (int r = 0; work->gang && r < work->world; r++)
		n += is_new(work->gang, r);
	return n ? n : 1;
}

int jm_gang_threads(const struct jm_work *work, int wanted)
{
	return wanted || jm_work_world(work) < 2 ? wanted : jm_gang_cores(work);
}

int jm_gang_cores(const struct jm_work *work)
{
	return jm_cpus_share(work->local ? work->local : jm_work_world(work));
}
