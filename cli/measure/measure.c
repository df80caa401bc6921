/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark measure: measure the energy of any command. */
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "cli/frame/interrupts.h"
#include "launcher_rank.h"
#include "live_line.h"
#include "measure.h"
#include "measure_record.h"
#include "repeat_figures.h"
#include "cli/settings/hold.h"
#include "cli/frame/screen.h"
#include "base/ctx.h"
#include "base/clock.h"
#include "measure/view/trace_csv.h"
#include "measure/command/launch.h"
#include "base/files/output.h"
#include "base/printable.h"
#include "report/text/data_frame.h"
#include "report/format/text.h"
#include "report/text/openmetrics.h"
#include "report/text/trace_hdf5.h"
#include "report/text/tuning_text.h"
#include "result/record.h"
#include "meter/source.h"
#include "base/text/json.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- options ---- */

/* A second recording would replace the first without a message. */
static int check_folder(const char *path, struct jm_err *err)
{
	char meters[PATH_MAX];

	snprintf(meters, sizeof(meters), "%s/meters.csv", path);
	if (!access(meters, F_OK))
		return jm_err_set(err, JM_EUSAGE,
			"The folder %s holds a recording; name another folder for --csv, or remove "
			"that one.",
			path);
	return jm_output_folder(path, err);
}

static int take_options(struct measurement *m)
{
	int rc = jm_device_sources(m->device, m->source_texts, &m->sources, &m->cli->err);

	if (!rc && m->phase_at && !m->phase_regex)
		rc = jm_err_set(&m->cli->err, JM_EUSAGE,
			"--phase-at says where the lines of --phase-regex stand; give both.");
	if (!rc && m->json)
		rc = jm_output_try(m->json, &m->cli->err);
	if (!rc && m->metrics)
		rc = jm_output_try(m->metrics, &m->cli->err);
	if (!rc && m->hdf5)
		rc = jm_columns_try_hdf5(&m->cli->err);
	if (!rc && m->hdf5)
		rc = jm_output_try(m->hdf5, &m->cli->err);
	if (!rc && m->csv)
		rc = check_folder(m->csv, &m->cli->err);
	return rc;
}

/* ---- the text ---- */

/* Of a search that has not ended: the values that it has seen. */
static void print_seen(FILE *out, int width, const json_t *record)
{
	const json_t *tune = json_object_get(record, "tune");
	struct jm_err none = JM_ERR_INIT;
	struct jm_grid grid;

	if (strcmp(jm_json_text(tune, "choice"), "open") != 0 ||
		jm_tuning_curve(tune, &grid, &none))
		return;
	fputc('\n', out);
	jm_grid_print(&grid, 2, width, out);
	jm_grid_done(&grid);
}

static void print_text_to(FILE *out, const struct measurement *m, const json_t *record)
{
	const struct jm_cli *cli = m->cli;
	struct jm_measure_text t = m->text;

	t.out = out;
	t.width = cli->output || cli->given_width ? cli->width : jm_screen_width(STDERR_FILENO);
	t.bold = !cli->output && jm_screen_colour(STDERR_FILENO);
	t.marked = m->outcome.marked != m->outcome.phase;
	jm_measure_print(&t, record);
	jm_tuning_print(record, out, t.width);
	print_seen(out, t.width, record);
}

/* Standard error, in one piece, so that the command's own output is left as it is; or the file of
 * --output. */
static void print_text(const struct measurement *m, const json_t *record)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = m->cli->output ? NULL : open_memstream(&text, &n);

	print_text_to(out ? out : m->cli->output ? m->cli->out : stderr, m, record);
	if (out && !fclose(out))
		fwrite(text, 1, n, stderr);
	free(text);
}

/* Of the ranks of a job the first one prints its summary; the store has those of all. */
static void print_summary(const struct measurement *m, const json_t *record, bool stored)
{
	bool joined = stored && m->store.path && json_is_object(json_object_get(record, "job"));
	int rank = joined ? jm_launcher_rank() : -1, world = jm_launcher_world();

	if (rank > 0)
		return;
	print_text(m, record);
	if (!rank && world > 1)
		jm_log(&m->cli->ctx, JM_INFO,
			"This is rank 0 of %d; 'joulemark report %s' adds up those in this store, "
			"each meter once.",
			world, m->store.path);
}

/* ---- the run ---- */

