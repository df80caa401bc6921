/* SPDX-License-Identifier: Apache-2.0 */
/* A table of keys as people and other programs read it. */
#ifndef JM_KEYS_SCHEMA_H
#define JM_KEYS_SCHEMA_H

#include "keys.h"

/* The table as JSON Schema, draft 7; NULL when out of memory. */
json_t *jm_keys_schema(const struct jm_key *keys);
/* "number or null" */
void jm_keys_type_text(const struct jm_key *key, char *out, size_t size);

#endif
