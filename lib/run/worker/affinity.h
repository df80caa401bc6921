/* SPDX-License-Identifier: Apache-2.0 */
/* Who knows where the ranks of this host, and the threads that read its sensors, are to run. */
#ifndef JM_AFFINITY_H
#define JM_AFFINITY_H

#include <jansson.h>

#include "joulemark.h"

/* The record's key "affinity". NULL without an error: nothing is to be bound, nor recorded. gang:
 * as in launcher.h; NULL = all ranks run on this host. */
typedef json_t *jm_affinity_fn(const json_t *parameters, const json_t *gang, struct jm_err *err);

#endif
