/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a measurement: headline, meters, phases, grade. */
#include "measure_show.h"
#include "measure_figures.h"
#include "measure_settings.h"
#include "repeat_show.h"
#include "cli/frame/screen.h"
#include "base/text/json.h"
#include "base/printable.h"
#include "meter/meter.h"
#include "report/format/grid.h"
#include "report/text/phases.h"
#include "report/format/text.h"

#include <math.h>
#include <string.h>

#define WH	    3600.0
#define LABEL_MAX   40
#define LABEL_SHORT 28 /* where more columns follow */

static const char *item_of(const json_t *record)
{
	const char *unit = jm_json_text(record, "unit");

	return *unit ? unit : "item";
}

/* ---- headline ---- */

static void put_command(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *attached = json_object_get(record, "attached"), *word;
	char text[600] = "joulemark:";
	bool several = jm_repeat_title(record, text, sizeof(text));
	size_t i;

	if (attached)
		jm_text_append(text, sizeof(text), " ", jm_json_text(attached, "what"));
	json_array_foreach(several ? NULL : json_object_get(record, "command"), i, word)
		jm_text_append(text, sizeof(text), " ",
			json_is_string(word) ? json_string_value(word) : "?");
	fputs(jm_screen_code(t->bold, JM_BOLD), t->out);
	jm_text_wrap(t->out, text, 0, 2, t->width);
	fputs(jm_screen_code(t->bold, JM_PLAIN), t->out);
}

static void put_time(const struct jm_measure_text *t, const json_t *record)
{
	int status = (int)json_integer_value(json_object_get(record, "exit_status"));
	int number = (int)json_integer_value(json_object_get(record, "signal"));
	const char *name = number ? sigabbrev_np(number) : NULL;
	double wall_s = jm_json_real_of(record, "wall_s");
	double least_s = jm_json_real_of(record, "wall_least_s");
	char text[160], wall[60];

	snprintf(wall, sizeof(wall), "%.3f s", wall_s);
	if (!isnan(least_s))
		snprintf(wall, sizeof(wall), "between %.3f s and %.3f s", least_s, wall_s);

	if (json_object_get(record, "attached"))
		snprintf(text, sizeof(text), "%s", wall);
	else if (!number)
		snprintf(text, sizeof(text), "%s, exit status %d", wall, status);
	else
		snprintf(text, sizeof(text), "%s, killed by %s%s (signal %d, exit status %d)", wall,
			name ? "SIG" : "a signal", name ? name : "", number, status);
	jm_measure_line(t, "Time", text);
}

static bool any_of_origin(const json_t *meters, const char *origin)
{
	const json_t *meter;
	size_t i;

	json_array_foreach(meters, i, meter)
	{
		if (!strcmp(jm_json_text(meter, "origin"), origin))
			return true;
	}
	return false;
}

/* "1054 J ± 53 J (0.293 Wh), mean 524 W, measured" */
static void total_text(const json_t *record, const char *origin, char *out, size_t size)
{
	const json_t *total = json_object_get(record, "total");
	double wall_s = jm_json_real_of(record, "wall_s"), joules;
	char key[40], energy[80], wh[40], watts[40];

	snprintf(key, sizeof(key), "error_%s_joules", origin);
	joules = jm_json_real_of(total, key);
	snprintf(key, sizeof(key), "joules_%s", origin);
	jm_text_quantity(jm_json_real_of(total, key), joules, "J", energy, sizeof(energy));
	joules = jm_json_real_of(total, key);
	if (isnan(joules)) {
		snprintf(out, size, "unknown, %s", origin);
		return;
	}
	jm_text_quantity(joules / WH, NAN, "Wh", wh, sizeof(wh));
	jm_text_quantity(wall_s > 0 ? joules / wall_s : NAN, NAN, "W", watts, sizeof(watts));
	snprintf(out, size, "%s (%s), mean %s, %s", energy, wh, watts, origin);
}

