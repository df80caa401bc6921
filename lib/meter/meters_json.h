/* SPDX-License-Identifier: Apache-2.0 */
/* Meters and signals as JSON and back: the chunks of a stored trace refer to them. */
#ifndef JM_METERS_JSON_H
#define JM_METERS_JSON_H

#include <jansson.h>

#include "meter/meter.h"

/* [{id, label, device, source, scope, origin, covers, signals[{quantity, step, wrap, refresh_ns,
 * window_ns, accuracy, stamped}]}]; the caller owns it; NULL when out of memory. */
json_t *jm_meters_to_json(const struct jm_meters *set);
/* Fills an empty set. */
int jm_meters_from_json(const json_t *json, struct jm_meters *ret, struct jm_err *err);

#endif
