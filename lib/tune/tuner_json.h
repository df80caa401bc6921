/* SPDX-License-Identifier: Apache-2.0 */
/* What a tuner did, for a record. */
#ifndef JM_TUNER_JSON_H
#define JM_TUNER_JSON_H

#include <jansson.h>
#include "tuner.h"

/* The caller owns the value; NULL: no memory. */
json_t *jm_tuner_json(const struct jm_tuner *t);
json_t *jm_tuner_budget_json(const struct jm_tuner *t); /* the same, with a budget */

#endif
