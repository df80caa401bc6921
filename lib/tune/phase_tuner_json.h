/* SPDX-License-Identifier: Apache-2.0 */
/* What a tuner of phases did, for the record. Part of phase_tuner.h. */
#ifndef JM_PHASE_TUNER_JSON_H
#define JM_PHASE_TUNER_JSON_H

#include <jansson.h>

#include "phase_tuner.h"

/* The key "policy"; NULL: memory ran out. */
json_t *jm_phase_tuner_json(const struct jm_phase_tuner *t);

#endif
