/* SPDX-License-Identifier: Apache-2.0 */
/* The knobs of a plan as they are found. */
#ifndef JM_SWEEP_FOUND_H
#define JM_SWEEP_FOUND_H

#include <jansson.h>
#include "guard/guard.h"

/* [{knob, device, unit, value: "300W"}] of all knobs that the settings of `what` name, as they are
 * now, or will be when a killed run's guard is done: a plan's "found". */
int jm_run_found(struct jm_ctx *ctx, struct jm_guard *guard, const json_t *what, json_t **ret_found,
	struct jm_err *err);

#endif
