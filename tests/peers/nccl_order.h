/* SPDX-License-Identifier: Apache-2.0 */
/* JM_FAKE_NCCL_ORDER=own of nccl_fake.c. */
#ifndef JM_FAKE_NCCL_ORDER_H
#define JM_FAKE_NCCL_ORDER_H

#include "comm/comm.h"

bool jm_fake_has_own_order(const struct jm_transfer *t);
/* An all-reduce or a reduce-scatter on a stream of backend_later.c. local: of transport local. */
void jm_fake_sum_in_own_order(void *local, int rank, int world, const struct jm_transfer *t);

#endif
