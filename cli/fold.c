/* SPDX-License-Identifier: Apache-2.0 */
/* fold: power inside work that is far shorter than the sensor's period, from a recording of many runs of it. */
#include "cli.h"

#include "base/clock.h"
#include "base/csv.h"
#include "base/json.h"
#include "base/number.h"
#include "base/output.h"
#include "energy/fold.h"
#include "energy/sensor_fit.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SIGNALS 1024
#define COLUMNS	     15 /* of meters.csv */

static const struct jm_option options[] = {
	{.name = "phase",
		.type = JM_TEXT,
		.argument = "NAME",
		.help = "the phase that each run of the work is; the default is the one that "
			"occurs most often"},
	{.name = "meter", .type = JM_TEXT, .argument = "ID", .help = "of this meter only"},
	{.name = "bins",
		.type = JM_INT,
		.min = 1,
		.max = JM_FOLD_BINS,
		.argument = "N",
		.help = "parts of the work; without it as many as are certain to 15 % of its mean "
			"power"},
	{.name = "window",
		.type = JM_DURATION,
		.unit = "s",
		.min = 1e-6,
		.max = 100,
		.argument = "TIME",
		.needs_unit = true,
		.help = "over which the sensor averages; without it what the recording says"},
	{.name = "delay",
		.type = JM_DURATION,
		.unit = "s",
		.min = 0,
		.max = 100,
		.argument = "TIME",
		.needs_unit = true,
		.fallback = "0s",
		.help = "of the sensor, as 'joulemark calibrate' found it"},
	{.name = "json", .type = JM_TEXT, .argument = "FILE", .help = "write it as JSON too"},
	{0},
};

struct signal {
	char meter[JM_ID_MAX], label[64];
	struct jm_signal about; /* quantity JM_Q_POWER; else it is not used */
	bool power;
	struct jm_reading *reading;
	int n, room;
};

struct recording {
	const char *folder;
	struct jm_err *err;
	struct signal *signal;
	int n_signals;
	struct jm_fold_runs runs;
	int64_t *begin, *end;
	int room;
};

/* ---- reading what `measure --csv` wrote ---- */

static int damaged(const struct recording *r, const char *file, int line)
{
	return jm_err_set(r->err, JM_EFORMAT,
		"%s/%s, line %d is damaged; it is not what 'measure --csv' wrote.", r->folder, file,
		line);
}

static int no_memory(const struct recording *r)
{
	return jm_err_set(r->err, JM_ENOMEM, "Out of memory for the recording %s.", r->folder);
}

typedef int row_fn(struct recording *r, char **field, int n, void *arg);

/* Each row after the heading; a row that it refuses is damage. */
static int each_row(struct recording *r, const char *file, int columns, const char *first,
	row_fn *row, void *arg)
{
	char path[PATH_MAX], *line = NULL, *field[COLUMNS];
	int n, rc = 0, at = 1;
	size_t room = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", r->folder, file);
	f = fopen(path, "re");
	if (!f)
		return jm_err_set(r->err, errno == EACCES ? JM_EPERM : JM_ENOENT,
			"Cannot read %s: %s; 'joulemark fold' takes a folder that 'joulemark "
			"measure --csv' wrote.",
			path, strerror(errno));
	if (jm_csv_row(f, &line, &room, field, columns) != columns || strcmp(field[0], first) != 0)
		rc = damaged(r, file, at);
	while (!rc && (n = jm_csv_row(f, &line, &room, field, columns)) != 0) {
		at++;
		rc = n == columns ? row(r, field, n, arg) : JM_EFORMAT;
		if (rc == JM_EFORMAT)
			rc = damaged(r, file, at);
	}
	free(line);
	fclose(f);
	return rc;
}

static int64_t to_ns(const char *text)
{
	double s;

	return jm_number_real(text, &s) && fabs(s) < 1e9 ? llround(s * 1e9) : INT64_MIN;
}

static int take_signal(struct recording *r, char **field, int n, void *arg)
{
	struct signal *grown, *s;
	double window, number;

	(void)n;
	(void)arg;
	if (r->n_signals == MOST_SIGNALS || !jm_number_real(field[0], &number) ||
		number != r->n_signals)
		return JM_EFORMAT;
	grown = reallocarray(r->signal, (size_t)r->n_signals + 1, sizeof(*grown));
	if (!grown)
		return no_memory(r);
	r->signal = grown;
	s = &r->signal[r->n_signals++];
	*s = (struct signal){
		.power = !strcmp(field[7], jm_quantity_name(JM_Q_POWER)),
		.about = {.quantity = JM_Q_POWER,
			.window_ns = -1,
			.stamped = !strcmp(field[14], "1")},
	};
	snprintf(s->meter, sizeof(s->meter), "%.127s", field[1]);
	snprintf(s->label, sizeof(s->label), "%.63s", field[2]);
	if (jm_number_real(field[12], &window) && window >= 0 && window < 1e6)
		s->about.window_ns = llround(window * 1e9);
	return 0;
}