static void put_energy(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *meters = json_object_get(record, "meters");
	const char *label = "Energy";
	char text[300];

	for (int i = 0; i < JM_ORIGIN_COUNT; i++) {
		if (!any_of_origin(meters, jm_origin_name(jm_origin_order[i])))
			continue;
		total_text(record, jm_origin_name(jm_origin_order[i]), text, sizeof(text));
		jm_measure_line(t, label, text);
		label = "";
	}
	if (*label)
		jm_measure_line(t, label, "unknown: there is no meter");
}

/* "0.512 J ± 0.02 J, simulated; 40 runs in 5 groups" */
static void put_repeats(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *repeats = json_object_get(record, "repeats"), *energy;
	bool one = json_array_size(json_object_get(repeats, "commands")) == 1;
	int groups = (int)jm_json_real_of(repeats, "groups");
	int runs = (int)jm_json_real_of(repeats, "runs");
	char text[300], joules[80];
	size_t i;

	json_array_foreach(one ? json_object_get(repeats, "energy") : NULL, i, energy)
	{
		double error = jm_json_real_of(energy, "error_joules");
		bool spread = isnan(error);

		if (spread)
			error = jm_json_real_of(energy, "error_spread_joules");
		jm_text_quantity(
			jm_json_real_of(energy, "joules"), error, "J", joules, sizeof(joules));
		snprintf(text, sizeof(text), "%s%s, %s: %d %s in %d %s, over %.0f refreshes",
			joules, spread && !isnan(error) ? " (spread only)" : "",
			jm_json_text(energy, "origin"), runs, runs == 1 ? "run" : "runs", groups,
			groups > 1 ? "groups with shifted starts" : "group",
			floor(jm_json_real_of(repeats, "seconds") /
				jm_json_real_of(repeats, "refresh_s")));
		jm_measure_line(t, i ? "" : "One run", text);
	}
}

/* One line per circumstance: "memory pressure: stall-time 0.12 s, full-stall-time 0 s". */
static void put_context(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *about, *signal;
	const char *label = "Context";
	char text[300], amount[80];
	size_t i, k;

	json_array_foreach(json_object_get(record, "context"), i, about)
	{
		snprintf(text, sizeof(text), "%s", jm_json_text(about, "label"));
		json_array_foreach(json_object_get(about, "signals"), k, signal)
		{
			double value = jm_json_real_of(signal, "increase");

			if (isnan(value))
				value = jm_json_real_of(signal, "mean");
			jm_text_quantity(
				value, NAN, jm_json_text(signal, "unit"), amount, sizeof(amount));
			jm_text_append(text, sizeof(text), k ? ", " : ": ",
				jm_json_text(signal, "quantity"));
			jm_text_append(text, sizeof(text), " ", amount);
		}
		jm_measure_line(t, label, text);
		label = "";
	}
}

/* Of a process or a control group: "12.3 J of the processors, estimated: 25.0 % of their 8.4 s of
 * CPU time". */
static void put_share(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *attached = json_object_get(record, "attached");
	double cpu_s = jm_json_real_of(attached, "cpu_s");
	double share = jm_json_real_of(attached, "share");
	double joules_known = jm_json_real_of(attached, "joules_estimated");
	char text[300], joules[80];

	if (isnan(cpu_s))
		return;
	jm_text_quantity(joules_known, NAN, "J", joules, sizeof(joules));
	if (isnan(share))
		snprintf(text, sizeof(text), "unknown: no processor time was used");
	else if (isnan(joules_known))
		snprintf(text, sizeof(text),
			"%.3g s, %.3g %% of all processor time; its energy is unknown: %s", cpu_s,
			100 * share,
			json_array_size(json_object_get(attached, "meters"))
				? "that of the processors is (see Quality)"
				: "no meter of the processors is read; add --source rapl, or "
				  "--source estimate");
	else
		snprintf(text, sizeof(text),
			"%s of the processors, estimated: %.3g s, %.3g %% of all processor time",
			joules, cpu_s, 100 * share);
	jm_measure_line(t, "Share", text);
}

