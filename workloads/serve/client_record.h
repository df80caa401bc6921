/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of serve-client records. */
#ifndef JM_CLIENT_RECORD_H
#define JM_CLIENT_RECORD_H

#include "client_state.h"

/* "serving" of the record. */
json_t *jm_client_json(const struct jm_client *c);
/* Adds what the user must know of answers, sentence by sentence, while there is room. */
void jm_client_note(const struct jm_client *c, char *out, size_t size);

#endif
