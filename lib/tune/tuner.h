/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tunes a knob, or two, while work runs: holds each setting of a search (search.h) for a window,
 * with energy from a session and items from whoever sees them, and the best one afterwards.
 *
 *	jm_tuner_new		takes hold of the knob: another holder is an error before the work
 *				begins
 *	jm_tuner_progress	items so far, from any thread
 *	jm_tuner_step		does what is due; from one thread, until the work ends
 *	jm_tuner_end		the work has ended; the caller then stops the guard, which restores
 *				what was found
 *	jm_tuner_json		the key "tune" of a record, or "budget" where there is one
 *
 * A window begins and ends with a report of progress, so that no part of an item is in it, after
 * the knob and the sensors have settled. Its energy is the sum over the topmost meters of one
 * origin, the measured ones where there are any.
 */
#ifndef JM_TUNER_H
#define JM_TUNER_H

#include <jansson.h>

#include "budget.h"
#include "guard/guard.h"
#include "measure/session/session.h"
#include "search.h"

enum jm_tune_progress { JM_TUNE_ITEMS, JM_TUNE_GPU };
extern const char *const jm_tune_progress_names[]; /* "items", "gpu", NULL */

struct jm_tuner_options {
	struct jm_ctx *ctx;
	struct jm_session *session;
	struct jm_guard *guard;
	/* as jm_tuned_knob_open reads them; NULL after the last */
	const char *knob[JM_TUNE_KNOBS + 1];
	struct jm_objective objective;
	/* JM_TUNE_GPU: there are no reports of items; a billion cycles of busy GPUs stand for them,
	 * which is an estimate: work that waits for memory does less in them than it seems to. */
	enum jm_tune_progress progress;
	double window_s, within_s; /* of a visit at least; of a search */
	/* W: the knob is a power limit, and the limits of its devices together are never above
	 * this; there is no objective but the rate of items. 0 = no budget */
	double budget_watts;
	enum jm_share share; /* of the budget */
};

struct jm_tuner;

/* The session is open; the guard is alive, and no other thread uses it until jm_tuner_end. */
int jm_tuner_new(const struct jm_tuner_options *options, struct jm_tuner **ret, struct jm_err *err);
void jm_tuner_free(struct jm_tuner *t); /* takes NULL */
/* items: so many in all until t_ns of the clock, which was when they were done; NAN = unknown */
void jm_tuner_progress(struct jm_tuner *t, int64_t t_ns, double items);
/* Returns when it wants to be called again, on the clock. */
int64_t jm_tuner_step(struct jm_tuner *t);
void jm_tuner_end(struct jm_tuner *t);

#endif
