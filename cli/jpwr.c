/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark jpwr: the command line, files and output of jpwr, over a session. docs/jpwr.md says what differs. */
#include "cli.h"
#include "jpwr_job.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/output.h"
#include "measure/launch.h"
#include "measure/power_rows.h"
#include "meter/source.h"
#include "report/columns.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY	   "jpwr" /* in HDF5 */
#define WH	   3600.0 /* J */
#define MAX_NAMES  256	  /* methods, ranks */
#define SUFFIX_MAX 200
#define FAST_MS	   20 /* from here on the sensors' own refresh decides how often they are read */

struct method {
	const char *name;
	const char *source; /* of joulemark */
	enum jm_scope scope;
	bool any_scope;
	const char *what; /* that it measures */
};

static const struct method methods[] = {
	{"pynvml", "nvml", JM_SCOPE_GPU, false, "NVIDIA GPUs"},
	{"gh", "hwmon", JM_SCOPE_NODE, true, "NVIDIA Grace"},
	{"rocm", "amdsmi", JM_SCOPE_GPU, false, "AMD GPUs"},
	{"gc", "gcipuinfo", JM_SCOPE_GPU, true, "Graphcore IPUs"},
};
#define N_METHODS ((int)(sizeof(methods) / sizeof(methods[0])))

struct column {
	int meter, signal;
	char name[96];
	struct jm_energy energy;
	int missing; /* intervals without a reading */
};

struct jpwr {
	struct jm_cli *cli;
	bool chosen[N_METHODS];
	int order[N_METHODS], n_chosen;
	bool hdf5;
	const char *folder; /* NULL = no files */
	char suffix[SUFFIX_MAX + 1];
	struct jm_session *session;
	struct jm_outcome outcome;
	int64_t wall_offset; /* wall time minus the clock, ns */
	struct column *column;
	int n_columns;
	struct jm_power_rows rows;
};

/* ---- options ---- */

static const struct method *find_method(const char *name)
{
	for (int i = 0; i < N_METHODS; i++)
		if (!strcmp(methods[i].name, name))
			return &methods[i];
	return NULL;
}

static bool is_method(const char *word)
{
	return find_method(word) != NULL;
}

static bool is_rank(const char *word)
{
	uint64_t number;

	return jm_number_whole(word, INT_MAX, &number);
}

static int take_methods(struct jpwr *j)
{
	const struct jm_value *given = jm_values_get(&j->cli->values, "methods");

	if (!given->n_texts)
		return jm_err_set(&j->cli->err, JM_EUSAGE,
			"--methods is missing; it takes one or more of pynvml, rocm, gh, gc.");
	for (int i = 0; i < given->n_texts; i++) {
		const struct method *m = find_method(given->texts[i]);

		if (!m)
			return jm_err_set(&j->cli->err, JM_EUSAGE,
				"There is no method '%s'; --methods takes pynvml, rocm, gh, gc.",
				given->texts[i]);
		if (!j->chosen[m - methods])
			j->order[j->n_chosen++] = (int)(m - methods);
		j->chosen[m - methods] = true;
	}
	return 0;
}

static int check_methods(struct jpwr *j)
{
	for (int i = 0; i < j->n_chosen; i++) {
		const struct method *m = &methods[j->order[i]];

		if (!jm_source_find(m->source, NULL))
			return jm_err_set(&j->cli->err, JM_ENOSUP,
				"--methods %s cannot be used: this joulemark has no source '%s', "
				"which would read %s; 'joulemark list' shows its sources.",
				m->name, m->source, m->what);
	}
	return 0;
}

/* ranks has room for MAX_NAMES. */
static int take_ranks(struct jpwr *j, int *ranks, int *ret_n)
{
	const struct jm_value *given = jm_values_get(&j->cli->values, "mpi-ranks");
	uint64_t number;

	if (given->n_texts && !jm_values_number(&j->cli->values, "use-mpi"))
		return jm_err_set(&j->cli->err, JM_EUSAGE, "--mpi-ranks requires --use-mpi.");
	if (given->n_texts > MAX_NAMES)
		return jm_err_set(
			&j->cli->err, JM_EUSAGE, "--mpi-ranks takes at most %d ranks.", MAX_NAMES);
	for (int i = 0; i < given->n_texts; i++) {
		if (!jm_number_whole(given->texts[i], INT_MAX, &number))
			return jm_err_set(&j->cli->err, JM_EUSAGE,
				"--mpi-ranks takes whole numbers, not '%s'.", given->texts[i]);
		ranks[i] = (int)number;
	}
	*ret_n = given->n_texts;
	return 0;
}

