/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `run`, besides those of the workload. */
#ifndef JM_RUN_OPTIONS_H
#define JM_RUN_OPTIONS_H

#include "run_parts.h"

/* ---- run_options.c ---- */

extern const struct jm_option jm_run_options[];

#endif
