/* SPDX-License-Identifier: Apache-2.0 */
/* How much is under way, and how full the steps of serve were. */
#ifndef JM_SERVE_USAGE_H
#define JM_SERVE_USAGE_H

#include "serve_state.h"

/* Requests that have arrived and whose last token is not known. */
int jm_serve_under_way(const struct serve *s);
/* Counts a step whose tokens were taken at taken_ns, after those of the one before it. Its time is
 * that from those if requests were under way, else from its launch. */
void jm_serve_note_step(struct serve *s, const struct jm_serve_flight *f, int64_t taken_ns);
/* Adds "mean_running", "padding", "cache_use", "cache_type" and "device_idle" to an object. */
void jm_serve_add_usage(const struct serve *s, json_t *to);

#endif
