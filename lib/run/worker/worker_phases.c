/* SPDX-License-Identifier: Apache-2.0 */
/* Phases of the work in a worker, and how far it is. */
#include "worker_phases.h"
#include "run/gang/frame.h"
#include "measure/session/session.h"
#include "run/plan/case_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PROGRESS_NS   (JM_SECOND / 5) /* between messages, on the machine's clock */
#define MAX_SETTLE_NS (2 * JM_SECOND)

int jm__worker_begin(struct jm__worker *w, const char *phase, struct jm_err *err)
{
	jm_outer_marks_phase(&w->outer, phase);
	return jm_session_begin(w->session, phase, jm_ctx_now(w->ctx), err);
}

void jm__worker_credit(struct jm__worker *w, int phase, double items)
{
	jm_session_credit(w->session, phase, items);
	jm_outer_marks_credit(&w->outer, items);
}

void jm__worker_end(struct jm__worker *w, int phase)
{
	if (phase >= 0)
		jm_session_end(w->session, phase, jm_ctx_now(w->ctx));
}

double jm__worker_seconds_since(const struct jm__worker *w, int64_t t0)
{
	return (double)(jm_ctx_now(w->ctx) - t0) / 1e9;
}

/* The value of the most significant origin that is known. */
static void look_at_watts(struct jm__worker *w, struct jm_frame_progress *p)
{
	p->watts = NAN;
	if (!w->live && jm_live_new(w->session, jm_ctx_now(w->ctx), &w->live, NULL))
		return;
	if (jm_live_step(w->live, NULL))
		return;
	for (int i = 0; i < JM_ORIGIN_COUNT && isnan(p->watts); i++) {
		p->watts = jm_live_total(w->live, jm_origin_order[i]).watts;
		p->origin = jm_origin_order[i];
	}
}

void jm__worker_progress(
	struct jm__worker *w, const char *phase, double items, double seconds, double share)
{
	struct jm_frame_progress p = {.items = items, .seconds = seconds, .share = share};
	int64_t now = jm_clock_now(jm_clock_real());

	if (now < w->last_progress + PROGRESS_NS)
		return;
	w->last_progress = now;
	look_at_watts(w, &p);
	strncpy(p.phase, phase, sizeof(p.phase) - 1);
	strncpy(p.unit, w->unit ? w->unit : "item", sizeof(p.unit) - 1);
	pthread_mutex_lock(&w->lock);
	jm_frame_write(w->fd, JM_FRAME_PROGRESS, &p, sizeof(p), NULL, 0, NULL);
	pthread_mutex_unlock(&w->lock);
}

void jm__worker_tell_failure(struct jm__worker *w, int code, const struct jm_err *why)
{
	json_t *json = json_pack("{s:i, s:s}", "code", code, "text", why->text);

	pthread_mutex_lock(&w->lock);
	if (json)
		jm_frame_write_json(w->fd, JM_FRAME_ERROR, json, NULL);
	pthread_mutex_unlock(&w->lock);
	json_decref(json);
}

int64_t jm__worker_sensor_window(const struct jm__worker *w)
{
	const struct jm_meters *set = jm_session_meters(w->session);
	int64_t longest = 0;

	for (int i = 0; i < set->n_signals; i++) {
		const struct jm_signal *s = &set->signal[i];
		int64_t window = (s->window_ns > 0 ? s->window_ns : 0) + s->refresh_ns;

		if (s->quantity == JM_Q_POWER && window > longest)
			longest = window;
	}
	return longest < MAX_SETTLE_NS ? longest : MAX_SETTLE_NS;
}

int jm__worker_settle(struct jm__worker *w, struct jm_err *err)
{
	int phase;

	if (!jm_case_sets(w->parameters))
		return 0;
	phase = jm__worker_begin(w, "settle", err);
	if (phase < 0)
		return phase;
	jm_sleep_until(&w->sleeper, jm_ctx_now(w->ctx) + jm__worker_sensor_window(w));
	jm__worker_end(w, phase);
	return 0;
}