/* A command's part of what the meters of the machine include, and what they measured before it. */
static void put_own_share(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *own = json_object_get(record, "own_share");
	double share = jm_json_real_of(own, "share"), before = jm_json_real_of(own, "watts_before");
	double joules = jm_json_real_of(own, "joules_estimated"); /* unknown of repeated runs */
	char text[300], quantity[80];

	if (!isnan(share) && json_array_size(json_object_get(own, "meters"))) {
		jm_text_quantity(joules, NAN, "J", quantity, sizeof(quantity));
		snprintf(text, sizeof(text),
			"%s%s%.3g %% of all processor time is the command's; the meters include "
			"what else ran",
			isnan(joules) ? "" : quantity,
			isnan(joules) ? "" : " of the processors, estimated: ", 100 * share);
		jm_measure_line(t, "Share", text);
	}
	if (isnan(before))
		return;
	jm_text_quantity(before, NAN, "W", quantity, sizeof(quantity));
	snprintf(text, sizeof(text), "%s when the command began", quantity);
	jm_measure_line(t, "Before", text);
}

static const char *label_of(const json_t *record, const char *meter)
{
	const json_t *one = jm_json_find(json_object_get(record, "meters"), "id", meter);

	return one ? jm_json_text(one, "label") : meter;
}

/* "12.3 J of GPU 0 NVIDIA H100, estimated: 25.0 % by process utilisation" */
static void put_device_share(const struct jm_measure_text *t, const json_t *record,
	const json_t *share, const char *label)
{
	const char *reason = jm_json_text(share, "reason");
	const char *meter = jm_json_text(share, "meter"), *what;
	char text[500], joules[80];

	what = *meter ? label_of(record, meter) : jm_json_text(share, "name"); /* an instance */
	if (isnan(jm_json_real_of(share, "joules_estimated"))) {
		snprintf(
			text, sizeof(text), "unknown of %s%s%s", what, *reason ? ": " : "", reason);
	} else {
		jm_text_quantity(jm_json_real_of(share, "joules_estimated"), NAN, "J", joules,
			sizeof(joules));
		snprintf(text, sizeof(text), "%s of %s, estimated: %.3g %% of its energy", joules,
			what, 100 * jm_json_real_of(share, "share"));
	}
	jm_measure_line(t, label, text);
}

static void put_device_shares(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *attached = json_object_get(record, "attached"), *gpu, *instance;
	size_t i, k;

	json_array_foreach(json_object_get(attached, "gpus"), i, gpu)
	{
		if (!isnan(jm_json_real_of(attached, "cpu_s")))
			put_device_share(t, record, gpu, "Share");
		json_array_foreach(json_object_get(gpu, "instances"), k, instance)
			put_device_share(t, record, instance, "Instance");
	}
}

/* The best origin that a meter has, and its joules in the total; "" = they are unknown. */
static const char *best_origin(const json_t *record, double *ret_joules)
{
	const json_t *meters = json_object_get(record, "meters");
	char key[40];
	int i = 0;

	while (i < JM_ORIGIN_COUNT && !any_of_origin(meters, jm_origin_name(jm_origin_order[i])))
		i++;
	if (i == JM_ORIGIN_COUNT)
		return "";
	snprintf(key, sizeof(key), "joules_%s", jm_origin_name(jm_origin_order[i]));
	*ret_joules = jm_json_real_of(json_object_get(record, "total"), key);
	return isnan(*ret_joules) ? "" : jm_origin_name(jm_origin_order[i]);
}

/* ", 0.391 J/token measured": of all items. */
static void joules_per_item(const json_t *record, double items, char *out, size_t size)
{
	double joules;
	const char *origin = best_origin(record, &joules);
	char number[40];

	if (!*origin || !(items > 0))
		return;
	jm_text_quantity(joules / items, NAN, "J", number, sizeof(number));
	snprintf(out, size, ", %s/%.32s %s", number, item_of(record), origin);
}

