/* SPDX-License-Identifier: Apache-2.0 */
/* reducescatter: each rank gets its part of the sum of what all ranks have. */
#include "workloads/parts/transfer_run.h"

static int reducescatter_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_transfer_setup(work, JM_REDUCE_SCATTER, ret_state, err);
}

const struct jm_workload jm_workload_reducescatter = {
	.name = "reducescatter",
	.summary = "transfers between ranks: each rank gets a part of the sum",
	.unit = "GB",
	.options = jm_transfer_options,
	.no_precision = true,
	.check = jm_transfer_check,
	.setup = reducescatter_setup,
	.step = jm_transfer_step,
	.agree = jm_transfer_agree,
	.verify = jm_transfer_verify,
	.teardown = jm_transfer_teardown,
};
