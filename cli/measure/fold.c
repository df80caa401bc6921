/* SPDX-License-Identifier: Apache-2.0 */
/* fold: power inside work that is far shorter than the sensor's period, from a recording of many
 * runs of it. */
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"

#include "base/text/json.h"
#include "base/files/output.h"
#include "base/printable.h"
#include "energy/folded_power.h"
#include "energy/sensor_fit.h"
#include "measure/session/recording.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct call {
	const char *phase, *meter, *json; /* NULL = not given */
	int bins;			  /* 0 = not given */
	struct jm_fold_sensor sensor;	  /* window_s: NAN = not given */
};

static const struct jm_option options[] = {
	{.name = "phase",
		JM_BIND(JM_TEXT, struct call, phase),
		.argument = "NAME",
		.help = "name of the phase that is a run of the work; without it the most frequent "
			"phase"},
	{.name = "meter",
		JM_BIND(JM_TEXT, struct call, meter),
		.argument = "ID",
		.help = "use this meter only"},
	{.name = "bins",
		JM_BIND(JM_INT, struct call, bins),
		.min = 1,
		.max = JM_FOLD_BINS,
		.argument = "N",
		.help = "number of parts of the work; without it as many as have an uncertainty of "
			"at most 15 % of the mean power"},
	{.name = "window",
		JM_BIND(JM_DURATION, struct call, sensor.window_s),
		.unit = "s",
		.min = 1e-6,
		.max = 100,
		.argument = "TIME",
		.help = "averaging window of the sensor; without it the one in the recording"},
	{.name = "delay",
		JM_BIND(JM_DURATION, struct call, sensor.delay_s),
		.unit = "s",
		.min = 0,
		.max = 100,
		.argument = "TIME",
		.fallback = "0s",
		.help = "delay of the sensor, as 'joulemark calibrate' found it"},
	{.name = "lag",
		JM_BIND(JM_DURATION, struct call, sensor.lag_s),
		.unit = "s",
		.min = 0,
		.max = 100,
		.argument = "TIME",
		.fallback = "0s",
		.help = "time constant with which the sensor follows power: the rise and fall that "
			"'joulemark calibrate' found"},
	{JM_JSON_ROW("also write the result as JSON; without a file to standard output"),
		JM_BIND(JM_TEXT, struct call, json), .takes_next = jm_json_next},
	{0},
};

/* ---- one signal ---- */

/* The uncertainty of the time of polled readings: the usual distance of two of them. */
static double polling_s(const struct jm_recorded_signal *s)
{
	int64_t shortest = INT64_MAX;

	if (s->about.stamped)
		return 0;
	for (int i = 1; i < s->n; i++)
		if (s->reading[i].value != s->reading[i - 1].value &&
			s->reading[i].t_ns - s->reading[i - 1].t_ns < shortest)
			shortest = s->reading[i].t_ns - s->reading[i - 1].t_ns;
	return shortest == INT64_MAX ? 0 : (double)shortest * 1e-9;
}

static int fold_signal(const struct call *c, const struct jm_recording *r,
	const struct jm_recorded_signal *s, struct jm_fold *ret, struct jm_err *err)
{
	struct jm_fold_sensor sensor = c->sensor;
	struct jm_reading *change;
	int n, first, rc;

	if (isnan(sensor.window_s) && s->about.window_ns <= 0)
		return jm_err_set(err, JM_ENOENT,
			"The averaging window of the power sensor of %s is unknown; 'joulemark "
			"calibrate' finds it, and --window gives it.",
			s->label);
	if (isnan(sensor.window_s))
		sensor.window_s = (double)s->about.window_ns * 1e-9;
	change = calloc((size_t)s->n + 1, sizeof(*change));
	if (!change)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the recording %s.", r->folder);
	n = jm_sensor_changes(&s->about, s->reading, s->n, change);
	first = !s->about.stamped && n > 0; /* the time at which the first value began is unknown */
	sensor.least_s = polling_s(s);
	rc = jm_fold(change + first, n - first, &r->runs, &sensor, c->bins, ret, err);
	free(change);
	return rc;
}

/* ---- output ---- */

static json_t *fold_json(const struct jm_recorded_signal *s, const struct jm_fold *f)
{
	json_t *watts = json_array(), *error = json_array();
	json_t *json = json_object();

	for (int k = 0; k < f->bins; k++) {
		json_array_append_new(watts, jm_json_number(f->watts[k]));
		json_array_append_new(error, jm_json_number(f->error[k]));
	}
	jm_json_set_text(&json, "meter", s->meter);
	jm_json_set_text(&json, "label", s->label);
	jm_json_set_number(&json, "duration_s", f->duration_s);
	jm_json_set_number(&json, "resolution_s", f->duration_s / f->bins);
	jm_json_set_int(&json, "readings", f->readings);
	jm_json_set_int(&json, "inside", f->inside);
	jm_json_set_number(&json, "base_watts", f->base_watts);
	jm_json_set_number(&json, "base_error_watts", f->base_error);
	jm_json_set(&json, "watts", watts);
	jm_json_set(&json, "error_watts", error);
	jm_json_set_number(&json, "joules", f->joules);
	jm_json_set_number(&json, "error_joules", f->joules_error);
	jm_json_set_number(&json, "rms_watts", f->rms_watts);
	return json;
}

