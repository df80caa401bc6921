/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A case: one point of a plan, known by a hash of its parameters.
 *
 * Parameters (JSON, without anything that names a machine):
 *	workload, options{}, device, precision    or    command[], throughput{}
 *	settings{[phase/]knob[@device]: "300W" | "default" | "as found"}, warmup, steps, seconds
 */
#ifndef JM_CASE_ID_H
#define JM_CASE_ID_H

#include "joulemark.h"
#include "base/text/json.h"

#define JM_CASE_ID  33 /* 32 hexadecimal digits and the end */
#define JM_AS_FOUND "as found"

/* XXH3-128 over the canonical JSON (sorted keys, no blanks). The same everywhere and always. */
int jm_json_hash(const json_t *json, char ret_id[JM_CASE_ID], struct jm_err *err);

#define JM_PHASE_NAME 64 /* bytes of a phase's name that a setting may have, with the end */

/* "gpu.power" of a setting "decode/gpu.power=300W", and into ret_phase "decode", or "" where it has
 * none; ret_phase may be NULL. A phase that is too long is cut. */
const char *jm_case_knob(const char *setting, char *ret_phase, size_t size);

/* Is the device of a case, or a part of it, that of a simulated node: "sim:h100x4"? NULL is
 * none. */
bool jm_case_simulated(const char *device);

#endif