/* The reader of our output may have closed the pipe (| head); the record is still written. */
static int start_command(void *arg, const struct jm_repeat_once *what, struct jm_outcome *outcome)
{
	struct measurement *m = arg;
	struct jm_cli *cli = m->cli;
	jm_signal_handler *before = signal(SIGPIPE, SIG_IGN);
	struct jm_live_line line;
	struct jm_launch_options o = {
		.argv = what->argv,
		.items_regex = what->counted ? m->items.regex : NULL,
		.items_json = what->counted ? m->items.json : NULL,
		.items_kind = jm_item_kind_of(what->counted ? m->items.kind : NULL),
		.phase_regex = what->counted ? m->phase_regex : NULL,
		.phase_at_end = m->phase_at && !strcmp(m->phase_at, "end"),
		.out_fd = 1,
		.shared_phase = what->phase,
		.phase_name = what->phase_name,
		.before_exec = jm_give_back_pipe_signal,
		.before_exec_arg = &before,
		.interrupted = jm_last_interrupt,
		.tick = jm_live_line_tick,
		.arg = &line,
		.progress = m->tune ? jm_tune_progress : NULL,
		.progress_arg = m->tune,
		.mark = m->tune ? jm_tune_mark : NULL,
		.mark_arg = m->tune,
	};
	int rc;

	if (what->counted)
		jm_own_share_begin(&m->own, m->session, &cli->ctx);
	jm_live_line_open(&line, cli, m->session, m->items.unit);
	line.store = m->store_path;
	/* where the command prints to the terminal, the line would stand in the middle of its
	 * output */
	line.draws = line.draws && !isatty(STDOUT_FILENO);
	for (char *const *word = what->argv; *word; word++)
		jm_text_append(line.work, sizeof(line.work), *line.work ? " " : "", *word);
	/* where there are settings they are restored first, so that signals are counted */
	if (!m->tune && !m->settings.guard)
		jm_note_first_interrupt();
	rc = jm_launch(&cli->ctx, m->session, &o, outcome, &cli->err);
	if (what->counted)
		jm_own_share_end(&m->own, &cli->ctx);
	jm_live_line_close(&line);

	if (rc == JM_ENOENT || rc == JM_EPERM)
		outcome->status = jm_proc_status_of(rc);
	if (rc == JM_EINTR)
		outcome->status = 128 + jm_last_interrupt();
	return rc;
}

static int launch(void *arg, const struct jm_repeat_once *what, struct jm_outcome *outcome)
{
	struct measurement *m = arg;

	if (!m->settings.guard || !jm_last_interrupt())
		return start_command(m, what, outcome);
	outcome->status = 128 + jm_last_interrupt();
	return jm_err_set(&m->cli->err, JM_EINTR, "Interrupted; the command was not started.");
}

static json_t *run_record(
	const struct measurement *m, const struct jm_repeat_run *run, struct jm_err *err)
{
	int64_t after_ns = run->outcome.start_ns - jm_session_began(m->session);
	struct measurement one = *m;

	one.repeats = false;
	one.of_run = true;
	one.command = m->repeat.command[run->command];
	one.started_wall += after_ns;
	one.outcome = run->outcome;
	one.outcome.phase = m->repeat.group[run->group].phase;
	return jm_measure_record(&one, err);
}

/* Of the runs from `first` on, without those that were cut short. room: for all of them */
static int make_stored(
	struct measurement *m, int first, struct jm_stored_run *room, int *n, struct jm_err *err)
{
	struct jm_measure_repeat *r = &m->repeat;
	int rc = 0;

	for (int i = first; !rc && i < r->runs; i++) {
		struct jm_repeat_run *run = &r->run[i];

		if (run->cut_short)
			continue;
		room[*n] = (struct jm_stored_run){
			.command = run->command,
			.block = r->n_commands > 1 ? run->block : 0,
			.position = r->n_commands > 1 ? run->position : 0,
			.t0_ns = run->outcome.start_ns,
			.t1_ns = run->outcome.end_ns,
			.record = run_record(m, run, err),
		};
		rc = room[*n].record ? 0 : err->code;
		if (!rc)
			jm_repeat_take_joules(r, run, m->session, room[*n].record);
		*n += !rc;
	}
	return rc;
}

/* A record of each run that has none yet. last: nothing comes afterwards, so that a busy store is
 * waited for, and what it does not take is written beside it. */
static int store_runs(
	struct measurement *m, struct jm_session *session, bool last, struct jm_err *err)
{
	size_t left = (size_t)(m->repeat.runs - m->stored);
	struct jm_stored_run *run = calloc(left + 1, sizeof(*run));
	int n = 0, done = 0,
	    rc = run ? make_stored(m, m->stored, run, &n, err)
		     : jm_err_set(err, JM_ENOMEM, "Out of memory for the records.");

	if (!rc && last)
		rc = jm_measure_store_finish(&m->store, &m->cli->ctx, session, run, n, err);
	else if (!rc)
		rc = jm_measure_store_some(&m->store, session, run, n, &done, err);
	m->stored += done;
	while (n)
		json_decref(run[--n].record);
	free(run);
	return rc;
}

