/* SPDX-License-Identifier: Apache-2.0 */
/* allreduce: each rank gets the sum of what all ranks have. */
#include "workloads/parts/transfer_run.h"

static int allreduce_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_transfer_setup(work, JM_ALL_REDUCE, ret_state, err);
}

const struct jm_workload jm_workload_allreduce = {
	.name = "allreduce",
	.summary = "transfers between ranks: each rank gets the sum of what all ranks have",
	.unit = "GB",
	.options = jm_transfer_options,
	.no_precision = true,
	.check = jm_transfer_check,
	.setup = allreduce_setup,
	.step = jm_transfer_step,
	.agree = jm_transfer_agree,
	.verify = jm_transfer_verify,
	.teardown = jm_transfer_teardown,
};
