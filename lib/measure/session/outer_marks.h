/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of native work as marks for a joulemark that this one runs under: `joulemark tune --
 * joulemark run gpt-117m`. In real time alone; without such a joulemark nothing is sent. */
#ifndef JM_OUTER_MARKS_H
#define JM_OUTER_MARKS_H

#include "base/ctx.h"

struct jm_outer_marks {
	struct jm_ctx *ctx;
	struct jm_marker *marker; /* NULL = no process listens */
	char phase[64];
	double items; /* done since the last mark */
	int64_t sent_ns;
};

void jm_outer_marks_open(struct jm_outer_marks *o, struct jm_ctx *ctx);
void jm_outer_marks_phase(struct jm_outer_marks *o, const char *phase);
/* Items of the phase are done: they are sent at most 50 times a second. */
void jm_outer_marks_credit(struct jm_outer_marks *o, double items);
void jm_outer_marks_close(struct jm_outer_marks *o); /* sends the rest */

#endif
