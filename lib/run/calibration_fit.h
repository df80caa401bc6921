/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of sensors that fit their readings under a known load. */
#ifndef JM_CALIBRATION_FIT_H
#define JM_CALIBRATION_FIT_H

#include <jansson.h>

#include "joulemark.h"

/* Fills fit and why of each signal. JM_EFORMAT: it is no such object. */
int jm_calibrate_fit(json_t *observed, struct jm_err *err);

#endif