/* ---- files ---- */

static int path_of(struct jpwr *j, const char *table, char out[PATH_MAX])
{
	const char *type = j->hdf5 ? "h5" : "csv";

	if (snprintf(out, PATH_MAX, "%s/%s.%s.%s", j->folder, table, j->suffix, type) >= PATH_MAX)
		return jm_err_set(&j->cli->err, JM_EUSAGE, "--df-out is too long a path.");
	return 0;
}

/* Before the command runs: what could not be written afterwards is an error now. */
static int try_files(struct jpwr *j, const struct jm_jpwr_job *job)
{
	static const char *const tables[] = {"power", "energy"};
	struct jm_cli *cli = j->cli;
	char path[PATH_MAX];
	int rc;

	if (!j->folder)
		return 0;
	rc = jm_jpwr_job_suffix(&cli->ctx, job, jm_values_text(&cli->values, "df-suffix"),
		j->suffix, sizeof(j->suffix), &cli->err);
	if (!rc && j->hdf5)
		rc = jm_columns_try_hdf5(&cli->err);
	if (!rc)
		rc = jm_output_folder(j->folder, &cli->err);
	for (int i = 0; !rc && i < 2; i++) {
		rc = path_of(j, tables[i], path);
		if (!rc)
			rc = jm_output_try(path, &cli->err);
	}
	return rc;
}

static bool put_csv(const void *what, FILE *out)
{
	return jm_columns_write_csv(what, out);
}

static int write_file(struct jpwr *j, const char *table, const struct jm_columns *columns)
{
	char path[PATH_MAX];
	int rc = path_of(j, table, path);

	if (rc)
		return rc;
	fprintf(j->cli->out, "Writing %s df to %s\n", table, path);
	if (j->hdf5)
		return jm_columns_write_hdf5(columns, KEY, path, &j->cli->err);
	return jm_output_by(path, put_csv, columns, &j->cli->err);
}

/* ---- the run ---- */

/* ['sleep', '1'], as Python prints it */
static void print_command(const struct jm_cli *cli, const char *what)
{
	fprintf(cli->out, "%s [", what);
	for (char **word = cli->command; *word; word++)
		fprintf(cli->out, "%s'%s'", word == cli->command ? "" : ", ", *word);
	fputs("]\n", cli->out);
	fflush(cli->out);
}

/* Of a rank that does not measure: the command takes the place of this process. */
static int execute(struct jm_cli *cli)
{
	int code;

	print_command(cli, "Executing");
	execvp(cli->command[0], cli->command);
	code = errno == ENOENT ? JM_ENOENT : JM_EPERM;
	jm_err_set(&cli->err, code, "Cannot run '%s': %s.", cli->command[0], strerror(errno));
	jm_cli_fail(cli);
	return jm_proc_status_of(code);
}

static int open_session(struct jpwr *j)
{
	int ms = (int)jm_values_number(&j->cli->values, "interval");
	const char *sources[N_METHODS + 1] = {NULL};
	struct jm_session_options o = {
		.sources = sources,
		.interval_ns = ms < FAST_MS ? ms * JM_MILLISECOND : 0,
	};

	for (int i = 0; i < j->n_chosen; i++)
		sources[i] = methods[j->order[i]].source;
	return jm_session_open(&j->cli->ctx, &o, &j->session, &j->cli->err);
}

/* jpwr calls a GPU by its index on the node, which is the first number of its label, and a sensor of Grace by
 * its label. */
static void name_column(struct column *c, const struct method *m, const struct jm_meter *meter)
{
	int index;

	if (sscanf(meter->label, "GPU %d", &index) == 1)
		snprintf(c->name, sizeof(c->name), "%s:%d", m->name, index);
	else
		snprintf(c->name, sizeof(c->name), "%s:%s", m->name, meter->label);
}