static int take_reading(struct recording *r, char **field, int n, void *arg)
{
	double number, value = NAN;
	int64_t t = to_ns(field[1]);
	struct signal *s;

	(void)n;
	(void)arg;
	if (!jm_number_real(field[0], &number) || !(number >= 0 && number < r->n_signals) ||
		t == INT64_MIN || (*field[2] && !jm_number_real(field[2], &value)))
		return JM_EFORMAT;
	s = &r->signal[(int)number];
	if (!s->power)
		return 0;
	if (s->n && t < s->reading[s->n - 1].t_ns)
		return JM_EFORMAT;
	if (s->n == s->room) {
		int room = s->room ? 2 * s->room : 1024;
		struct jm_reading *grown = reallocarray(s->reading, (size_t)room, sizeof(*grown));

		if (!grown)
			return no_memory(r);
		s->reading = grown;
		s->room = room;
	}
	s->reading[s->n++] = (struct jm_reading){.value = value, .t_ns = t};
	return 0;
}

static int grow_runs(struct recording *r)
{
	int room = r->room ? 2 * r->room : 256;
	int64_t *begin = reallocarray(r->begin, (size_t)room, sizeof(*begin)), *end;

	if (begin)
		r->begin = begin;
	end = begin ? reallocarray(r->end, (size_t)room, sizeof(*end)) : NULL;
	if (!end)
		return no_memory(r);
	r->end = end;
	r->room = room;
	return 0;
}

/* arg: the name of the phase */
static int take_run(struct recording *r, char **field, int n, void *arg)
{
	int64_t begin = to_ns(field[1]), end = to_ns(field[2]);
	int i = r->runs.n, rc;

	(void)n;
	if (begin == INT64_MIN || end < begin)
		return JM_EFORMAT;
	if (strcmp(field[0], arg) != 0)
		return 0;
	if (i && begin < r->end[i - 1])
		return JM_EFORMAT;
	rc = i == r->room ? grow_runs(r) : 0;
	if (rc)
		return rc;
	r->begin[i] = begin;
	r->end[i] = end;
	r->runs = (struct jm_fold_runs){r->begin, r->end, i + 1};
	return 0;
}

/* ---- which phase ---- */

struct most {
	json_t *count; /* name -> how often */
	const char *name;
	json_int_t times;
};

static int count_phase(struct recording *r, char **field, int n, void *arg)
{
	struct most *m = arg;
	json_int_t times = json_integer_value(json_object_get(m->count, field[0])) + 1;

	(void)n;
	if (json_object_set_new(m->count, field[0], json_integer(times)))
		return no_memory(r);
	return 0;
}

static int most_frequent(struct recording *r, char *out, size_t size)
{
	struct most m = {.count = json_object()};
	const char *name;
	json_t *times;
	int rc = each_row(r, "phases.csv", 4, "name", count_phase, &m);

	json_object_foreach(m.count, name, times)
	{
		if (json_integer_value(times) <= m.times)
			continue;
		m.times = json_integer_value(times);
		snprintf(out, size, "%s", name);
	}
	json_decref(m.count);
	if (!rc && !m.times)
		rc = jm_err_set(r->err, JM_ENOENT,
			"The recording %s has no phases; mark each run of the work in the measured "
			"program.",
			r->folder);
	return rc;
}

/* ---- one signal ---- */

/* What readings that were taken by polling do not tell of their time: the usual distance of two of them. */
static double polling_s(const struct signal *s)
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

static int fold_signal(const struct jm_cli *cli, const struct recording *r, const struct signal *s,
	struct jm_fold *ret)
{
	double window = jm_values_number(&cli->values, "window");
	double bins = jm_values_number(&cli->values, "bins");
	struct jm_reading *change;
	int n, first, rc;

	if (isnan(window) && s->about.window_ns <= 0)
		return jm_err_set(r->err, JM_ENOENT,
			"The averaging window of the power sensor of %s is unknown; 'joulemark "
			"calibrate' finds it, and --window gives it.",
			s->label);
	window = isnan(window) ? (double)s->about.window_ns * 1e-9 : window;
	change = calloc((size_t)s->n + 1, sizeof(*change));
	if (!change)
		return no_memory(r);
	n = jm_sensor_changes(&s->about, s->reading, s->n, change);
	first = !s->about.stamped && n > 0; /* nobody saw that one come */
	rc = jm_fold(change + first, n - first, &r->runs, window,
		jm_values_number(&cli->values, "delay"), polling_s(s), isnan(bins) ? 0 : (int)bins,
		ret, r->err);
	free(change);
	return rc;
}

