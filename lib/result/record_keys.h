/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a record's keys, and the check of records that come from a file or a store. */
#ifndef JM_RECORD_KEYS_H
#define JM_RECORD_KEYS_H

#include "base/text/keys.h"

#define JM_RECORD_SCHEMA "joulemark.run/1" /* of a record's key "schema" */

extern const struct jm_key jm_record_keys[];

/* See jm_keys_check. Missing keys are unknown; those that are there are of their type and range. */
int jm_record_check(const json_t *record, const char *what, struct jm_err *err);

#endif
