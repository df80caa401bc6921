/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readings of sensors under a load with known start and end times, and the properties fitted to
 * them. Both are one JSON object, which can be stored and evaluated again on another machine:
 *
 *	{version, at, device, workload, edges_s: [when the load begins, ends, begins again...],
 *	 signals: [{meter, label, driver, quantity, origin, declared: {refresh_s, window_s},
 *		changes: [[s, value], ...],
 *		fit: {refresh_s, window_s, delay_s, rise_s, fall_s, each with ..._error_s,
 *		low_watts, high_watts, rms_watts, changes}, why: what could not be determined, or
 *		null}]}
 *
 * See energy/sensor_fit.h for the model. Times are seconds since the observation began.
 */
#ifndef JM_CALIBRATION_H
#define JM_CALIBRATION_H

#include <jansson.h>

#include "run/workload.h"

struct jm_calibrate {
	const char *const *sources; /* NULL-terminated; NULL = all that open */
	const char *device;	    /* what the load runs on: "cuda:0", "cpu", "sim:h100x4" */
	const char *workload;
	const char *precision; /* NULL = the workload's own */
	double seconds;	       /* of loads and pauses */
	int64_t interval_ns;   /* between readings */
	uint64_t seed;	       /* of the lengths of loads and pauses */
};

/* Runs the load and reads the sensors; the caller owns *ret. JM_EINTR: the user ended it. */
int jm_calibrate_observe(
	struct jm_ctx *ctx, const struct jm_calibrate *how, json_t **ret, struct jm_err *err);

#endif