/* All items, and the rate of the stretch between marks. */
static void put_items(const struct jm_measure_text *t, const json_t *record)
{
	double rate = jm_json_real_of(record, "throughput"),
	       items = jm_json_real_of(record, "items");
	const char *item = item_of(record);
	char text[300], number[40], more[120] = "", each[120] = "";

	if (isnan(items))
		return;
	joules_per_item(record, items, each, sizeof(each));
	jm_text_estimate(rate, NAN, number, sizeof(number));
	if (!isnan(rate))
		snprintf(more, sizeof(more), ", %s %.32ss/s%s", number, item,
			t->marked ? " between the first mark and the last" : "");
	snprintf(number, sizeof(number), "%.10g", items);
	jm_text_apart(number, sizeof(number));
	jm_text_format(text, sizeof(text), "%s %.32ss%s%s", number, item, more, each);
	jm_measure_line(t, "Items", text);
}

/* ---- meters ---- */

static bool mixed(const json_t *meters)
{
	int n = 0;

	for (int i = 0; i < JM_ORIGIN_COUNT; i++)
		n += any_of_origin(meters, jm_origin_name(jm_origin_order[i]));
	return n > 1;
}

static int put_watts(struct jm_grid *g, int row, int column, const json_t *meter, const char *key,
	struct jm_err *err)
{
	char text[40];

	jm_text_quantity(jm_json_real_of(meter, key), NAN, "", text, sizeof(text));
	return jm_grid_set(g, row, column, err, "%s", text);
}

/* Where there is no combined uncertainty, that of sampling is better than none. */
static double best_error(const json_t *meter)
{
	double combined = jm_json_real_of(meter, "error_joules");

	if (!strcmp(jm_json_text(meter, "origin"), "estimated"))
		return NAN; /* the sampling error is negligible against that of the model */
	return isnan(combined) ? jm_json_real_of(meter, "error_sampling_joules") : combined;
}

static bool sampling_only(const json_t *meter)
{
	return isnan(jm_json_real_of(meter, "error_joules")) && !isnan(best_error(meter));
}

static int put_meter(const struct jm_measure_text *t, struct jm_grid *g, int row,
	const json_t *meter, struct jm_err *err)
{
	bool part = json_is_string(json_object_get(meter, "covered_by"));
	double joules = jm_json_real_of(meter, "joules");
	char text[80], label[LABEL_MAX];
	int c = 0, rc;

	jm_text_format(label, g->columns > 4 ? LABEL_SHORT : LABEL_MAX, "%s%s", part ? "  " : "",
		jm_json_text(meter, "label"));
	rc = jm_grid_set(g, row, c++, err, "%s", label);
	jm_text_quantity(joules, best_error(meter), "J", text, sizeof(text));
	rc = rc ? rc
		: jm_grid_set(g, row, c++, err, "%s%s", text, sampling_only(meter) ? " (s)" : "");
	rc = rc ? rc : put_watts(g, row, c++, meter, "watts_mean", err);
	rc = rc ? rc : put_watts(g, row, c++, meter, "watts_max", err);
	if (!rc && t->bounds) {
		rc = put_watts(g, row, c++, meter, "error_sampling_joules", err);
		rc = rc ? rc : put_watts(g, row, c++, meter, "error_calibration_joules", err);
	}
	if (rc || c == g->columns)
		return rc;
	return jm_grid_set(g, row, c, err, "%s", jm_json_text(meter, "origin"));
}

static int fill_meters(const struct jm_measure_text *t, struct jm_grid *g, const json_t *meters,
	struct jm_err *err)
{
	static const char *const titles[] = {"meter", "energy", "mean W", "max W"};
	int rc = 0, c = 0;

