/* SPDX-License-Identifier: Apache-2.0 */
#include "measure_record.h"
#include "measure/session/session_report.h"
#include "repeat_figures.h"
#include "base/ctx.h"
#include "result/provenance.h"
#include "result/record.h"
#include "result/record_jobs.h"
#include "result/record_keys.h"
#include "result/setting_state.h"
#include "base/text/json.h"

#include <math.h>

static json_t *started_json(const struct measurement *m)
{
	char text[40];

	jm_time_text(m->started_wall, text, sizeof(text));
	return json_string(text);
}

json_t *jm_measure_command_json(char *const *command)
{
	json_t *words = json_array();

	/* what is not UTF-8 cannot be in JSON; the word is then left unknown */
	for (char *const *word = command; *word; word++) {
		json_t *text = json_string(*word);

		json_array_append_new(words, text ? text : json_null());
	}
	return words;
}

static void add_job(const struct measurement *m, json_t *record)
{
	json_t *job = jm_record_job(m->job);

	if (job)
		jm_record_set(record, "job", job);
}

/* Each run of repeats has rows of its own, as the state differs. */
static void add_settings(const struct measurement *m, json_t *record, struct jm_err *err)
{
	jm_record_set(record, "settings", json_deep_copy(m->settings.rows));
	if (jm_measure_settings_broken(&m->settings))
		jm_record_failed(record, "%s", m->settings.lost.text);
	else
		jm_record_judge_settings(record, m->session, m->outcome.phase, err);
}

/* What became of the command, and what it took. */
static void add_command(const struct measurement *m, json_t *record)
{
	const struct jm_outcome *o = &m->outcome;
	bool started = !m->attach.attach;

	jm_record_set(record, "wall_s", jm_json_number(o->wall_s));
	if (o->unseen_ns)
		jm_record_set(
			record, "wall_least_s", json_real(o->wall_s - (double)o->unseen_ns * 1e-9));
	if (started) {
		jm_record_set(record, "user_s", json_real(o->user_s));
		jm_record_set(record, "system_s", json_real(o->system_s));
	}
	jm_record_set(record, "exit_status", started ? json_integer(o->status) : NULL);
	jm_record_set(record, "signal", o->signal ? json_integer(o->signal) : NULL);
	jm_record_set(record, "command", started ? jm_measure_command_json(m->command) : NULL);
}

/* Whose energy it is: of processes that ran already, or of the command beside others. Commands that
 * are compared ran in turn, so that none of them has a share of the whole. */
static void add_shares(const struct measurement *m, json_t *record, struct jm_err *err)
{
	const struct jm_outcome *o = &m->outcome;

	if (m->attach.attach)
		jm_record_set(
			record, "attached", jm_attached_json(&m->attach.result, m->session, err));
	else if (!m->of_run && m->repeat.n_commands < 2)
		jm_record_set(record, "own_share",
			jm_own_share_json(&m->own, o->user_s + o->system_s, m->session,
				m->repeats ? -1 : o->phase, err));
}

static void add_items(const struct measurement *m, json_t *record)
{
	const struct jm_outcome *o = &m->outcome;
	const char *unit = m->items.unit;

	jm_record_set(record, "items", jm_json_number(o->items));
	if (m->items_url.options.url)
		jm_record_set(record, "items_from",
			json_pack("{s:s, s:s}", "url", m->items_url.options.url, "metric",
				m->items_url.options.metric));
	jm_record_set(record, "throughput", jm_json_number(o->throughput));
	if (o->items_kind)
		jm_record_set(
			record, "items_kind", json_string(jm_item_kind_names[o->items_kind - 1]));
	if (!unit && !isnan(o->items))
		unit = "item";
	jm_record_set(record, "unit", unit ? json_string(unit) : NULL);
}

static void fill_record(const struct measurement *m, json_t *record, struct jm_err *err)
{
	json_t *figures;

	jm_record_set(record, "schema", json_string(JM_RECORD_SCHEMA));
	jm_record_set(record, "started", started_json(m));
	jm_record_set(record, "clock", json_string("real"));
	add_command(m, record);
	add_shares(m, record, err);
	if (m->repeats)
		jm_record_set(record, "repeats",
			jm_measure_repeat_json(&m->repeat, &m->cli->ctx, m->session, err));
	if (m->tune)
		jm_record_set(record, jm_tune_key(m->tune), json_incref(m->tune->json));
	if (!m->attach.attach && !m->repeats)
		add_job(m, record);
	add_items(m, record);
	if (m->settings.rows)
		add_settings(m, record, err);
	figures = jm_measure_figures_json(&m->figures, record);
	if (figures)
		jm_record_set(record, "figures", figures);
	jm_record_set(record, "provenance",
		jm_provenance(&m->cli->ctx, jm_session_meters(m->session), err));
}

json_t *jm_measure_record(const struct measurement *m, struct jm_err *err)
{
	json_t *report = m->of_run ? jm_session_report_within(m->session, m->outcome.phase, err)
				   : jm_session_report(m->session, m->outcome.phase, err);
	json_t *record;

	if (!report)
		return NULL;
	record = jm_keys_blank(jm_record_keys, 0);
	if (record) {
		json_object_update(record, report);
		fill_record(m, record, err);
	}
	json_decref(report);
	if (!record || !json_is_object(json_object_get(record, "provenance")))
		jm_err_set(err, JM_ENOMEM, "Out of memory for the record.");
	return record;
}