static void put_fold(const struct jm_cli *cli, const struct jm_recording *r, const char *phase,
	const struct jm_recorded_signal *s, const struct jm_fold *f)
{
	double bin = 1e3 * f->duration_s / f->bins;

	fprintf(cli->out, "%s: %d runs of '%s', %.4g ms each\n", s->label, r->runs.n, phase,
		1e3 * f->duration_s);
	fprintf(cli->out,
		"  %d readings, %d of them of the time of a run; resolution %.3g ms; %.3g W not "
		"explained\n\n",
		f->readings, f->inside, bin, f->rms_watts);
	fprintf(cli->out, "  %8s %8s %9s %9s\n", "from ms", "to ms", "W", "± W");
	for (int k = 0; k < f->bins; k++)
		fprintf(cli->out, "  %8.4g %8.4g %9.1f %8.1f\n", k * bin, (k + 1) * bin,
			f->watts[k], f->error[k]);
	fprintf(cli->out, "  %17s %9.1f %8.1f\n", "between runs", f->base_watts, f->base_error);
	fprintf(cli->out, "\n  One run: %.4g J ± %.2g J (95 %%, sampling only)\n", f->joules,
		f->joules_error);
}

/* One meter whose sensor or readings do not allow it is left out, with the reason; the others are
 * folded. */
static int leave_out(struct jm_cli *cli, const struct jm_recorded_signal *s,
	const struct jm_err *why, json_t *left_out)
{
	json_array_append_new(left_out, json_pack("{s:s, s:s, s:s}", "meter", s->meter, "label",
						s->label, "reason", why->text));
	jm_err_set(&cli->err, why->code, "%s", why->text);
	return why->code == JM_ENOMEM ? why->code : 0;
}

static void warn_left_out(const struct jm_cli *cli, const json_t *left_out)
{
	const json_t *one;
	size_t i;

	json_array_foreach(left_out, i, one)
	{
		jm_log(&cli->ctx, JM_WARNING, "%s (%s) is left out: %s", jm_json_text(one, "label"),
			jm_json_text(one, "meter"), jm_json_text(one, "reason"));
	}
}

/* The text is omitted where JSON goes to the same output. */
static bool is_text_wanted(const struct jm_cli *cli, const struct call *c)
{
	return !c->json || strcmp(c->json, "-") != 0 || cli->output;
}

static int fold_all(struct jm_cli *cli, const struct call *c, const struct jm_recording *r,
	const char *phase, json_t *all, json_t *left_out)
{
	const char *wanted = c->meter;
	int rc = 0;

	for (int i = 0; i < r->n_signals && !rc; i++) {
		const struct jm_recorded_signal *s = &r->signal[i];
		struct jm_err err = JM_ERR_INIT;
		struct jm_fold fold;

		if (!s->power || (wanted && strcmp(wanted, s->meter) != 0))
			continue;
		if (fold_signal(c, r, s, &fold, &err)) {
			rc = leave_out(cli, s, &err, left_out);
			continue;
		}
		if (is_text_wanted(cli, c)) {
			if (json_array_size(all))
				fputc('\n', cli->out);
			put_fold(cli, r, phase, s, &fold);
		}
		json_array_append_new(all, fold_json(s, &fold));
	}
	if (json_array_size(all))
		warn_left_out(cli, left_out);
	else if (!json_array_size(left_out))
		jm_err_set(&cli->err, JM_ENOENT, "The recording %s has no readings of power%s%s.",
			r->folder, wanted ? " of the meter " : "", wanted ? wanted : "");
	return rc || json_array_size(all) ? rc : cli->err.code;
}

static int fold(struct jm_cli *cli)
{
	struct jm_recording r;
	struct call c = {0};
	json_t *all = json_array(), *left_out = json_array(), *whole;
	char phase[128] = "";
	int rc;

	JM_FILL(&cli->values, &c);
	snprintf(phase, sizeof(phase), "%s", c.phase ? c.phase : "");
	jm_text_tame(phase);
	rc = jm_recording_read(&r, cli->args[0], &cli->err);
	if (!rc && !c.phase)
		rc = jm_recording_phase(&r, phase, sizeof(phase));
	if (!rc)
		rc = jm_recording_runs(&r, phase);
	if (!rc)
		rc = fold_all(cli, &c, &r, phase, all, left_out);
	whole = json_pack("{s:s, s:i, s:o, s:o}", "phase", phase, "runs", r.runs.n, "meters", all,
		"left_out", left_out);
	if (!rc && c.json)
		rc = jm_output_json(c.json, whole, &cli->err);
	json_decref(whole);
	jm_recording_done(&r);
	if (rc)
		jm_cli_fail(cli);
	/* readings that do not suffice are no wrong usage */
	return !rc ? 0 : rc == JM_EUSAGE ? JM_EXIT_USAGE : JM_EXIT_FAILURE;
}

const struct jm_command jm_command_fold = {
	.name = "fold",
	.summary = "resolve the power inside work that is far shorter than the sensor's period",
	.usage = "[options] DIR",
	.description =
		"Reads a recording of 'joulemark measure --csv DIR' in which each run of the work "
		"is a phase, and fits the power inside one run to the readings of all of them: a "
		"reading whose window holds only a part of a run depends on the power in that part "
		"alone. Each run must begin at a different point of the sensor's period, with "
		"pauses between runs that are longer than its window and of random length. Runs "
		"back to back are refused, since every reading is then the mean of several.\n\n"
		"A meter is left out, with a warning, if the window of its sensor is unknown or if "
		"its readings do not suffice.\n\n"
		"The uncertainty (95 %) is that of sampling; it does not include the accuracy of "
		"the sensor, nor that of --window, --delay and --lag.",
	.example = "joulemark measure --csv trace --source nvml:samples -- python3 kernels.py\n"
		   "joulemark fold --phase kernel --window 2.5ms --delay 2ms --lag 15ms trace",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = fold,
};