/* ---- output ---- */

static json_t *fold_json(const struct signal *s, const struct jm_fold *f)
{
	json_t *watts = json_array(), *error = json_array();

	for (int k = 0; k < f->bins; k++) {
		json_array_append_new(watts, jm_json_number(f->watts[k]));
		json_array_append_new(error, jm_json_number(f->error[k]));
	}
	return json_pack("{s:s, s:s, s:f, s:f, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
		"meter", s->meter, "label", s->label, "duration_s", f->duration_s, "resolution_s",
		f->duration_s / f->bins, "readings", f->readings, "inside", f->inside, "base_watts",
		jm_json_number(f->base_watts), "base_error_watts", jm_json_number(f->base_error),
		"watts", watts, "error_watts", error, "joules", jm_json_number(f->joules),
		"error_joules", jm_json_number(f->joules_error), "rms_watts",
		jm_json_number(f->rms_watts));
}

static void put_fold(const struct jm_cli *cli, const struct recording *r, const char *phase,
	const struct signal *s, const struct jm_fold *f)
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

static int fold_all(struct jm_cli *cli, const struct recording *r, const char *phase, json_t *all)
{
	const char *wanted = jm_values_text(&cli->values, "meter");
	int rc = 0, done = 0;

	for (int i = 0; i < r->n_signals && !rc; i++) {
		const struct signal *s = &r->signal[i];
		struct jm_fold fold;

		if (!s->power || (wanted && strcmp(wanted, s->meter) != 0))
			continue;
		rc = fold_signal(cli, r, s, &fold);
		if (rc)
			break;
		if (done++)
			fputc('\n', cli->out);
		put_fold(cli, r, phase, s, &fold);
		json_array_append_new(all, fold_json(s, &fold));
	}
	if (!rc && !done)
		rc = jm_err_set(&cli->err, JM_ENOENT,
			"The recording %s has no readings of power%s%s.", r->folder,
			wanted ? " of the meter " : "", wanted ? wanted : "");
	return rc;
}

static void done_recording(struct recording *r)
{
	for (int i = 0; i < r->n_signals; i++)
		free(r->signal[i].reading);
	free(r->signal);
	free(r->begin);
	free(r->end);
}

static int fold(struct jm_cli *cli)
{
	struct recording r = {.folder = cli->args[0], .err = &cli->err};
	const char *json = jm_values_text(&cli->values, "json");
	const char *given = jm_values_text(&cli->values, "phase");
	json_t *all = json_array(), *whole;
	char phase[128] = "";
	int rc;

	snprintf(phase, sizeof(phase), "%s", given ? given : "");
	rc = each_row(&r, "meters.csv", COLUMNS, "signal", take_signal, NULL);
	if (!rc)
		rc = each_row(&r, "readings.csv", 3, "signal", take_reading, NULL);
	if (!rc && !given)
		rc = most_frequent(&r, phase, sizeof(phase));
	if (!rc)
		rc = each_row(&r, "phases.csv", 4, "name", take_run, phase);
	if (!rc)
		rc = fold_all(cli, &r, phase, all);
	whole = json_pack("{s:s, s:i, s:o}", "phase", phase, "runs", r.runs.n, "meters", all);
	if (!rc && json)
		rc = jm_output_json(json, whole, &cli->err);
	json_decref(whole);
	done_recording(&r);
	if (rc)
		jm_cli_fail(cli);
	/* readings that do not suffice are no wrong usage */
	return !rc ? 0 : rc == JM_EUSAGE ? JM_EXIT_USAGE : JM_EXIT_FAILURE;
}

const struct jm_command jm_command_fold = {
	.name = "fold",
	.summary = "power inside work that is far shorter than the sensor's period",
	.usage = "[options] DIR",
	.description =
		"Reads a recording of 'joulemark measure --csv DIR' in which each run of the work "
		"is "
		"a phase, and fits the power inside one run to the readings of all of them: a "
		"sensor's window that holds only a part of a run tells of that part. Runs must "
		"begin at other points of the sensor's period each, with pauses between them that "
		"are longer than its window and of random length. Runs back to back are refused, "
		"since every reading is then the mean of several.\n\n"
		"The uncertainty (95 %) is that of sampling; the sensor's own accuracy is not in "
		"it.",
	.example = "joulemark measure --csv trace --interval 1ms -- python3 kernels.py\n"
		   "joulemark fold --phase kernel trace",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = fold,
};