/* What is not stored now is stored with a later run, or at the end, which reports why it was
 * not. */
static void store_ended(void *arg)
{
	struct measurement *m = arg;
	struct jm_err err = JM_ERR_INIT;

	store_runs(m, m->session, false, &err);
}

static int run_command(struct measurement *m)
{
	const struct jm_repeat_once what = {m->command, NULL, NULL, true};
	const struct jm_repeat_calls calls = {launch, m->store.path ? store_ended : NULL, m};

	if (!m->repeats) {
		int rc = m->tune ? jm_tune_begin(m->tune, m->cli) : 0;

		if (!rc)
			rc = launch(m, &what, &m->outcome);
		if (m->tune)
			jm_tune_end(m->tune, m->cli);
		return rc;
	}
	return jm_measure_repeat_run(&m->repeat, m->cli, m->session, &calls, &m->outcome);
}

/* In place of what marks say. */
static void count_by_url(struct measurement *m)
{
	struct jm_outcome *o = &m->outcome;

	o->items = jm_items_url_end(&m->items_url);
	o->throughput = o->unseen_ns || !(o->wall_s > 0) ? NAN : o->items / o->wall_s;
	o->marked = o->phase;
	jm_session_forget_items(m->session);
	jm_session_credit(m->session, o->phase, o->items);
}

static int run_work(struct measurement *m)
{
	struct jm_cli *cli = m->cli;
	int rc = jm_session_start(m->session, &cli->err);

	if (rc)
		return rc;
	m->started_wall = jm_clock_wall(cli->ctx.clock);
	rc = jm_items_url_begin(&m->items_url, &cli->err);
	if (!rc && m->tune)
		rc = jm_tune_open(m->tune, cli, m->device, m->session);
	if (!rc && m->attach.attach)
		rc = jm_measure_attach_run(&m->attach, cli, m->session, m->items.unit, &m->outcome);
	else if (!rc)
		rc = run_command(m);
	if (m->items_url.runs)
		count_by_url(m);
	if (m->tune && jm_tune_close(m->tune, rc ? NULL : &cli->err) && !rc)
		m->lost = cli->err.code;
	/* A trace that could not be stored is reported at the end; what is known is printed
	 * nevertheless. */
	if (jm_session_stop(m->session, rc ? NULL : &cli->err) && !rc)
		m->lost = cli->err.code;
	return rc;
}

static int open_store(struct measurement *m)
{
	int n = m->repeats ? m->repeat.n_commands : 1, rc;

	if (!m->store_path)
		return 0;
	rc = jm_measure_store_open(&m->store, m->store_path, &m->cli->err);
	for (int i = 0; !rc && i < n; i++)
		rc = jm_measure_store_add(&m->store,
			jm_measure_command_json(m->repeats ? m->repeat.command[i] : m->command),
			jm_command_throughput(&m->items), m->tune ? jm_tune_what(m->tune) : NULL,
			m->settings.axes, &m->cli->err);
	return rc;
}

static int open_session(struct measurement *m)
{
	struct jm_session_options o = {
		.sources = (const char *const *)m->sources.name,
		.interval_ns = m->interval_ns,
	};

	return jm_session_open(&m->cli->ctx, &o, &m->session, &m->cli->err);
}

static int store_record(struct measurement *m, json_t *record, struct jm_err *err)
{
	struct jm_session *session = m->lost ? NULL : m->session;
	const struct jm_stored_run whole = {.record = record};

	if (!m->store.path)
		return 0;
	if (m->repeats)
		return store_runs(m, session, true, err);
	return jm_measure_store_finish(&m->store, &m->cli->ctx, session, &whole, 1, err);
}

static int write_results(struct measurement *m)
{
	json_t *record = jm_measure_record(m, &m->cli->err);
	struct jm_err not_stored = JM_ERR_INIT;
	int rc;

	if (!record)
		return m->cli->err.code;
	store_record(m, record, &not_stored);
	print_summary(m, record, !not_stored.code);
	rc = m->json ? jm_output_json(m->json, record, &m->cli->err) : 0;
	if (!rc && m->metrics)
		rc = jm_openmetrics_write(m->metrics, record, &m->cli->err);
	if (!rc && m->hdf5)
		rc = jm_trace_write_hdf5(jm_session_trace(m->session),
			jm_session_meters(m->session), record, m->hdf5, &m->cli->err);
	json_decref(record);
	if (m->csv && jm_csv_write(m->session, m->csv, rc ? NULL : &m->cli->err) && !rc)
		rc = m->cli->err.code;
	if (rc && not_stored.code)
		jm_screen_say("", not_stored.text);
	return rc || !not_stored.code
		       ? rc
		       : jm_err_set(&m->cli->err, not_stored.code, "%s", not_stored.text);
}

