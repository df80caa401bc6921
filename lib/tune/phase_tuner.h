/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tunes a knob per class of phases while work runs that marks its phases: at the begin of each
 * phase it sets the value that the search (phase_search.h) wants for it, and tells the search what
 * energy and time the phase took.
 *
 *	jm_phase_tuner_new	takes hold of the knob
 *	jm_phase_tuner_mark	a phase begins, or items of it are done; from any thread
 *	jm_phase_tuner_step	does what is due; from one thread, until the work ends
 *	jm_phase_tuner_end	the work has ended; the caller then stops the guard, which restores
 *				what was found
 *	jm_phase_tuner_json	the key "policy" of a record (phase_tuner_json.h)
 *
 * A phase is measured from its mark to the next one: the change of the knob is in it, since it is a
 * part of what switching costs.
 */
#ifndef JM_PHASE_TUNER_H
#define JM_PHASE_TUNER_H

#include "guard/guard.h"
#include "measure/session/session.h"
#include "phase_search.h"

struct jm_phase_tuner_options {
	struct jm_ctx *ctx;
	struct jm_session *session;
	struct jm_guard *guard;
	const char *knob;     /* as jm_tuned_knob_open reads it */
	char *const *classes; /* "PHASE=CLASS", NULL-terminated; NULL = none */
	struct jm_objective objective;
	double within_s;
};

struct jm_phase_tuner;

int jm_phase_tuner_new(const struct jm_phase_tuner_options *options, struct jm_phase_tuner **ret,
	struct jm_err *err);
void jm_phase_tuner_free(struct jm_phase_tuner *t); /* takes NULL */
/* The stretch before t_ns did so many items (NAN = unknown), and from then on it is `name`. */
void jm_phase_tuner_mark(struct jm_phase_tuner *t, const char *name, int64_t t_ns, double items);
/* Returns when it wants to be called again, on the clock. */
int64_t jm_phase_tuner_step(struct jm_phase_tuner *t);
void jm_phase_tuner_end(struct jm_phase_tuner *t);

#endif
