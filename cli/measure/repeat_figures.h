/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of repeated runs: of each run, of each command, and of each command by the first. */
#ifndef JM_REPEAT_FIGURES_H
#define JM_REPEAT_FIGURES_H

#include "measure_repeat.h"

#include <jansson.h>

/* After the session's stop: the record's `repeats`. An energy that cannot be computed is null, with
 * a warning. NULL: an error. */
json_t *jm_measure_repeat_json(const struct jm_measure_repeat *r, struct jm_ctx *ctx,
	struct jm_session *s, struct jm_err *err);

#endif
