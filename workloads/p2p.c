/* SPDX-License-Identifier: Apache-2.0 */
/* p2p: each rank sends to the next one. */
#include "workloads/parts/transfer_run.h"

static int p2p_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_transfer_setup(work, JM_SEND_RECEIVE, ret_state, err);
}

const struct jm_workload jm_workload_p2p = {
	.name = "p2p",
	.summary = "transfers between ranks: each rank sends to the next one",
	.unit = "GB",
	.options = jm_transfer_options,
	.no_precision = true,
	.check = jm_transfer_check,
	.setup = p2p_setup,
	.step = jm_transfer_step,
	.agree = jm_transfer_agree,
	.verify = jm_transfer_verify,
	.teardown = jm_transfer_teardown,
};
