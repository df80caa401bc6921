/* SPDX-License-Identifier: Apache-2.0 */
/* A tuner, for tuner.c and what makes its record. */
#ifndef JM_TUNER_PRIVATE_H
#define JM_TUNER_PRIVATE_H

#include <pthread.h>

#include "tuned_budget.h"
#include "tuned_energy.h"
#include "tuned_knob.h"
#include "tuner.h"

enum jm__tuner_state {
	JM__SETTLING, /* until due_ns */
	JM__STARTING, /* the window begins with the next report of progress */
	JM__WINDOW,   /* and ends with one after its length */
	JM__READING,  /* sensors report the end of the window until due_ns */
	JM__STOPPED,
};

/* Of a visit of the search. */
struct jm__tuner_window {
	int64_t t0_ns, t1_ns;
	double items0, items1;
};

struct jm_tuner {
	struct jm_tuner_options o;
	struct jm_tuned_knob knob[JM_TUNE_KNOBS];
	int n_knobs;
	struct jm_search *search; /* NULL = there is a budget */
	struct jm_tuned_budget budget;
	enum jm__tuner_state state;
	struct jm_tuned_energy energy;
	int64_t settle_ns;
	int64_t began_ns, due_ns,
		left_ns; /* left_ns: the end of the last visit, from which the next one counts */
	struct jm__tuner_window window;
	struct jm_tune_setting setting; /* in force */
	int phase;			/* of the session: search or hold; -1 = none */
	bool holds;
	int lost, lost_in_row, moved;
	bool warm;			       /* the work runs evenly */
	double warm_s, warm_energy, warm_time; /* of windows before; per item in the last of them */
	bool waited;			       /* that there are no items was said */
	int64_t *start_ns;		       /* of each visit of the search */
	int n_start;
	double saved, saved_half; /* J, while a better setting was held */
	char stopped[400];	  /* "" = it did not */
	/* of JM_TUNE_GPU */
	int64_t looked_ns;
	double cycles;

	pthread_mutex_t lock; /* of the following */
	int64_t items_ns;
	double items;
};

#endif