/* The status of the command has precedence; ours is returned where it has none, or succeeded. */
static int status_of(struct measurement *m, int rc)
{
	int ours = rc ? jm_cli_fail(m->cli) : 0;

	return m->outcome.status ? m->outcome.status : ours;
}

int jm_measure(struct measurement *m)
{
	int rc = take_options(m), status;

	if (!rc)
		rc = open_store(m);
	if (!rc)
		rc = open_session(m);
	if (!rc)
		rc = jm_measure_settings_make(&m->settings, &m->cli->err);
	if (!rc)
		rc = run_work(m);
	if (!rc)
		jm_measure_settings_check(&m->settings);
	jm_measure_settings_end(&m->settings);
	if (!rc)
		rc = write_results(m);
	if (!rc && m->outcome.output_errno)
		rc = jm_err_set(&m->cli->err, JM_EIO,
			"Not all output of the command could be written to standard output: %s.",
			strerror(m->outcome.output_errno));
	if (!rc)
		rc = m->lost;
	if (m->settings.lost.code) { /* what is not restored counts for more */
		m->cli->err = m->settings.lost;
		rc = m->settings.lost.code;
	}
	jm_session_close(m->session);
	jm_measure_store_close(&m->store);
	status = status_of(m, rc);
	jm_source_list_done(&m->sources);
	return status;
}

static int measure(struct jm_cli *cli)
{
	struct measurement m = {.cli = cli, .command = cli->command};
	int rc, status;

	JM_FILL(&cli->values, &m);
	rc = jm_measure_figures_check(&m.figures, m.repeat.options.compare, cli);
	if (!rc)
		rc = jm_items_url_open(&m.items_url, cli);
	if (!rc)
		rc = jm_measure_attach_open(&m.attach, cli);
	if (!rc && m.settings.set && jm_hold_check(cli->command, &cli->err)) {
		jm_cli_fail(cli);
		return jm_proc_status_of(cli->err.code);
	}
	if (!rc)
		rc = jm_measure_settings_open(&m.settings, cli, m.device);
	if (!rc)
		rc = jm_measure_repeat_open(&m.repeat, cli, m.store_path, &m.repeats);
	status = rc ? jm_cli_fail(cli) : jm_measure(&m);
	jm_measure_attach_close(&m.attach);
	jm_measure_repeat_close(&m.repeat);
	jm_items_url_close(&m.items_url);
	jm_measure_settings_close(&m.settings);
	return status;
}

static bool any_word(const struct jm_cli *cli, const char *word)
{
	(void)cli;
	(void)word;
	return true;
}

const struct jm_command jm_command_measure = {
	.name = "measure",
	.summary = "measure the energy of any command",
	.usage = "[options] [--] CMD... | --for TIME | --all | --pid N | --cgroup PATH | "
		 "--slurm-job ID",
	.description =
		"Runs CMD and prints what energy each meter used while it ran, with the "
		"uncertainty (95 %). The output of CMD is left as it is; the text goes to standard "
		"error. The exit status is that of CMD: 128 + signal when a signal killed it, 127 "
		"when it was not found, 126 when it cannot be executed; 125 is a failure of "
		"joulemark itself.\n\n"
		"CMD begins with the first word that is not an option; '--' may precede it.\n\n"
		"Marks from inside CMD ('joulemark mark') become phases with their items.\n\n"
		"With --set, knobs have these values while CMD runs, as with 'joulemark set'; what "
		"was found is restored before the record is written, even if joulemark is killed. "
		"The record says what the devices accepted and enforced.\n\n"
		"With --until or --repeat, a command that is too short for the sensors is run "
		"several times, in groups of runs without pauses between them. Before each group "
		"there is a pause of a different part of the sensor's period. The energy of one "
		"run is printed.\n\n"
		"Without CMD, --for, --all, --pid, --cgroup and --slurm-job measure what is "
		"already running; Ctrl-C ends the measurement and prints what was measured, with "
		"status 0. The meters measure the whole machine. Below them is the part of the "
		"energy of the processors that belongs to the process (its own threads, not its "
		"children) or control group: its share of all processor time, which is always "
		"marked as estimated.",
	.example = "joulemark measure python3 train.py --epochs 3\n"
		   "joulemark measure --source nvml,rapl --json run.json -- ./train\n"
		   "joulemark measure --phase-regex 'Epoch (\\d+)' -- ./train\n"
		   "joulemark measure --until 5s -- ./short\n"
		   "joulemark measure --set gpu.power=300W -- ./train\n"
		   "joulemark measure --for 60s\n"
		   "joulemark measure --pid 1234 --json served.json",
	.options = jm_measure_options,
	.former = jm_measure_former,
	.max_args = 0,
	.takes_command = true,
	.begins_command = any_word,
	.run = measure,
};
