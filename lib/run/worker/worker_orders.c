/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders of the parent, and settings of single phases, for which a worker asks when a phase begins
 * and which orders answer; what they say is kept for the record. Native work waits for the answer
 * before the phase begins; a command goes on, so that the settings come into force a little after
 * its mark.
 */
#include "worker_orders.h"
#include "run/gang/frame.h"
#include "measure/session/session.h"
#include "run/plan/case_settings.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the phases of a case.");
}

/* Has it other settings than the phase before it? */
static bool differs(const struct jm__worker *w, const char *phase)
{
	return w->other_settings || jm_case_sets_in(w->parameters, phase);
}

static int ask(struct jm__worker *w, const char *phase, struct jm_err *err)
{
	json_t *json = json_pack("{s:s}", "phase", phase);
	int rc = json ? 0 : no_memory(err);

	w->other_settings = jm_case_sets_in(w->parameters, phase);
	w->n_asked++;
	pthread_mutex_lock(&w->lock);
	if (!rc)
		rc = jm_frame_write_json(w->fd, JM_FRAME_PHASE, json, err);
	pthread_mutex_unlock(&w->lock);
	json_decref(json);
	return rc;
}

int jm__worker_wait_settings(struct jm__worker *w, struct jm_err *err)
{
	while (w->n_answered < w->n_asked) {
		struct pollfd p = {.fd = w->orders.fd, .events = POLLIN};

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return jm_err_set(err, JM_EIO,
				"Cannot wait for the settings of a phase: %s.", strerror(errno));
		if (p.revents && !(p.revents & POLLIN))
			return jm_err_set(
				err, JM_EGONE, "The program that started this worker has ended.");
		jm__worker_take_orders(w);
	}
	return 0;
}

static struct jm__span *add_span(struct jm__worker *w, int phase)
{
	struct jm__span *grown = reallocarray(w->span, (size_t)w->n_spans + 1, sizeof(*grown));

	if (!grown)
		return NULL;
	w->span = grown;
	grown[w->n_spans] = (struct jm__span){.phase = phase};
	return &grown[w->n_spans++];
}

/* ---- native work ---- */

int jm__worker_enter(struct jm__worker *w, const char *phase, bool *ret_changed, struct jm_err *err)
{
	int rc = 0;

	*ret_changed = differs(w, phase);
	if (!*ret_changed)
		return 0;
	if (w->rank) /* rank 0 asks for all ranks, which synchronise at the next step */
		w->other_settings = jm_case_sets_in(w->parameters, phase);
	else
		rc = ask(w, phase, err);
	return rc ? rc : jm__worker_wait_settings(w, err);
}

int jm__worker_entered(struct jm__worker *w, int phase, struct jm_err *err)
{
	if (!jm_case_sets_in(w->parameters, NULL))
		return 0;
	return add_span(w, phase) ? 0 : no_memory(err);
}

/* ---- a command ---- */

void jm__worker_marked(struct jm__worker *w, int phase, const char *name)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm__span *span = add_span(w, phase);

	if (!span || !differs(w, name))
		return;
	if (ask(w, name, &err))
		jm_log(w->ctx, JM_WARNING, "%s", err.text);
	span->number = w->n_asked;
	span->from_ns = JM_FOREVER;
}

int jm__worker_check_marked(struct jm__worker *w, struct jm_err *err)
{
	const char *name;
	json_t *value;
	int n;
	const struct jm_phase *phase = jm_session_phases(w->session, &n);

	json_object_foreach(json_object_get(w->parameters, "settings"), name, value)
	{
		char of[JM_PHASE_NAME];
		bool marked = false;

		jm_case_knob(name, of, sizeof(of));
		for (int i = 0; i < w->n_spans; i++)
			marked = marked || !strcmp(phase[w->span[i].phase].name, of);
		if (*of && !marked)
			return jm_err_set(err, JM_ECHILD,
				"The command marked no phase '%s' ('joulemark mark %s'), so that "
				"its setting %s=%s was never made.",
				of, of, name, json_string_value(value));
	}
	return 0;
}

/* ---- answers ---- */

