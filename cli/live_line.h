/* SPDX-License-Identifier: Apache-2.0 */
/* A line on the terminal that is drawn again while something is measured: time, watts and joules so far. */
#ifndef JM_LIVE_LINE_H
#define JM_LIVE_LINE_H

#include "base/ctx.h"
#include "cli.h"
#include "measure/live.h"

struct jm_live_line {
	struct jm_session *session;
	struct jm_live
		*live; /* NULL = standard error is no terminal, or --quiet: nothing is drawn */
	int64_t start_ns;
	const struct jm_ctx *ctx;
	int width;
};

/* Of a session that has started. */
int jm_live_line_open(struct jm_live_line *line, struct jm_cli *cli, struct jm_session *s);
/* Draws it; arg: the line. */
void jm_live_line_draw(void *arg);
/* Removes it from the screen. */
void jm_live_line_close(struct jm_live_line *line);
/* "312.4 W 3.75 kJ measured, ...": the sums of the view, of each origin that it has. */
void jm_live_text(const struct jm_live *live, char *out, size_t size);

#endif
