/* SPDX-License-Identifier: Apache-2.0 */
#include "work_show.h"

#include "base/clock.h"
#include "base/text/json.h"
#include "report/format/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#define SILENT_S 5 /* s: a longer time without a report is mentioned */

void jm_work_time_text(double seconds, char *out, size_t size)
{
	if (seconds < 100)
		snprintf(out, size, "%.0f s", seconds);
	else if (seconds < 6000)
		snprintf(out, size, "%.0f min", seconds / 60);
	else
		snprintf(out, size, "%.1f h", seconds / 3600);
}

/* NAN: the time is not known. */
static double seconds_since(int64_t wall_ns)
{
	double seconds;

	if (wall_ns <= 0)
		return NAN;
	seconds = (double)(jm_clock_wall(jm_clock_real()) - wall_ns) * 1e-9;

	return seconds > 0 ? seconds : 0;
}

/* Appends a part that has something to say. */
static void add(char *out, size_t size, const char *part)
{
	jm_text_append(out, size, ", ", part);
}

static void add_figures(const struct jm_work_status *w, char *out, size_t size)
{
	const char *unit = *w->unit ? w->unit : "item";
	char text[80], quantity[40];

	if (!isnan(w->items_per_s)) {
		jm_text_estimate(w->items_per_s, NAN, quantity, sizeof(quantity));
		snprintf(text, sizeof(text), "%s %s/s", quantity, unit);
		add(out, size, text);
	}
	if (!isnan(w->watts)) {
		jm_text_quantity(w->watts, NAN, "W", quantity, sizeof(quantity));
		snprintf(text, sizeof(text), "%s %s", quantity, jm_origin_name(w->origin));
		add(out, size, text);
	}
	if (!isnan(w->joules)) {
		jm_text_quantity(w->joules, NAN, "J", quantity, sizeof(quantity));
		add(out, size, quantity);
	}
}

static void add_times(const struct jm_work_status *w, char *out, size_t size)
{
	double runs_for = seconds_since(w->started_ns);
	char text[80], time[40];

	if (!isnan(runs_for)) {
		jm_work_time_text(runs_for, time, sizeof(time));
		snprintf(text, sizeof(text), "runs for %s", time);
		add(out, size, text);
	}
	if (!isnan(w->left_s)) {
		jm_work_time_text(w->left_s, time, sizeof(time));
		snprintf(text, sizeof(text), "about %s left", time);
		add(out, size, text);
	}
	if (seconds_since(w->written_ns) > SILENT_S) {
		jm_work_time_text(seconds_since(w->written_ns), time, sizeof(time));
		snprintf(text, sizeof(text), "last heard of %s ago", time);
		add(out, size, text);
	}
}

static bool is_here(const struct jm_work_status *w)
{
	struct utsname machine;

	return !uname(&machine) && !strncmp(w->host, machine.nodename, sizeof(w->host) - 1);
}

static void add_place(const struct jm_work_status *w, char *out, size_t size)
{
	char text[360];

	snprintf(text, sizeof(text), "process %d", w->pid);
	add(out, size, text);
	if (!is_here(w)) {
		snprintf(text, sizeof(text), "on %s", w->host);
		jm_text_append(out, size, " ", text);
	}
	if (*w->store) {
		snprintf(text, sizeof(text), "store %s", w->store);
		add(out, size, text);
	}
}

static void work_text(const struct jm_work_status *w, char *out, size_t size)
{
	char text[80] = "";
	size_t head;

	snprintf(out, size, "%s %s: ", w->command, w->work);
	head = strlen(out);
	out += head;
	size -= head;
	if (w->total)
		snprintf(text, sizeof(text), "case %d of %d", w->number, w->total);
	add(out, size, text);
	if (w->failed) {
		snprintf(text, sizeof(text), "%d failed", w->failed);
		add(out, size, text);
	}
	add(out, size, w->phase);
	add_figures(w, out, size);
	add_times(w, out, size);
	add_place(w, out, size);
}

void jm_work_print(const struct jm_work_list *list, FILE *out, int width)
{
	char text[1000];

	for (int i = 0; i < list->n; i++) {
		work_text(&list->work[i], text, sizeof(text));
		jm_text_wrap(out, text, 0, 2, width);
	}
}

static json_t *time_json(int64_t wall_ns)
{
	return jm_json_number(wall_ns > 0 ? (double)wall_ns * 1e-9 : NAN);
}

static json_t *count_or_null(const struct jm_work_status *w, int count)
{
	return w->total ? json_integer(count) : json_null();
}

static json_t *one_json(const struct jm_work_status *w)
{
	json_t *json = json_object();

	jm_json_set_text(&json, "command", w->command);
	jm_json_set_text(&json, "work", w->work);
	jm_json_set_int(&json, "pid", w->pid);
	jm_json_set_text(&json, "host", w->host);
	jm_json_set(&json, "case", count_or_null(w, w->number));
	jm_json_set(&json, "cases", count_or_null(w, w->total));
	jm_json_set(&json, "failed", count_or_null(w, w->failed));
	jm_json_set(&json, "phase", jm_json_said(w->phase));
	jm_json_set_number(&json, "share", w->share);
	jm_json_set_number(&json, "items_per_s", w->items_per_s);
	jm_json_set(&json, "unit", jm_json_said(w->unit));
	jm_json_set_number(&json, "watts", w->watts);
	jm_json_set_number(&json, "joules", w->joules);
	jm_json_set_text(&json, "origin", jm_origin_name(w->origin));
	jm_json_set_number(&json, "left_s", w->left_s);
	jm_json_set(&json, "store", jm_json_said(w->store));
	jm_json_set(&json, "started", time_json(w->started_ns));
	jm_json_set(&json, "written", time_json(w->written_ns));
	return json;
}

json_t *jm_work_json(const struct jm_work_list *list)
{
	json_t *array = json_array();

	for (int i = 0; i < list->n; i++)
		json_array_append_new(array, one_json(&list->work[i]));
	return array;
}