/* A row of jm_case_apply, with the time of the machine's clock at which it was read back. */
static void take_applied(struct jm__worker *w, const char *text)
{
	json_t *row = json_loads(text, 0, NULL), *all = json_object_get(w->record, "changes");
	int64_t t_ns = jm_ctx_now(w->ctx);

	if (!row)
		return;
	if (!jm_clock_simulated(w->ctx->clock))
		t_ns = json_integer_value(json_object_get(row, "t_ns"));
	json_object_del(row, "t_ns");
	json_object_set_new(row, "at_s", json_real((double)(t_ns - w->start_ns) * 1e-9));
	if (!json_is_array(all))
		jm_record_set(w->record, "changes", all = json_array());
	json_array_append_new(all, row);
}

static void take_setting(struct jm__worker *w, const struct jm_order *order)
{
	if (order->kind == JM_ORDER_APPLIED) {
		take_applied(w, order->text);
		return;
	}
	w->n_answered++;
	for (int i = w->n_spans - 1; i >= 0; i--)
		if (w->span[i].number == w->n_answered)
			w->span[i].from_ns = jm_ctx_now(w->ctx);
	jm_session_edge(w->session);
}

static void take_order(struct jm__worker *w, const struct jm_order *order)
{
	json_t *all = json_object_get(w->record, "orders");

	if (order->kind == JM_ORDER_APPLIED || order->kind == JM_ORDER_SETTING)
		take_setting(w, order);
	if (order->kind == JM_ORDER_APPLIED)
		return;
	if (!json_is_array(all))
		jm_record_set(w->record, "orders", all = json_array());
	json_array_append_new(
		all, json_pack("{s:f, s:s, s:s}", "at_s",
			     (double)(jm_ctx_now(w->ctx) - w->start_ns) / 1e9, "order",
			     jm_order_words[order->kind], "text", order->text));
	if (order->kind == JM_ORDER_STOP)
		w->stop = true;
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

/* ---- the record ---- */

/* {knob: "decode/gpu.power", phase, device, ...} among the settings, once for each device. */
static void add_setting(json_t *settings, const json_t *change)
{
	const char *phase = jm_json_text(change, "phase"), *device = jm_json_text(change, "device");
	char knob[128];
	json_t *row;
	size_t i;

	snprintf(knob, sizeof(knob), "%s/%s", phase, jm_json_text(change, "knob"));
	json_array_foreach(settings, i, row)
	{
		if (!strcmp(jm_json_text(row, "knob"), knob) &&
			!strcmp(jm_json_text(row, "device"), device))
			return;
	}
	row = json_copy((json_t *)(uintptr_t)change);
	json_object_del(row, "at_s");
	json_object_set_new(row, "knob", json_string(knob));
	json_array_append_new(settings, row);
}

/* To phases, in the order in which the session has them. */
static void describe_phase(const struct jm__worker *w, const struct jm__span *span, json_t *phase)
{
	double end_s = jm_json_real_of(phase, "end_s");
	double from_s = (double)(span->from_ns - w->start_ns) * 1e-9;

	if (span->number && (span->from_ns == JM_FOREVER || from_s >= end_s)) {
		jm_log(w->ctx, JM_WARNING,
			"The phase '%s' ended before its settings were made; they were never in "
			"force in it.",
			jm_json_text(phase, "name"));
		return;
	}
	json_object_set_new(
		phase, "settings", jm_case_in_force(w->parameters, jm_json_text(phase, "name")));
	if (span->number)
		json_object_set_new(phase, "settings_from_s", json_real(from_s));
}

void jm__worker_record_settings(struct jm__worker *w)
{
	json_t *settings = json_object_get(w->record, "settings"), *change;
	json_t *phases = json_object_get(w->record, "phases");
	size_t i;

	json_array_foreach(json_object_get(w->record, "changes"), i, change)
	{
		bool own = json_is_true(json_object_get(change, "own"));

		json_object_del(change, "own");
		if (own)
			add_setting(settings, change);
		json_object_del(change, "state");
	}
	for (int k = 0; k < w->n_spans; k++)
		describe_phase(w, &w->span[k], json_array_get(phases, (size_t)w->span[k].phase));
}
