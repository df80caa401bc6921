/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the time of steps that compute prompts and answers divides between them: an estimate between
 * two bounds. A step of one kind of rows is that kind's. In a mixed one answers take at least their
 * share of the FLOPs (products, attention to the keys before a row, logits of rows that make a
 * token), as if weights were read for nobody; and at most what a step of so many answers takes
 * alone in this run, as if prompts were computed beside it for nothing but the rest.
 */
#ifndef JM_SERVE_SPLIT_H
#define JM_SERVE_SPLIT_H

#include "serve_state.h"

#define JM_SERVE_TIMED_MOST 65536 /* steps that are kept; of longer runs a random sample */

/* Makes room for steps, where both kinds of rows are computed by one rank. */
int jm_serve_split_open(struct serve *s, struct jm_err *err);
void jm_serve_split_close(struct serve *s);
/* Adds the FLOPs of a piece to those of the step. */
void jm_serve_split_piece(
	const struct serve *s, const struct jm_piece *piece, struct jm_serve_flight *f);
/* What a row costs, of the graph that was planned. */
struct jm_serve_row_flops jm_serve_row_flops(const struct jm_graph *graph);
/* Keeps a step that ended at end_ns. */
void jm_serve_split_step(
	struct serve *s, const struct jm_serve_flight *f, int64_t end_ns, double seconds);
/* "split" of "serving": of the steps in the window. Null without one, where all steps computed rows
 * of one kind, none computed answers alone, or several ranks served. */
json_t *jm_serve_split_json(const struct serve *s);

#endif
