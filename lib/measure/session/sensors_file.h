/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `joulemark calibrate` found out about the sensors of this machine, in sensors.json of the
 * state folder, and its use: how often a sensor changes, over how long it averages, and how late it
 * is. An entry counts for one signal of one meter with the driver that it was found with.
 */
#ifndef JM_SENSORS_FILE_H
#define JM_SENSORS_FILE_H

#include <jansson.h>

#include "meter/meter.h"

/*
 * Puts refresh and window of calibrated signals in place of the declared ones.
 * ret_delay_ns[n_signals]: what is to be taken off the times of each signal's readings; 0 where
 * nothing is known. Without such a file: nothing happens; a damaged one is reported as a warning
 * and not used.
 */
void jm_sensors_apply(struct jm_ctx *ctx, struct jm_meters *set, int64_t *ret_delay_ns);
/* Adds or replaces the entries of what was observed and fitted (run/calibration.h), where the
 * signal followed the load. Returns how many, or an error code. */
int jm_sensors_keep(struct jm_ctx *ctx, const json_t *observed, struct jm_err *err);
/* Removes all entries. */
int jm_sensors_forget(struct jm_ctx *ctx, struct jm_err *err);

#endif
