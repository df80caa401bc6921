/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark measure: the energy of any command. */
#include "cli.h"
#include "base/clock.h"
#include "measure/trace_csv.h"
#include "measure/launch.h"
#include "base/output.h"
#include "base/text.h"
#include "result/provenance.h"
#include "result/record.h"
#include "meter/source.h"
#include "base/json.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct jm_option options[] = {
	{.name = "source",
		.type = JM_TEXT,
		.argument = "S,...",
		.repeat = true,
		.help = "what to read: nvml, rapl, estimate, sim:NODE...; all that measure if not "
			"given"},
	{.name = "interval",
		.type = JM_DURATION,
		.unit = "s",
		.min = 0.0001,
		.max = 3600,
		.argument = "TIME",
		.help = "between readings, as 100ms; half the sensors' refresh if not given"},
	{.name = "json",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "write the record; - is stdout"},
	{.name = "csv",
		.type = JM_TEXT,
		.argument = "DIR",
		.help = "write every reading; 'replay:DIR' reads it back"},
	{.name = "items-regex",
		.type = JM_TEXT,
		.argument = "REGEX",
		.help = "count items in what the command prints; the first group is a number of "
			"items"},
	{.name = "items-json",
		.type = JM_TEXT,
		.argument = "KEY",
		.help = "count items from a key of JSON that the command prints, as result.tokens"},
	{0},
};

struct measurement {
	struct jm_cli *cli;
	const char *json, *csv;
	char **sources;
	int n_sources;
	struct jm_session *session;
	struct jm_outcome outcome;
	int64_t started_wall;
	int lost; /* the error that ended the trace */
};

/* ---- sources ---- */

static int add_source(struct measurement *m, const char *text, size_t n)
{
	char **grown = reallocarray(m->sources, (size_t)m->n_sources + 2, sizeof(*grown));

	if (!grown)
		return jm_err_set(&m->cli->err, JM_ENOMEM, "Out of memory for --source.");
	m->sources = grown;
	grown[m->n_sources] = strndup(text, n);
	grown[++m->n_sources] = NULL;
	return grown[m->n_sources - 1]
		       ? 0
		       : jm_err_set(&m->cli->err, JM_ENOMEM, "Out of memory for --source.");
}

static int split_sources(struct measurement *m, const char *text)
{
	int rc = 0;

	while (!rc && *text) {
		size_t n = jm_source_length(text);

		if (n)
			rc = add_source(m, text, n);
		text += n + (text[n] == ',');
	}
	return rc;
}

static int take_options(struct measurement *m)
{
	const struct jm_value *source = jm_values_get(&m->cli->values, "source");
	int rc = 0;

	m->json = jm_values_text(&m->cli->values, "json");
	m->csv = jm_values_text(&m->cli->values, "csv");
	for (int i = 0; !rc && i < source->n_texts; i++)
		rc = split_sources(m, source->texts[i]);
	if (!rc && m->json)
		rc = jm_output_try(m->json, &m->cli->err);
	if (!rc && m->csv)
		rc = jm_output_folder(m->csv, &m->cli->err);
	return rc;
}

/* ---- the record ---- */

static json_t *started_json(const struct measurement *m)
{
	char text[40];

	jm_time_text(m->started_wall, text, sizeof(text));
	return json_string(text);
}

static json_t *command_json(const struct measurement *m)
{
	json_t *words = json_array();

	/* what is not UTF-8 cannot be in JSON; the word is then left unknown */
	for (char **word = m->cli->command; *word; word++) {
		json_t *text = json_string(*word);

		json_array_append_new(words, text ? text : json_null());
	}
	return words;
}

static json_t *make_record(struct measurement *m, struct jm_err *err)
{
	const struct jm_outcome *o = &m->outcome;
	json_t *report = jm_session_report(m->session, o->phase, err), *record;

	if (!report)
		return NULL;
	record = json_pack("{s:s, s:n, s:o, s:f, s:i, s:o, s:o, s:s, s:o, s:o}", "schema",
		"joulemark.run/1", "id", "started", started_json(m), "wall_s", o->wall_s,
		"exit_status", o->status, "signal",
		o->signal ? json_integer(o->signal) : json_null(), "command", command_json(m),
		"clock", "real", "items", jm_json_number(o->items), "throughput",
		jm_json_number(o->throughput));
	if (record) {
		json_object_update(record, report);
		json_object_set_new(record, "provenance",
			jm_provenance(&m->cli->ctx, jm_session_meters(m->session), err));
	}
	json_decref(report);
	if (!record || !json_object_get(record, "provenance"))
		jm_err_set(err, JM_ENOMEM, "Out of memory for the record.");
	return record;
}

/* ---- the block on stderr ---- */

