/* SPDX-License-Identifier: Apache-2.0 */
/* What `measure` shows while it measures: a line on the terminal that is drawn again (time, watts,
 * joules so far, items a second, joules of an item, time left of --for), and the figures that
 * `joulemark status` shows in another terminal. */
#ifndef JM_LIVE_LINE_H
#define JM_LIVE_LINE_H

#include "base/ctx.h"
#include "cli/frame/cli.h"
#include "measure/view/live.h"
#include "measure/command/work_status.h"

struct jm_live_line {
	struct jm_session *session;
	const char *store; /* NULL = none */
	const char *unit;  /* of an item */
	char work[200];
	bool draws;	      /* standard error is a terminal that the line may use */
	struct jm_live *live; /* NULL = not before the first tick */
	struct jm_work_writer *writer;
	int64_t start_ns;
	double for_s; /* NAN = until the command or process ends, or Ctrl-C */
	const struct jm_ctx *ctx;
	int width;
};

/* Of a session that has started, until Ctrl-C; unit: of an item, NULL = item. What is measured is
 * to be put into `work`, store and length into their fields. Costs nothing before the first
 * tick. */
void jm_live_line_open(
	struct jm_live_line *line, struct jm_cli *cli, struct jm_session *s, const char *unit);
/* Draws it; arg: the line. */
void jm_live_line_draw(void *arg);
/* The same with the items done so far (NAN = unknown) in this time. */
void jm_live_line_tick(void *arg, double items, double seconds);
/* Removes it from the screen. */
void jm_live_line_close(struct jm_live_line *line);

#endif
