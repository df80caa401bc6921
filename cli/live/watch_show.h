/* SPDX-License-Identifier: Apache-2.0 */
/* One line, or one set of rows, of `watch`: text, CSV, CSV with a column for each meter, or
 * JSON. */
#ifndef JM_WATCH_SHOW_H
#define JM_WATCH_SHOW_H

#include "measure/view/live.h"
#include "watch_extra.h"

#include <stdio.h>

enum jm_watch_format { JM_WATCH_TEXT, JM_WATCH_CSV, JM_WATCH_CSV_WIDE, JM_WATCH_JSON };

struct jm_watch_show {
	enum jm_watch_format format;
	int width;	  /* columns of the text */
	bool repeat_head; /* the head of the text again after some lines: it has left the screen */
	const struct jm_meters *set;
	const struct jm_live *live;
	struct jm_session *session;
	const struct jm_watch_extra *extra[JM_WATCH_EXTRAS];
	int n_extra;
	int64_t start_ns;    /* the clock when it began */
	int64_t interval_ns; /* below 1 s: text has tenths of a second */
	long lines;	     /* written so far */
};

/* The values of the view at this wall-clock time; with a head line where one is due. */
void jm_watch_put(struct jm_watch_show *show, FILE *out, int64_t wall_ns, int64_t t_ns);

#endif