/* "1234.5 J", "17.3 kJ" */
static const char *joules(char *out, size_t size, double value)
{
	static const char *const units[] = {"mJ", "J", "kJ", "MJ", "GJ"};
	int unit = 1;

	if (isnan(value)) {
		snprintf(out, size, "unknown");
		return out;
	}
	if (value != 0 && fabs(value) < 0.1) {
		value *= 1000;
		unit = 0;
	}
	for (; fabs(value) >= 100000 && unit < 4; unit++)
		value /= 1000;
	snprintf(out, size, fabs(value) >= 1000 ? "%.0f %s" : "%.4g %s", value, units[unit]);
	return out;
}

static const char *watts(char *out, size_t size, double value)
{
	if (isnan(value))
		snprintf(out, size, "unknown");
	else
		snprintf(out, size, "%.4g W", value);
	return out;
}

/* Wide enough for the longest label, within reason. */
static int label_width(const json_t *meters)
{
	const json_t *meter;
	size_t i, width = 14;

	json_array_foreach(meters, i, meter) if (strlen(jm_json_text(meter, "label")) > width)
		width = strlen(jm_json_text(meter, "label"));
	return width < 48 ? (int)width : 48;
}

static void print_meter(const json_t *meter, int width, double wall_s)
{
	char energy[32], bound[32] = "", mean[32], most[32], calibration[48] = "";
	double e = jm_json_real_of(meter, "joules"),
	       s = jm_json_real_of(meter, "error_sampling_joules");
	double c = jm_json_real_of(meter, "error_calibration_joules");
	const char *origin = jm_json_text(meter, "origin");

	/* beside a model's error that of sampling says nothing */
	if (!isnan(s) && strcmp(origin, "estimated") != 0)
		joules(bound, sizeof(bound), s);
	if (!isnan(c) && e > 0)
		snprintf(calibration, sizeof(calibration), " (calibration \302\261%.2g %%)",
			100 * c / e);
	fprintf(stderr, "  %-*.*s %10s %s%-8s  mean %9s  max %9s%s", width, width,
		jm_json_text(meter, "label"), joules(energy, sizeof(energy), e),
		*bound ? "\302\261 " : "  ", bound,
		watts(mean, sizeof(mean), jm_json_real_of(meter, "watts_mean")),
		watts(most, sizeof(most), jm_json_real_of(meter, "watts_max")), calibration);
	if (isnan(e))
		fprintf(stderr, "  known for %.3g of %.3g s", jm_json_real_of(meter, "covered_s"),
			wall_s);
	if (json_is_string(json_object_get(meter, "covered_by")))
		fprintf(stderr, "  (part of another)");
	if (strcmp(origin, "measured") != 0)
		fprintf(stderr, "  [%s]", origin);
	fprintf(stderr, "\n");
}

static bool any_of_origin(const json_t *meters, const char *origin)
{
	const json_t *meter;
	size_t i;

	json_array_foreach(
		meters, i, meter) if (!strcmp(jm_json_text(meter, "origin"), origin)) return true;
	return false;
}

/* A total that is not known is said beside those that are. */
static void print_total(const json_t *record, int width)
{
	static const char *const origins[] = {"measured", "estimated", "simulated", "replayed"};
	const json_t *total = json_object_get(record, "total");
	const json_t *meters = json_object_get(record, "meters");
	bool first = true;

	fprintf(stderr, "  %-*s ", width, "Total");
	for (size_t i = 0; i < sizeof(origins) / sizeof(origins[0]); i++) {
		char key[32], energy[32];

		if (!any_of_origin(meters, origins[i]))
			continue;
		snprintf(key, sizeof(key), "joules_%s", origins[i]);
		joules(energy, sizeof(energy), jm_json_real_of(total, key));
		fprintf(stderr, "%s%*s %s", first ? "" : " + ", first ? 10 : 0, energy, origins[i]);
		first = false;
	}
	fprintf(stderr, "%s\n", first ? "   unknown" : "");
}

/* All items, and the rate of the stretch that marks tell of. */
static void print_throughput(const json_t *record, bool marked, int width)
{
	double rate = jm_json_real_of(record, "throughput"),
	       items = jm_json_real_of(record, "items");

	if (isnan(items))
		return;
	fprintf(stderr, "  %-*s %10.6g items", width, "Items", items);
	if (!isnan(rate))
		fprintf(stderr, ", %.4g/s%s", rate,
			marked ? " between the first mark and the last" : "");
	fprintf(stderr, "\n");
}

/* Its words are anything: neither half of a letter nor what a terminal obeys is printed. */
static void print_command(char **words)
{
	for (; *words; words++) {
		char *word = strdup(*words);

		if (word)
			jm_text_tame(word);
		fprintf(stderr, "%s%s", word ? word : "?", words[1] ? " " : "\n");
		free(word);
	}
}

