/* SPDX-License-Identifier: Apache-2.0 */
/* What `top` shows, as lines of text: the sums, a row per device, and the work that runs. */
#ifndef JM_TOP_VIEW_H
#define JM_TOP_VIEW_H

#include "measure/command/running.h"
#include "measure/session/session.h"
#include "measure/command/work_status.h"

struct jm_top_view {
	const struct jm_meters *set;
	struct jm_session *session;
	struct jm_running *running;
	const struct jm_work_list *work;
	const char *message; /* the last warning; "" = none */
	int64_t wall_ns;
};

#define JM_TOP_HEAD 1 /* index of the line with the titles of the columns */

/* Lines of at most `width` columns, each ended by a newline, for the caller to free; NULL without memory. */
char *jm_top_text(const struct jm_top_view *view, int width);

#endif
