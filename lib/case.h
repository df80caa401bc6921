/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A case: one point of a plan, known by a hash of its parameters.
 *
 * Parameters (JSON, without anything that names a machine):
 *	workload, options{}, device, precision    or    command[], throughput{}
 *	settings{knob[@device]: "300W" | "default" | "as found"}, warmup, steps, seconds
 */
#ifndef JM_CASE_H
#define JM_CASE_H

#include <jansson.h>

#include "joulemark.h"

#define JM_CASE_ID  33 /* 32 hexadecimal digits and the end */
#define JM_AS_FOUND "as found"

/* XXH3-128 over the canonical JSON (sorted keys, no blanks). The same everywhere and always. */
int jm_json_hash(const json_t *json, char ret_id[JM_CASE_ID], struct jm_err *err);
/* null for NAN and infinities: unknown is null. */
json_t *jm_json_number(double value);
/* NAN unless it is a number. */
double jm_json_real(const json_t *json);

#endif
