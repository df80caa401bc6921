/* SPDX-License-Identifier: Apache-2.0 */
/* A tuner beside a command that `measure` runs: its guard, its thread, its part of the record. */
#ifndef JM_TUNE_RUN_H
#define JM_TUNE_RUN_H

#include <pthread.h>

#include "base/clock.h"
#include "cli/frame/cli.h"
#include "measure/session/progress.h"
#include "tune/phase_tuner.h"
#include "tune/tuner.h"

struct jm_tune_run {
	/* options */
	char *const *knobs; /* NULL-terminated; NULL = gpu.power */
	const char *objective, *control;
	char *const *found;
	const char *probe_load; /* see jm_probe_state */
	enum jm_tune_progress progress;
	double window_s, within_s;
	double budget_watts; /* NAN = none */
	enum jm_share share;
	bool per_phase;
	char *const *classes; /* PHASE=CLASS, NULL-terminated */
	const char *policy;   /* the file that is written; NULL = none */
	/* while it runs */
	struct jm_guard *guard;
	struct jm_tuner *tuner;
	struct jm_phase_tuner *phases; /* in place of it, with per_phase */
	struct jm_sleeper sleeper;
	pthread_t thread;
	bool running, ending;
	pthread_mutex_t lock; /* of ending */
	char what[60];
	json_t *json; /* the key of the record that jm_tune_key names; NULL until the end */
};

/* Takes hold of the knobs. device: of --device, NULL = this machine. */
int jm_tune_open(
	struct jm_tune_run *r, struct jm_cli *cli, const char *device, struct jm_session *session);
/* From here to jm_tune_end a thread of its own measures and sets. */
int jm_tune_begin(struct jm_tune_run *r, struct jm_cli *cli);
void jm_tune_progress(void *run, int64_t t_ns, double items);
void jm_tune_mark(void *run, const struct jm_mark *mark);
void jm_tune_end(struct jm_tune_run *r, struct jm_cli *cli);
/* What a store has as the difference of this case: the objective, or "budget 2400 W, equal". */
const char *jm_tune_what(struct jm_tune_run *r);
/* "tune", "policy" or "budget" */
const char *jm_tune_key(const struct jm_tune_run *r);
/* Restores what was found. */
int jm_tune_close(struct jm_tune_run *r, struct jm_err *err);

#endif
