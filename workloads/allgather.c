/* SPDX-License-Identifier: Apache-2.0 */
/* allgather: each rank gets what all ranks have. */
#include "workloads/parts/transfer_run.h"

static int allgather_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_transfer_setup(work, JM_ALL_GATHER, ret_state, err);
}

const struct jm_workload jm_workload_allgather = {
	.name = "allgather",
	.summary = "transfers between ranks: each rank gets what all ranks have",
	.unit = "GB",
	.options = jm_transfer_options,
	.no_precision = true,
	.check = jm_transfer_check,
	.setup = allgather_setup,
	.step = jm_transfer_step,
	.agree = jm_transfer_agree,
	.verify = jm_transfer_verify,
	.teardown = jm_transfer_teardown,
};