static void add_columns(struct jpwr *j, const struct method *m)
{
	const struct jm_meters *set = jm_session_meters(j->session);

	for (int i = 0; i < set->n; i++) {
		const struct jm_meter *meter = &set->meter[i];
		struct column *c = &j->column[j->n_columns];

		if (strcmp(meter->source, m->source) || (!m->any_scope && meter->scope != m->scope))
			continue;
		*c = (struct column){.meter = i, .signal = jm_meter_signal(set, i, JM_Q_POWER)};
		if (c->signal < 0)
			c->signal = jm_meter_signal(set, i, JM_Q_POWER_AVERAGE);
		if (c->signal < 0) {
			jm_log(&j->cli->ctx, JM_WARNING,
				"%s tells no power and gets no column; 'joulemark measure' reports "
				"its energy.",
				meter->label);
			continue;
		}
		name_column(c, m, meter);
		j->n_columns++;
	}
}

static int choose_columns(struct jpwr *j)
{
	int n = jm_session_meters(j->session)->n;

	j->column = calloc((size_t)n + 1, sizeof(*j->column));
	if (!j->column)
		return jm_err_set(&j->cli->err, JM_ENOMEM, "Out of memory for %d columns.", n);
	for (int i = 0; i < j->n_chosen; i++)
		add_columns(j, &methods[j->order[i]]);
	if (j->n_columns)
		return 0;
	return jm_err_set(&j->cli->err, JM_ENOENT,
		"None of the sensors that --methods names tells power; 'joulemark doctor' lists "
		"what they tell.");
}

typedef void handler(int);

static int give_back_pipe_signal(void *arg)
{
	handler *const *before = arg;

	return signal(SIGPIPE, *before) == SIG_ERR;
}

/* The tables are written even when nobody reads our standard output any more. */
static int run_command(struct jpwr *j)
{
	struct jm_cli *cli = j->cli;
	handler *before = signal(SIGPIPE, SIG_IGN);
	struct jm_launch_options o = {
		.argv = cli->command,
		.out_fd = 1,
		.before_exec = give_back_pipe_signal,
		.before_exec_arg = &before,
	};
	int rc = jm_session_start(j->session, &cli->err);

	if (rc)
		return rc;
	j->wall_offset = jm_clock_wall(cli->ctx.clock) - jm_ctx_now(&cli->ctx);
	rc = jm_launch(&cli->ctx, j->session, &o, &j->outcome, &cli->err);
	if (rc == JM_ENOENT || rc == JM_EPERM)
		j->outcome.status = jm_proc_status_of(rc);
	if (jm_session_stop(j->session, rc ? NULL : &cli->err) && !rc)
		rc = cli->err.code;
	return rc;
}

/* ---- tables ---- */

static double *cell(struct jpwr *j, int row, int column)
{
	return &j->rows.value[row * j->n_columns + column];
}

/* The sum that jpwr makes, with intervals that have no reading taken as the reading after them. NAN = none. */
static double joules_of_rows(struct jpwr *j, int column)
{
	double sum = 0, last = NAN;
	int64_t from = j->rows.t_ns[0];

	for (int row = 1; row < j->rows.n; row++) {
		double watts = *cell(j, row, column);

		if (isnan(watts))
			continue;
		sum += watts * (double)(j->rows.t_ns[row] - from) * 1e-9;
		from = j->rows.t_ns[row];
		last = watts;
	}
	/* behind the last reading there is none that could stand for the rest */
	return isnan(last) ? NAN : sum;
}

static int fill_column(struct jpwr *j, int i)
{
	struct column *c = &j->column[i];
	bool ignore = jm_values_number(&j->cli->values, "ignore-measure-errors") > 0;
	int rc =
		jm_session_energy(j->session, c->meter, j->outcome.phase, &c->energy, &j->cli->err);

	for (int row = 1; row < j->rows.n; row++)
		c->missing += isnan(*cell(j, row, i));
	if (!rc && ignore && isnan(c->energy.joules)) {
		c->energy.joules = joules_of_rows(j, i);
		c->energy.error = NAN;
	}
	return rc;
}

static int fill_tables(struct jpwr *j)
{
	int64_t interval = (int64_t)jm_values_number(&j->cli->values, "interval") * JM_MILLISECOND;
	int *signal = calloc((size_t)j->n_columns, sizeof(*signal));
	int rc;

	if (!signal)
		return jm_err_set(&j->cli->err, JM_ENOMEM, "Out of memory for the tables.");
	for (int i = 0; i < j->n_columns; i++)
		signal[i] = j->column[i].signal;
	rc = jm_power_rows_of(jm_session_trace(j->session), signal, j->n_columns,
		j->outcome.start_ns, j->outcome.end_ns, interval, &j->rows, &j->cli->err);
	free(signal);
	for (int i = 0; !rc && i < j->n_columns; i++)
		rc = fill_column(j, i);
	return rc;
}

