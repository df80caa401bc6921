/* SPDX-License-Identifier: Apache-2.0 */
/* All transfers of a rank, in its gang and in groups, and whether their results are what
 * comm/comm.h says. */
#ifndef JM_TEST_TRANSFERS_H
#define JM_TEST_TRANSFERS_H

#include "comm/comm.h"
#include "engine/device/device.h"

struct transfer_rank {
	const char *transport;
	struct jm_comm_place place;
	const struct jm_device *device; /* NULL = the transport is of the host's memory */
	size_t n;
	int rc;
	struct jm_err err;
	float *sum, *all, *part, *told, *swapped, *passed, *sent;
	bool group_is_right;
};

/* One piece of memory for all results, zeroed: `sum`, which the caller frees. */
void transfers_make_room(struct transfer_rank *r);
/* Of n elements. */
int transfers_run(struct transfer_rank *r, struct jm_comm *c);
bool transfers_are_right(const struct transfer_rank *r);

#endif
