/* SPDX-License-Identifier: Apache-2.0 */
/* What `top` knows when it draws: the present, and the watts of the last updates. */
#ifndef JM_TOP_MODEL_H
#define JM_TOP_MODEL_H

#include "measure/command/running.h"
#include "measure/command/work_status.h"
#include "measure/session/session.h"
#include "measure/view/process_energy.h"

#define JM_TOP_HISTORY 256 /* updates */

/* Watts of each meter at the last updates, the newest last. */
struct jm_top_history {
	int n_meters;
	double (*watts)[JM_TOP_HISTORY]; /* NAN = unknown, or before the first update */
};

#define JM_TOP_SORTS(X)                                                                            \
	X(JOULES, "J") X(USE, "GPU") X(BYTES, "memory") X(PROCESSORS, "CPU") X(ID, "PID")
enum jm_top_sort {
#define X(name, text) JM_TOP_BY_##name,
	JM_TOP_SORTS(X)
#undef X
		JM_TOP_SORT_COUNT
};

struct jm_top_view {
	const struct jm_meters *set;
	struct jm_session *session;
	struct jm_running *running;
	const struct jm_top_history *history;
	const struct jm_work_list *work;
	const struct jm_process_energy *processes;
	enum jm_top_sort sort;
	const char *message; /* the last warning; "" = none */
	int64_t wall_ns, interval_ns;
	bool ascii; /* the terminal has no bars of other characters */
};

/* NAN for all. JM_ENOMEM. */
int jm_top_history_new(struct jm_top_history *h, int n_meters, struct jm_err *err);
void jm_top_history_take(struct jm_top_history *h, struct jm_running *running);
void jm_top_history_done(struct jm_top_history *h);

const char *jm_top_sort_name(enum jm_top_sort sort);

#endif