/* Seconds since 1970 in front of the watts, in rows of one column more. */
static double *add_times(struct jpwr *j)
{
	int n = j->n_columns + 1;
	double *all = calloc((size_t)j->rows.n * (size_t)n, sizeof(*all));

	for (int row = 0; all && row < j->rows.n; row++) {
		all[row * n] = (double)(j->rows.t_ns[row] + j->wall_offset) * 1e-9;
		memcpy(&all[row * n + 1], cell(j, row, 0), (size_t)j->n_columns * sizeof(*all));
	}
	return all;
}

static int put_tables(
	struct jpwr *j, const struct jm_columns *power, const struct jm_columns *energy)
{
	FILE *out = j->cli->out;
	int rc = 0;

	fputs("Power data:\n", out);
	jm_columns_print(power, out);
	fputs("Energy data:\n", out);
	jm_columns_print(energy, out);
	if (!j->folder)
		return 0;
	fprintf(out, "Writing measurements to %s\n", j->folder);
	rc = write_file(j, "power", power);
	return rc ? rc : write_file(j, "energy", energy);
}

static int write_tables(struct jpwr *j)
{
	const char **name = calloc((size_t)j->n_columns + 1, sizeof(*name));
	double *wh = calloc((size_t)j->n_columns, sizeof(*wh)), *all = add_times(j);
	struct jm_columns power = {name, j->n_columns + 1, j->rows.n, all, false};
	struct jm_columns energy = {name ? name + 1 : NULL, j->n_columns, 1, wh, true};
	int rc = 0;

	if (!name || !wh || !all)
		rc = jm_err_set(&j->cli->err, JM_ENOMEM, "Out of memory for the tables.");
	if (!rc)
		name[0] = "timestamps";
	for (int i = 0; !rc && i < j->n_columns; i++) {
		name[i + 1] = j->column[i].name;
		wh[i] = j->column[i].energy.joules / WH;
	}
	if (!rc)
		rc = put_tables(j, &power, &energy);
	free(name);
	free(wh);
	free(all);
	return rc;
}

/* What jpwr cannot say: how far each figure may be off. */
static void say_bounds(const struct jpwr *j)
{
	for (int i = 0; i < j->n_columns; i++) {
		const struct jm_energy *e = &j->column[i].energy;

		if (!isnan(e->joules) && !isnan(e->error))
			jm_log(&j->cli->ctx, JM_INFO, "%s: %.4g Wh, uncertainty %.2g Wh (95 %%).",
				j->column[i].name, e->joules / WH, e->error / WH);
	}
}

/* The first sensor that failed, in the error; a warning each where they are ignored. */
static int judge(struct jpwr *j)
{
	bool ignore = jm_values_number(&j->cli->values, "ignore-measure-errors") > 0;
	int rc = 0;

	for (int i = 0; i < j->n_columns; i++) {
		const struct column *c = &j->column[i];
		struct jm_err err = JM_ERR_INIT;

		if (!c->missing && !isnan(c->energy.joules))
			continue;
		jm_err_set(&err, JM_EIO,
			"%s gave no reading in %d of %d intervals, and its energy is %s%s.",
			c->name, c->missing, j->rows.n - 1,
			isnan(c->energy.joules)	 ? "unknown"
			: isnan(c->energy.error) ? "the sum of the others"
						 : "known from its counter or its other readings",
			ignore ? "" : "; --ignore-measure-errors makes this a warning");
		if (!ignore && !rc)
			rc = jm_err_set(&j->cli->err, err.code, "%s", err.text);
		else
			jm_log(&j->cli->ctx, JM_WARNING, "%s", err.text);
	}
	return rc;
}

static int measure(struct jpwr *j, const struct jm_jpwr_job *job)
{
	int rc = check_methods(j);

	if (!rc)
		rc = try_files(j, job);
	if (!rc)
		rc = open_session(j);
	if (!rc)
		rc = choose_columns(j);
	if (rc)
		return rc;
	print_command(j->cli, "Measuring Energy while executing");
	rc = run_command(j);
	if (!rc)
		rc = fill_tables(j);
	if (!rc)
		rc = write_tables(j);
	if (!rc)
		say_bounds(j);
	return rc ? rc : judge(j);
}