static void print_block(const struct measurement *m, const json_t *record)
{
	const json_t *quality = json_object_get(record, "quality"), *item;
	int width = label_width(json_object_get(record, "meters"));
	double wall_s = m->outcome.wall_s;
	size_t i;

	fprintf(stderr, "joulemark: ");
	print_command(m->cli->command);
	fprintf(stderr, "  %-*s %8.3f s  exit status %d\n", width, "Time", wall_s,
		m->outcome.status);
	json_array_foreach(json_object_get(record, "meters"), i, item)
		print_meter(item, width, wall_s);
	print_total(record, width);
	print_throughput(record, m->outcome.marked != m->outcome.phase, width);
	fprintf(stderr, "  %-*s %10s\n", width, "Quality", jm_json_text(quality, "grade"));
	json_array_foreach(json_object_get(quality, "reasons"), i, item)
		fprintf(stderr, "    - %s\n", json_string_value(item));
}

/* ---- the run ---- */

typedef void handler(int);

/* Nobody may be listening to us any more (| head): the record is written all the same. The command gets
 * back what we were given. */
static int give_back_pipe_signal(void *arg)
{
	handler *const *before = arg;

	return signal(SIGPIPE, *before) == SIG_ERR;
}

static int run_command(struct measurement *m)
{
	struct jm_cli *cli = m->cli;
	handler *before = signal(SIGPIPE, SIG_IGN);
	struct jm_launch_options o = {
		.argv = cli->command,
		.items_regex = jm_values_text(&cli->values, "items-regex"),
		.items_json = jm_values_text(&cli->values, "items-json"),
		.out_fd = 1,
		.before_exec = give_back_pipe_signal,
		.before_exec_arg = &before,
	};
	int rc = jm_session_start(m->session, &cli->err);

	if (rc)
		return rc;
	m->started_wall = jm_clock_wall(cli->ctx.clock);
	rc = jm_launch(&cli->ctx, m->session, &o, &m->outcome, &cli->err);
	if (rc == JM_ENOENT || rc == JM_EPERM)
		m->outcome.status = jm_proc_status_of(rc);
	/* A trace that could not be kept is told in the end; what is known is reported all the same. */
	if (jm_session_stop(m->session, rc ? NULL : &cli->err) && !rc)
		m->lost = cli->err.code;
	return rc;
}

static int open_session(struct measurement *m)
{
	double interval = jm_values_number(&m->cli->values, "interval");
	struct jm_session_options o = {
		.sources = (const char *const *)m->sources,
		.interval_ns = isnan(interval) ? 0 : (int64_t)(interval * 1e9),
	};

	return jm_session_open(&m->cli->ctx, &o, &m->session, &m->cli->err);
}

static int write_results(struct measurement *m)
{
	json_t *record = make_record(m, &m->cli->err);
	int rc;

	if (!record)
		return m->cli->err.code;
	print_block(m, record);
	rc = m->json ? jm_output_json(m->json, record, &m->cli->err) : 0;
	json_decref(record);
	if (m->csv && jm_csv_write(m->session, m->csv, rc ? NULL : &m->cli->err) && !rc)
		rc = m->cli->err.code;
	return rc;
}

/* The command's status wins; ours is told where it had none, or had success. */
static int status_of(struct measurement *m, int rc)
{
	int ours = rc ? jm_cli_fail(m->cli) : 0;

	return m->outcome.status ? m->outcome.status : ours;
}

static int measure(struct jm_cli *cli)
{
	struct measurement m = {.cli = cli};
	int rc, status;

	if (!cli->command) {
		jm_err_set(&cli->err, JM_EUSAGE,
			"No command to measure; write it behind '--': joulemark measure -- CMD.");
		return jm_cli_fail(cli);
	}
	rc = take_options(&m);
	if (!rc)
		rc = open_session(&m);
	if (!rc)
		rc = run_command(&m);
	if (!rc)
		rc = write_results(&m);
	if (!rc && m.outcome.output_errno)
		rc = jm_err_set(&cli->err, JM_EIO,
			"What the command printed could not all be written to standard output: %s.",
			strerror(m.outcome.output_errno));
	if (!rc)
		rc = m.lost;
	status = status_of(&m, rc);
	jm_session_close(m.session);
	for (int i = 0; i < m.n_sources; i++)
		free(m.sources[i]);
	free(m.sources);
	return status;
}

const struct jm_command jm_command_measure = {
	.name = "measure",
	.summary = "the energy of any command",
	.usage = "[options] -- CMD...",
	.description = "Runs CMD and tells what energy each meter used meanwhile, with its bounds. "
		       "CMD's output "
		       "is left alone; the figures go to stderr. The exit status is CMD's: 128 + "
		       "signal when it "
		       "was killed, 127 when it is not there, 126 when it cannot be executed; 125 "
		       "is a failure "
		       "of joulemark itself.\n\n"
		       "Marks from inside CMD ('joulemark mark') become phases with their items.",
	.example = "joulemark measure -- python train.py\n"
		   "joulemark measure --source nvml,rapl --json run.json -- ./train",
	.options = options,
	.max_args = 0,
	.takes_command = true,
	.run = measure,
};
