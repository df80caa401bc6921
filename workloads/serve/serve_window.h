/* SPDX-License-Identifier: Apache-2.0 */
/* The steady part of a run of serve, and how full its steps were. */
#ifndef JM_SERVE_WINDOW_H
#define JM_SERVE_WINDOW_H

#include "serve.h"

/* Counts a step that began at begin_ns and is done, before the scheduler completes it. rows: without padding. */
void jm_serve_note_step(struct serve *s, int64_t begin_ns, int pieces, int64_t rows);
/*
 * Sets work->window. all, closed: from the time when --running requests have had their first token, to the time when all but
 * --running + 1 of those that arrived are done (ML.ENERGY, mlenergy/benchmark/llm/benchmark.py), or the last token
 * of all if that never was. Others: the arrivals from the 10th to the 90th percentile. What is before the measured steps is cut
 * off. False: there is none, and nothing is changed.
 */
bool jm_serve_find_window(struct serve *s);
/* Adds "mean_running", "padding", "cache_use" and "window" to an object. */
void jm_serve_add_window(const struct serve *s, json_t *to);

#endif
