/* SPDX-License-Identifier: Apache-2.0 */
/* broadcast: each rank gets what rank 0 has. */
#include "workloads/parts/transfer_run.h"

static int broadcast_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_transfer_setup(work, JM_BROADCAST, ret_state, err);
}

const struct jm_workload jm_workload_broadcast = {
	.name = "broadcast",
	.summary = "transfers between ranks: each rank gets what rank 0 has",
	.unit = "GB",
	.options = jm_transfer_options,
	.no_precision = true,
	.check = jm_transfer_check,
	.setup = broadcast_setup,
	.step = jm_transfer_step,
	.agree = jm_transfer_agree,
	.verify = jm_transfer_verify,
	.teardown = jm_transfer_teardown,
};
