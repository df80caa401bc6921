/* SPDX-License-Identifier: Apache-2.0 */
/* What a control can set on this machine, or why it cannot. */
#ifndef JM_CONTROL_DOCTOR_H
#define JM_CONTROL_DOCTOR_H

#include "guard/control.h"

void jm_control_doctor(
	const struct jm_control *control, struct jm_ctx *ctx, jm_finding_fn *say, void *arg);

#endif
