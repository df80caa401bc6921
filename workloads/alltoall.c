/* SPDX-License-Identifier: Apache-2.0 */
/* alltoall: each rank gets a part of what every rank has. */
#include "workloads/parts/transfer_run.h"

static int alltoall_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_transfer_setup(work, JM_ALL_TO_ALL, ret_state, err);
}

const struct jm_workload jm_workload_alltoall = {
	.name = "alltoall",
	.summary = "transfers between ranks: each rank gets a part of what every rank has",
	.unit = "GB",
	.options = jm_transfer_options,
	.no_precision = true,
	.check = jm_transfer_check,
	.setup = alltoall_setup,
	.step = jm_transfer_step,
	.agree = jm_transfer_agree,
	.verify = jm_transfer_verify,
	.teardown = jm_transfer_teardown,
};