static int jpwr(struct jm_cli *cli)
{
	struct jpwr j = {.cli = cli, .folder = jm_values_text(&cli->values, "df-out")};
	struct jm_jpwr_job job;
	int ranks[MAX_NAMES], n = 0, rc = 0;

	if (!cli->command)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"There is no command to measure. Usage: 'joulemark jpwr %s'.",
			cli->cmd->usage);
	if (!rc)
		rc = take_methods(&j);
	if (!rc)
		rc = take_ranks(&j, ranks, &n);
	if (!rc)
		rc = jm_jpwr_job_find(
			&job, jm_values_number(&cli->values, "use-mpi") > 0, &cli->err);
	if (rc)
		return jm_cli_fail(cli);
	if (!jm_jpwr_job_measures(&job, ranks, n))
		return execute(cli);
	j.hdf5 = !strcmp(jm_values_text(&cli->values, "df-filetype"), "h5");
	rc = measure(&j, &job);
	jm_session_close(j.session);
	jm_power_rows_done(&j.rows);
	free(j.column);
	rc = rc ? jm_cli_fail(cli) : 0;
	return j.outcome.status ? j.outcome.status : rc;
}

static bool any_word(const struct jm_cli *cli, const char *word)
{
	(void)cli;
	(void)word;
	return true;
}

static const char *const types[] = {"h5", "csv", NULL};

static const struct jm_option options[] = {
	{.name = "methods",
		.type = JM_TEXT,
		.argument = "M...",
		.repeat = true,
		.takes_word = is_method,
		.help = "what to measure, one or more words: pynvml (NVIDIA GPUs of this job), gh "
			"(NVIDIA Grace), rocm (AMD GPUs), gc (Graphcore IPUs)"},
	{.name = "interval",
		.type = JM_INT,
		.min = 1,
		.max = 3600000,
		.fallback = "100",
		.argument = "MS",
		.help = "milliseconds between the rows of the power table; each row has the mean "
			"power since the row before"},
	{.name = "df-out",
		.type = JM_TEXT,
		.argument = "DIR",
		.help = "write power.SUFFIX.TYPE and energy.SUFFIX.TYPE into this folder; without "
			"it the tables are only printed"},
	{.name = "df-filetype",
		.type = JM_CHOICE,
		.choices = types,
		.fallback = "h5",
		.help = "HDF5 as pandas reads it (key jpwr), or CSV"},
	{.name = "df-suffix",
		.type = JM_TEXT,
		.argument = "TEXT",
		.help = "stands in the files' names before host and process id; %q{NAME} is "
			"replaced by that variable of the environment"},
	{.name = "ignore-measure-errors",
		.type = JM_FLAG,
		.help = "a sensor that fails is a warning and not exit status 125; its energy is "
			"then the sum of the rows that it has"},
	{.name = "use-mpi",
		.type = JM_FLAG,
		.help = "take the rank from the launcher's variables; the first rank of each node "
			"measures, the others only run the command. Without --df-suffix the rank "
			"is the suffix"},
	{.name = "mpi-ranks",
		.type = JM_TEXT,
		.argument = "R...",
		.repeat = true,
		.takes_word = is_rank,
		.help = "with --use-mpi: the ranks that measure, one or more numbers"},
	{0},
};

const struct jm_command jm_command_jpwr = {
	.name = "jpwr",
	.summary = "measures a command with the options, files and output of jpwr",
	.usage = "--methods M... [options] [--] CMD...",
	.description =
		"Takes the options of jpwr (JSC power measurement tool), prints its tables and "
		"writes its files, so that scripts made for it go on working. The energy is that "
		"of 'joulemark measure': from the energy counter where there is one, and of the "
		"whole time of CMD. The exit status is that of CMD; 125 is a failure of "
		"joulemark.\n\n"
		"'joulemark measure' tells more: uncertainty, grade, phases, a record.",
	.example = "joulemark jpwr --methods pynvml gh --df-out out --df-filetype csv -- ./train",
	.options = options,
	.max_args = 0,
	.takes_command = true,
	.begins_command = any_word,
	.run = jpwr,
};
