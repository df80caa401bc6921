/* SPDX-License-Identifier: Apache-2.0 */
#include "measure_settings.h"

#include "base/text/json.h"
#include "cli/frame/interrupts.h"
#include "cli/settings/hold.h"
#include "cli/settings/knob_show.h"
#include "cli/settings/probe.h"
#include "cli/settings/set_words.h"
#include "guard/guard_requests.h"
#include "report/format/text.h"
#include "run/plan/case_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the settings of a measurement.");
}

static int add_axis(struct jm_measure_settings *s, const struct jm_axis *axis, struct jm_err *err)
{
	json_t *settings = json_object_get(s->parameters, "settings");
	char name[200], value[JM_KNOB_TEXT];

	snprintf(name, sizeof(name), "%s%s%s", axis->knob, *axis->selector ? "@" : "",
		axis->selector);
	if (json_object_get(settings, name))
		return jm_err_set(err, JM_EUSAGE, "--set %s is given twice; give one value.", name);
	jm_knob_value_text(&axis->value[0], axis->unit, value, sizeof(value));
	if (json_object_set_new(settings, name, json_string(value)) ||
		json_array_append_new(s->axes, jm_set_axis_json(axis, "")))
		return no_memory(err);
	return 0;
}

static int add_setting(struct jm_measure_settings *s, const char *text, struct jm_err *err)
{
	struct jm_axis axis;
	int rc;

	jm_guard_seek(s->guard, text);
	rc = jm_set_parse_axis(text, "'measure --set'", jm_guard_knobs(s->guard), &axis, err);

	if (rc)
		return rc;
	rc = add_axis(s, &axis, err);
	jm_axis_done(&axis);
	return rc;
}

int jm_measure_settings_open(struct jm_measure_settings *s, struct jm_cli *cli, const char *device)
{
	int rc;

	if (!s->set)
		return 0;
	if (!cli->command || !cli->command[0])
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--set holds while a command runs; give the command, or use 'joulemark "
			"set' before and 'joulemark restore' after the measurement.");
	s->axes = json_array();
	s->parameters = json_pack("{s:{}}", "settings");
	jm_count_interrupts(&cli->ctx, -1);
	rc = s->axes && s->parameters ? 0 : no_memory(&cli->err);
	if (!rc)
		rc = jm_hold_guard(cli, device, s->control, &s->guard);
	if (!rc)
		rc = jm_probe_state(cli, s->guard, s->found, s->probe_load, &cli->err);
	for (char *const *one = s->set; !rc && *one; one++)
		rc = add_setting(s, *one, &cli->err);
	return rc;
}

int jm_measure_settings_make(struct jm_measure_settings *s, struct jm_err *err)
{
	if (!s->guard)
		return 0;
	if (jm_last_interrupt())
		return jm_err_set(err, JM_EINTR, "Interrupted; nothing was set.");
	return jm_case_apply(s->guard, NULL, s->parameters, NULL, &s->rows, err);
}

bool jm_measure_settings_broken(const struct jm_measure_settings *s)
{
	return s->lost.code == JM_EGONE || s->changed.code;
}

/* After Ctrl-C the values found come first. */
void jm_measure_settings_check(struct jm_measure_settings *s)
{
	if (s->guard && s->rows && !jm_last_interrupt() && jm_guard_alive(s->guard))
		jm_case_check_held(s->guard, s->rows, &s->changed);
}

void jm_measure_settings_end(struct jm_measure_settings *s)
{
	json_t *row;
	size_t i;

	jm_guard_stop(s->guard, &s->lost);
	s->guard = NULL;
	if (!s->lost.code)
		s->lost = s->changed;
	json_array_foreach(s->lost.code == JM_EGONE ? s->rows : NULL, i, row)
	{
		json_object_set_new(row, "accepted", json_null());
		json_object_set_new(row, "enforced", json_null());
		json_object_del(row, "value");
	}
}

void jm_measure_settings_close(struct jm_measure_settings *s)
{
	jm_measure_settings_end(s);
	json_decref(s->rows);
	json_decref(s->axes);
	json_decref(s->parameters);
	*s = (struct jm_measure_settings){0};
}

static void value_text(const json_t *row, const char *key, char *out, size_t size)
{
	double number = jm_json_real_of(row, key);

	if (*jm_json_text(row, "value") && !strcmp(key, "accepted"))
		snprintf(out, size, "%s", jm_json_text(row, "value"));
	else if (isnan(number))
		snprintf(out, size, "unknown");
	else
		jm_knob_show_number(number, jm_json_text(row, "unit"), out, size);
}

void jm_measure_settings_print(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *row, *meter;
	char text[400], accepted[JM_KNOB_SHOWN], enforced[JM_KNOB_SHOWN];
	size_t i;

	json_array_foreach(json_object_get(record, "settings"), i, row)
	{
		const char *device = jm_json_text(row, "device");

		meter = jm_json_find(json_object_get(record, "meters"), "device", device);
		value_text(row, "accepted", accepted, sizeof(accepted));
		value_text(row, "enforced", enforced, sizeof(enforced));
		snprintf(text, sizeof(text), "%s of %s: %s", jm_json_text(row, "knob"),
			meter ? jm_json_text(meter, "label") : device, accepted);
		if (strcmp(accepted, enforced) != 0 && strcmp(enforced, "unknown") != 0)
			jm_text_append(text, sizeof(text), ", enforced ", enforced);
		jm_text_append(text, sizeof(text), ", ",
			strcmp(jm_json_text(row, "state"), "unknown") != 0
				? jm_json_text(row, "state")
				: "its effect is unknown");
		jm_measure_line(t, i ? "" : "Setting", text);
	}
}