	for (; c < 4 && !rc; c++)
		rc = jm_grid_set(g, -1, c, err, "%s", titles[c]);
	if (!rc && t->bounds) {
		rc = jm_grid_set(g, -1, c++, err, "sampling J");
		rc = rc ? rc : jm_grid_set(g, -1, c++, err, "calibration J");
	}
	g->left[0] = true;
	if (c < g->columns) {
		g->left[c] = true;
		rc = rc ? rc : jm_grid_set(g, -1, c, err, "origin");
	}
	for (int r = 0; r < g->rows && !rc; r++)
		rc = put_meter(t, g, r, json_array_get(meters, (size_t)r), err);
	return rc;
}

/* What of a meter does not fit into the table. */
static void put_meter_notes(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *meter;
	bool sampling = false;
	char text[300];
	size_t i;

	json_array_foreach(json_object_get(record, "meters"), i, meter)
	{
		sampling = sampling || sampling_only(meter);
		if (*jm_json_text(meter, "about")) {
			jm_text_format(text, sizeof(text), "%s: %s", jm_json_text(meter, "label"),
				jm_json_text(meter, "about"));
			jm_text_wrap(t->out, text, 2, 4, t->width);
		}
		if (!isnan(jm_json_real_of(meter, "joules")))
			continue;
		snprintf(text, sizeof(text), "%s: known for %.3g of %.3g s.",
			jm_json_text(meter, "label"), jm_json_real_of(meter, "covered_s"),
			jm_json_real_of(record, "wall_s"));
		jm_text_wrap(t->out, text, 2, 4, t->width);
	}
	if (sampling)
		jm_text_wrap(t->out,
			"(s) uncertainty of sampling only: the accuracy of the sensor is unknown",
			2, 6, t->width);
}

static void put_meters(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *meters = json_object_get(record, "meters");
	struct jm_err err = JM_ERR_INIT;
	struct jm_grid g;
	int rows = (int)json_array_size(meters);

	if (!rows || jm_grid_new(&g, rows, 4 + 2 * t->bounds + mixed(meters), &err))
		return;
	fputc('\n', t->out);
	if (!fill_meters(t, &g, meters, &err))
		jm_grid_print(&g, 2, t->width, t->out);
	jm_grid_done(&g);
	put_meter_notes(t, record);
}

/* ---- phases, grade ---- */

/* The runs of a repeated command have a table of their own. */
static bool only_repeats(const json_t *record)
{
	const json_t *phase;
	size_t i;

	json_array_foreach(json_object_get(record, "phases"), i,
		phase) if (strncmp(jm_json_text(phase, "name"), "repeat", 6) != 0) return false;
	return json_object_get(record, "repeats") != NULL;
}

static void put_phases(const struct jm_measure_text *t, const json_t *record)
{
	const char *origin = jm_phases_origin(record);
	struct jm_err err = JM_ERR_INIT;
	struct jm_grid g;

	if (((!jm_phases_several(record) || only_repeats(record)) && !t->meters) ||
		jm_phases_grid(record, t->meters, jm_json_text(record, "unit"), &g, &err))
		return;
	fputc('\n', t->out);
	jm_grid_print(&g, 2, t->width, t->out);
	jm_grid_done(&g);
	jm_phases_note(record, t->out, t->width);
	if (!t->meters && origin && mixed(json_object_get(record, "meters")))
		fprintf(t->out, "  energy of the %s meters\n", origin);
}

/* ---- residue ---- */

