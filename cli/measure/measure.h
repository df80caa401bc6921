/* SPDX-License-Identifier: Apache-2.0 */
/* What `measure` does, for `tune`. */
#ifndef JM_MEASURE_RUN_H
#define JM_MEASURE_RUN_H

#include "measure_options.h"

/* Measures as the fields that options fill say; returns the exit status. */
int jm_measure(struct measurement *m);

#endif
