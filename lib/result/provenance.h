/* SPDX-License-Identifier: Apache-2.0 */
/* Where a figure comes from: program, machine, devices, drivers, libraries. No names of users. */
#ifndef JM_PROVENANCE_H
#define JM_PROVENANCE_H

#include <jansson.h>

#include "meter/meter.h"

/*
 * {joulemark, host, kernel, cpu, cores, memory_bytes, os, boot_id, devices[] {id, name, source},
 * drivers{module: version}, libraries{file: version}}; unknown is null. meters: whose devices are
 * listed; may be NULL. Call it while the libraries are loaded. The caller owns the value.
 */
json_t *jm_provenance(const struct jm_ctx *ctx, const struct jm_meters *meters, struct jm_err *err);

#endif