static int put_rest(struct jm_grid *g, int row, const json_t *record, const json_t *phase,
	const json_t *meter, struct jm_err *err)
{
	const json_t *about = jm_phases_meter(record, jm_json_text(meter, "id"));
	double joules = jm_json_real_of(meter, "joules"),
	       watts = jm_json_real_of(meter, "watts_mean");
	double rest = jm_json_real_of(meter, "rest_joules"), share = rest / joules;
	char label[LABEL_SHORT], text[80];
	int rc = jm_grid_set(g, row, 0, err, "%s", jm_json_text(phase, "name"));

	jm_text_format(label, LABEL_SHORT, "%s", jm_json_text(about, "label"));
	rc = rc ? rc : jm_grid_set(g, row, 1, err, "%s", label);
	jm_text_quantity(
		rest, jm_json_real_of(meter, "rest_error_joules"), "J", text, sizeof(text));
	rc = rc ? rc : jm_grid_set(g, row, 2, err, "%s", text);
	jm_text_quantity(watts * share, NAN, "", text, sizeof(text));
	rc = rc ? rc : jm_grid_set(g, row, 3, err, "%s", text);
	if (isnan(share))
		snprintf(text, sizeof(text), "-");
	else
		snprintf(text, sizeof(text), "%.0f %%", 100 * share);
	return rc ? rc : jm_grid_set(g, row, 4, err, "%s", text);
}

/* A row per phase and meter with parts; without a grid the rows are only counted. */
static int fill_residue(const json_t *record, struct jm_grid *g, struct jm_err *err)
{
	const json_t *phase, *meter;
	int rows = 0;
	size_t i, k;

	json_array_foreach(json_object_get(record, "phases"), i, phase)
	{
		json_array_foreach(json_object_get(phase, "meters"), k, meter)
		{
			if (!json_object_get(meter, "rest_joules"))
				continue;
			if (g && put_rest(g, rows, record, phase, meter, err))
				return err->code;
			rows++;
		}
	}
	return rows;
}

static void put_residue(const struct jm_measure_text *t, const json_t *record)
{
	static const char *const titles[] = {"phase", "meter", "rest", "mean W", "share"};
	struct jm_err err = JM_ERR_INIT;
	int rows = fill_residue(record, NULL, &err);
	struct jm_grid g;

	if (!t->residue)
		return;
	fputc('\n', t->out);
	if (!rows) {
		jm_text_wrap(t->out, "No meter includes another one, so there is no residue.", 2, 2,
			t->width);
		return;
	}
	if (jm_grid_new(&g, rows, 5, &err))
		return;
	for (int c = 0; c < 5; c++)
		jm_grid_set(&g, -1, c, &err, "%s", titles[c]);
	g.left[0] = g.left[1] = true;
	if (fill_residue(record, &g, &err) == rows)
		jm_grid_print(&g, 2, t->width, t->out);
	jm_grid_done(&g);
	jm_text_wrap(t->out, "rest: energy of the meter less that of the meters that it includes",
		2, 2, t->width);
}

/* One line; its reasons on request. */
static void put_quality(const struct jm_measure_text *t, const json_t *record)
{
	const json_t *quality = json_object_get(record, "quality"), *reason;
	const json_t *reasons = json_object_get(quality, "reasons");
	char grade[80], text[140];
	double joules;
	size_t i;

	jm_text_grade(
		jm_json_text(quality, "grade"), best_origin(record, &joules), grade, sizeof(grade));
	snprintf(text, sizeof(text), "%s%s", grade,
		json_array_size(reasons) && !t->why ? "; --why gives the reasons" : "");
	fputc('\n', t->out);
	jm_measure_line(t, "Quality", text);
	json_array_foreach(reasons, i, reason)
	{
		if (!t->why)
			break;
		fprintf(t->out, "    - ");
		jm_text_wrap_on(t->out, json_string_value(reason), 6, 6, t->width);
	}
}

void jm_measure_print(const struct jm_measure_text *t, const json_t *record)
{
	put_command(t, record);
	put_time(t, record);
	put_energy(t, record);
	put_repeats(t, record);
	put_share(t, record);
	put_own_share(t, record);
	put_device_shares(t, record);
	put_context(t, record);
	jm_measure_settings_print(t, record);
	put_items(t, record);
	jm_measure_figures_show(t, record);
	jm_repeat_show(t->out, t->width, record);
	put_meters(t, record);
	put_phases(t, record);
	put_residue(t, record);
	put_quality(t, record);
}
