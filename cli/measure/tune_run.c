/* SPDX-License-Identifier: Apache-2.0 */
#include "tune_run.h"
#include "guard/guard_requests.h"
#include "base/process/quiet_thread.h"

#include "cli/frame/interrupts.h"
#include "cli/settings/hold.h"
#include "cli/settings/probe.h"
#include "tune/phase_tuner_json.h"
#include "tune/tuner.h"
#include "tune/tuner_json.h"

#include <stdio.h>
#include <string.h>

static int open_phases(struct jm_tune_run *r, struct jm_cli *cli, const char *knob,
	struct jm_objective objective, struct jm_session *session)
{
	struct jm_phase_tuner_options o = {
		.ctx = &cli->ctx,
		.session = session,
		.guard = r->guard,
		.knob = knob,
		.classes = r->classes,
		.objective = objective,
		.within_s = r->within_s,
	};

	return jm_phase_tuner_new(&o, &r->phases, &cli->err);
}

int jm_tune_open(
	struct jm_tune_run *r, struct jm_cli *cli, const char *device, struct jm_session *session)
{
	struct jm_tuner_options o = {
		.ctx = &cli->ctx,
		.session = session,
		.progress = r->progress,
		.window_s = r->window_s,
		.within_s = r->within_s,
		.budget_watts = r->budget_watts > 0 ? r->budget_watts : 0,
		.share = r->share,
	};
	int rc = jm_objective_parse(r->objective, &o.objective, &cli->err);

	o.knob[0] = "gpu.power";
	for (int k = 0; k < JM_TUNE_KNOBS && r->knobs && r->knobs[k]; k++)
		o.knob[k] = r->knobs[k];

	jm_count_interrupts(&cli->ctx, -1);
	if (!rc)
		rc = jm_hold_guard(cli, device, r->control, &r->guard);
	for (int k = 0; k < JM_TUNE_KNOBS && o.knob[k] && !rc; k++)
		jm_guard_seek(r->guard, o.knob[k]);
	if (!rc)
		rc = jm_probe_state(cli, r->guard, r->found, r->probe_load, &cli->err);
	o.guard = r->guard;
	if (!rc && r->per_phase)
		rc = open_phases(r, cli, o.knob[0], o.objective, session);
	else if (!rc)
		rc = jm_tuner_new(&o, &r->tuner, &cli->err);
	if (!rc && jm_last_interrupt())
		rc = jm_err_set(&cli->err, JM_EINTR, "Interrupted; the command was not started.");
	return rc;
}

/* ---- the thread ---- */

static bool is_ending(struct jm_tune_run *r)
{
	bool ending;

	pthread_mutex_lock(&r->lock);
	ending = r->ending;
	pthread_mutex_unlock(&r->lock);
	return ending;
}

static void *tune_main(void *arg)
{
	struct jm_tune_run *r = arg;

	while (!is_ending(r))
		jm_sleep_until(&r->sleeper,
			r->phases ? jm_phase_tuner_step(r->phases) : jm_tuner_step(r->tuner));
	return NULL;
}

/* Signals are for the thread that passes them on to the command. */
int jm_tune_begin(struct jm_tune_run *r, struct jm_cli *cli)
{
	int rc;

	pthread_mutex_init(&r->lock, NULL);
	jm_sleeper_init(&r->sleeper, cli->ctx.clock);
	rc = jm_quiet_thread(&r->thread, tune_main, r);
	if (rc)
		return jm_err_set(&cli->err, JM_ENOMEM, "Cannot start the thread of the tuner: %s.",
			strerror(rc));
	r->running = true;
	return 0;
}

void jm_tune_progress(void *run, int64_t t_ns, double items)
{
	struct jm_tune_run *r = run;

	if (r->tuner && r->progress == JM_TUNE_ITEMS)
		jm_tuner_progress(r->tuner, t_ns, items);
}

/* A phase gets its value as soon as its mark has been read. */
void jm_tune_mark(void *run, const struct jm_mark *mark)
{
	struct jm_tune_run *r = run;

	if (!r->phases)
		return;
	jm_phase_tuner_mark(r->phases, mark->name, mark->t_ns, mark->items);
	jm_sleeper_wake(&r->sleeper);
}

/* The key of the record. */
static json_t *made_json(struct jm_tune_run *r)
{
	if (r->phases)
		return jm_phase_tuner_json(r->phases);
	return r->budget_watts > 0 ? jm_tuner_budget_json(r->tuner) : jm_tuner_json(r->tuner);
}

void jm_tune_end(struct jm_tune_run *r, struct jm_cli *cli)
{
	if (!r->running)
		return;
	pthread_mutex_lock(&r->lock);
	r->ending = true;
	pthread_mutex_unlock(&r->lock);
	jm_sleeper_wake(&r->sleeper);
	pthread_join(r->thread, NULL);
	r->running = false;
	jm_sleeper_done(&r->sleeper);
	pthread_mutex_destroy(&r->lock);
	if (r->phases)
		jm_phase_tuner_end(r->phases);
	else
		jm_tuner_end(r->tuner);
	r->json = made_json(r);
	if (!r->json)
		jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the record of the tuner.");
}

const char *jm_tune_what(struct jm_tune_run *r)
{
	if (r->per_phase) {
		snprintf(r->what, sizeof(r->what), "per phase, %.40s", r->objective);
		return r->what;
	}
	if (!(r->budget_watts > 0))
		return r->objective;
	snprintf(r->what, sizeof(r->what), "budget %g W, %s", r->budget_watts,
		jm_share_names[r->share]);
	return r->what;
}

const char *jm_tune_key(const struct jm_tune_run *r)
{
	if (r->per_phase)
		return "policy";
	return r->budget_watts > 0 ? "budget" : "tune";
}

int jm_tune_close(struct jm_tune_run *r, struct jm_err *err)
{
	int rc;

	jm_tuner_free(r->tuner);
	r->tuner = NULL;
	jm_phase_tuner_free(r->phases);
	r->phases = NULL;
	rc = jm_guard_stop(r->guard, err);
	r->guard = NULL;
	return rc;
}
