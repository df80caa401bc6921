/* SPDX-License-Identifier: Apache-2.0 */
/* A program's profile as JSON, for the record. */
#ifndef JM_PROFILE_JSON_H
#define JM_PROFILE_JSON_H

#include <jansson.h>

#include "engine/run/program.h"

/* {step_s, peak_flops_per_s, peak_bytes_per_s, kinds[], nodes[]}; NULL = out of memory. Both lists:
 * {name, calls, seconds, share, flops_per_s, bytes_per_s, roofline}, all per step; unknown =
 * null. */
json_t *jm_profile_json(const struct jm_program *p);

#endif
