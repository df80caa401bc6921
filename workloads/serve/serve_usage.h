/* SPDX-License-Identifier: Apache-2.0 */
/* How full the steps of serve were. */
#ifndef JM_SERVE_USAGE_H
#define JM_SERVE_USAGE_H

#include "serve_state.h"

/* Counts a step that began at begin_ns and is done, before the scheduler completes it. rows: without padding. */
void jm_serve_note_step(struct serve *s, int64_t begin_ns, int pieces, int64_t rows);
/* Adds "mean_running", "padding" and "cache_use" to an object. */
void jm_serve_add_usage(const struct serve *s, json_t *to);

#endif
