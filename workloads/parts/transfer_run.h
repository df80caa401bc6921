/* SPDX-License-Identifier: Apache-2.0 */
/* What workloads share that exchange memory of devices between ranks, and nothing else: allreduce,
 * allgather and so on. */
#ifndef JM_TRANSFER_RUN_H
#define JM_TRANSFER_RUN_H

#include "comm/comm.h"
#include "run/workload.h"

extern const struct jm_option jm_transfer_options[];

int jm_transfer_check(const char *device, const char *precision, struct jm_err *err);
int jm_transfer_setup(
	struct jm_work *work, enum jm_transfer_kind kind, void **ret_state, struct jm_err *err);
int jm_transfer_step(void *state, struct jm_step *ret, struct jm_err *err);
int jm_transfer_agree(void *state, void *value, size_t bytes, struct jm_err *err);
int jm_transfer_verify(void *state, struct jm_err *err);
void jm_transfer_teardown(void *state); /* takes NULL */

#endif
