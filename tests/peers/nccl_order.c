/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_order.h"

#include <stdlib.h>
#include <string.h>

#include "comm/sum_ranks.h"
#include "fake_stream.h"

extern const struct jm_transport jm_transport_local;

bool jm_fake_has_own_order(const struct jm_transfer *t)
{
	const char *order = getenv("JM_FAKE_NCCL_ORDER");

	return order && !strcmp(order, "own") &&
	       (t->kind == JM_ALL_REDUCE || t->kind == JM_REDUCE_SCATTER);
}

static void start(void *local, const struct jm_transfer *t)
{
	if (jm_transport_local.start(local, t, NULL))
		abort();
}

/* The number of the device of the communicator's first rank. */
static int first_device(void *local, const struct jm_transfer *t)
{
	const struct jm_fake_stream *s = t->stream;
	int index = s->index;

	start(local, &(const struct jm_transfer){.kind = JM_BROADCAST,
			     .type = JM_COMM_BYTE,
			     .from = &index,
			     .to = &index,
			     .count = sizeof(index)});
	return index;
}

void jm_fake_sum_in_own_order(void *local, int rank, int world, const struct jm_transfer *t)
{
	bool scatters = t->kind == JM_REDUCE_SCATTER;
	size_t part = t->count * jm_comm_type_bytes(t->type);
	size_t bytes = part * (size_t)(scatters ? world : 1);
	char *all = malloc(bytes * (size_t)world);
	const char *from[JM_RANKS_MOST];
	int first = first_device(local, t);

	if (!all)
		abort();
	start(local, &(const struct jm_transfer){.kind = JM_ALL_GATHER,
			     .type = JM_COMM_BYTE,
			     .from = t->from,
			     .to = all,
			     .count = bytes});
	for (int r = 0; r < world; r++)
		from[r] = all + bytes * (size_t)((first + r) % world) +
			  (scatters ? part * (size_t)rank : 0);
	jm__sum_ranks(t->type, t->to, from, world, part);
	free(all);
}
