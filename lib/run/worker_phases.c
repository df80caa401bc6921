/* SPDX-License-Identifier: Apache-2.0 */
/* Phases of the work in a worker, and how far it is. */
#include "run/worker_private.h"

#include "measure/session.h"
#include "run/frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PROGRESS_NS   (JM_SECOND / 5) /* between messages, on the machine's clock */
#define MAX_SETTLE_NS (2 * JM_SECOND)

int jm__worker_begin(struct jm__worker *w, const char *phase, struct jm_err *err)
{
	return jm_session_begin(w->session, phase, jm_ctx_now(w->ctx), err);
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
	pthread_mutex_lock(&w->lock);
	jm_frame_write(w->fd, JM_FRAME_PROGRESS, &p, sizeof(p), NULL, 0, NULL);
	pthread_mutex_unlock(&w->lock);
}

static void take_order(struct jm__worker *w, const struct jm_order *order)
{
	json_t *all = json_object_get(w->record, "orders");
	char phase[JM_ORDER_TEXT + 16];

	if (!json_is_array(all))
		jm_record_set(w->record, "orders", all = json_array());
	json_array_append_new(
		all, json_pack("{s:f, s:s, s:s}", "at_s", jm__worker_seconds_since(w, w->start_ns),
			     "order", jm_order_words[order->kind], "text", order->text));
	if (order->kind == JM_ORDER_STOP)
		w->stop = true;
	if (order->kind != JM_ORDER_SETTING)
		return;
	jm__worker_end(w, w->setting_phase);
	snprintf(phase, sizeof(phase), "setting %s", order->text);
	w->setting_phase = jm__worker_begin(w, phase, NULL);
}

void jm__worker_take_orders(struct jm__worker *w)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_order order;
	int rc;

	while ((rc = jm_orders_next(&w->orders, &order, &err)) != 0) {
		if (rc > 0)
			take_order(w, &order);
		else
			jm_log(w->ctx, JM_WARNING, "%s It has no effect.", err.text);
		err = (struct jm_err)JM_ERR_INIT;
	}
}

/* How long a reading may still include the time before a setting was changed. */
static int64_t sensor_window(const struct jm_meters *set)
{
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

	if (!json_array_size(json_object_get(w->job, "settings")))
		return 0;
	phase = jm__worker_begin(w, "settle", err);
	if (phase < 0)
		return phase;
	jm_sleep_until(
		&w->sleeper, jm_ctx_now(w->ctx) + sensor_window(jm_session_meters(w->session)));
	jm__worker_end(w, phase);
	return 0;
}
