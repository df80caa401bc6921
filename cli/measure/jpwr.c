/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark jpwr: the command line, files and output of jpwr, over a session. docs/jpwr.md says
 * what differs. */
#include "jpwr_tables.h"
#include "cli/frame/interrupts.h"
#include "jpwr_job.h"
#include "base/ctx.h"
#include "base/clock.h"
#include "base/text/number.h"
#include "base/files/output.h"
#include "meter/source.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_NAMES 256 /* methods, ranks */
#define FAST_MS	  20  /* from here on the sensors' own refresh decides how often they are read */

/* ---- options ---- */

static const struct jm_jpwr_method *find_method(const char *name)
{
	for (int i = 0; i < JM_JPWR_METHODS; i++)
		if (!strcmp(jm_jpwr_methods[i].name, name))
			return &jm_jpwr_methods[i];
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

static int take_methods(struct jm_jpwr *j)
{
	if (!j->methods)
		return jm_err_set(&j->cli->err, JM_EUSAGE,
			"--methods is missing; it takes one or more of pynvml, rocm, gh, gc.");
	for (char *const *name = j->methods; *name; name++) {
		const struct jm_jpwr_method *m = find_method(*name);

		if (!m)
			return jm_err_set(&j->cli->err, JM_EUSAGE,
				"There is no method '%s'; --methods takes pynvml, rocm, gh, gc.",
				*name);
		if (!j->chosen[m - jm_jpwr_methods])
			j->order[j->n_chosen++] = (int)(m - jm_jpwr_methods);
		j->chosen[m - jm_jpwr_methods] = true;
	}
	return 0;
}

static int check_methods(struct jm_jpwr *j)
{
	for (int i = 0; i < j->n_chosen; i++) {
		const struct jm_jpwr_method *m = &jm_jpwr_methods[j->order[i]];

		if (!jm_source_find(m->source, NULL))
			return jm_err_set(&j->cli->err, JM_ENOSUP,
				"--methods %s cannot be used: this joulemark has no source '%s', "
				"which would read %s; 'joulemark list' shows its sources.",
				m->name, m->source, m->what);
	}
	return 0;
}

/* ranks has room for MAX_NAMES. */
static int take_ranks(struct jm_jpwr *j, int *ranks, int *ret_n)
{
	uint64_t number;
	int n = 0;

	if (j->ranks && !j->use_mpi)
		return jm_err_set(
			&j->cli->err, JM_EUSAGE, "--mpi-ranks requires --use-mpi; give both.");
	while (j->ranks && j->ranks[n])
		n++;
	if (n > MAX_NAMES)
		return jm_err_set(
			&j->cli->err, JM_EUSAGE, "--mpi-ranks takes at most %d ranks.", MAX_NAMES);
	for (int i = 0; i < n; i++) {
		if (!jm_number_whole(j->ranks[i], INT_MAX, &number))
			return jm_err_set(&j->cli->err, JM_EUSAGE,
				"--mpi-ranks takes whole numbers, not '%s'.", j->ranks[i]);
		ranks[i] = (int)number;
	}
	*ret_n = n;
	return 0;
}

/* ---- files ---- */

/* Before the command runs: what could not be written afterwards is an error now. */
static int try_files(struct jm_jpwr *j, const struct jm_jpwr_job *job)
{
	static const char *const tables[] = {"power", "energy"};
	struct jm_cli *cli = j->cli;
	char path[PATH_MAX];
	int rc;

	if (!j->folder)
		return 0;
	rc = jm_jpwr_job_suffix(
		&cli->ctx, job, j->given_suffix, j->suffix, sizeof(j->suffix), &cli->err);
	if (!rc && j->hdf5)
		rc = jm_columns_try_hdf5(&cli->err);
	if (!rc)
		rc = jm_output_folder(j->folder, &cli->err);
	for (int i = 0; !rc && i < 2; i++) {
		rc = jm_jpwr_path(j, tables[i], path);
		if (!rc)
			rc = jm_output_try(path, &cli->err);
	}
	return rc;
}

/* ---- the run ---- */

/* As Python prints a text: in single quotes, or in double ones where it has single ones only. */
static void print_word(FILE *out, const char *word)
{
	char quote = strchr(word, '\'') && !strchr(word, '"') ? '"' : '\'';

	fputc(quote, out);
	for (; *word; word++) {
		if (*word == '\n')
			fputs("\\n", out);
		else if (*word == quote || *word == '\\')
			fprintf(out, "\\%c", *word);
		else
			fputc(*word, out);
	}
	fputc(quote, out);
}

/* ['sleep', '1'] */
static void print_command(const struct jm_cli *cli, const char *what)
{
	fprintf(cli->out, "%s [", what);
	for (char **word = cli->command; *word; word++) {
		fputs(word == cli->command ? "" : ", ", cli->out);
		print_word(cli->out, *word);
	}
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

static int open_session(struct jm_jpwr *j)
{
	const char *sources[JM_JPWR_METHODS + 1] = {NULL};
	struct jm_session_options o = {
		.sources = sources,
		.interval_ns = j->interval_ms < FAST_MS ? j->interval_ms * JM_MILLISECOND : 0,
	};

	for (int i = 0; i < j->n_chosen; i++)
		sources[i] = jm_jpwr_methods[j->order[i]].source;
	return jm_session_open(&j->cli->ctx, &o, &j->session, &j->cli->err);
}

/* The tables are written also if the reader of the standard output has ended. */
static int run_command(struct jm_jpwr *j)
{
	struct jm_cli *cli = j->cli;
	jm_signal_handler *before = signal(SIGPIPE, SIG_IGN);
	struct jm_launch_options o = {
		.argv = cli->command,
		.out_fd = 1,
		.before_exec = jm_give_back_pipe_signal,
		.before_exec_arg = &before,
		.interrupted = jm_last_interrupt,
	};
	int rc = jm_session_start(j->session, &cli->err);

	if (rc)
		return rc;
	j->wall_offset = jm_clock_wall(cli->ctx.clock) - jm_ctx_now(&cli->ctx);
	jm_note_first_interrupt();
	rc = jm_launch(&cli->ctx, j->session, &o, &j->outcome, &cli->err);
	if (rc == JM_ENOENT || rc == JM_EPERM)
		j->outcome.status = jm_proc_status_of(rc);
	if (rc == JM_EINTR)
		j->outcome.status = 128 + jm_last_interrupt();
	if (jm_session_stop(j->session, rc ? NULL : &cli->err) && !rc)
		rc = cli->err.code;
	return rc;
}

static int measure(struct jm_jpwr *j, const struct jm_jpwr_job *job)
{
	int rc = check_methods(j);

	if (!rc)
		rc = try_files(j, job);
	if (!rc)
		rc = open_session(j);
	if (!rc)
		rc = jm_jpwr_choose_columns(j);
	if (rc)
		return rc;
	print_command(j->cli, "Measuring Energy while executing");
	rc = run_command(j);
	if (!rc)
		rc = jm_jpwr_write_tables(j);
	return rc ? rc : jm_jpwr_judge(j);
}

static int jpwr(struct jm_cli *cli)
{
	struct jm_jpwr j = {.cli = cli};
	struct jm_jpwr_job job;
	int ranks[MAX_NAMES], n = 0, rc = 0;

	JM_FILL(&cli->values, &j);
	if (!cli->command)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"There is no command to measure. Usage: 'joulemark jpwr %s'.",
			cli->cmd->usage);
	if (!rc)
		rc = take_methods(&j);
	if (!rc)
		rc = take_ranks(&j, ranks, &n);
	if (!rc)
		rc = jm_jpwr_job_find(&job, j.use_mpi, &cli->err);
	if (rc)
		return jm_cli_fail(cli);
	if (!jm_jpwr_job_measures(&job, ranks, n))
		return execute(cli);
	j.hdf5 = !strcmp(j.type, "h5");
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
		JM_BIND(JM_TEXT, struct jm_jpwr, methods),
		.argument = "M...",
		.repeat = true,
		.takes_word = is_method,
		.help = "what to measure, one or more words: pynvml (NVIDIA GPUs of this job), gh "
			"(NVIDIA Grace), rocm (AMD GPUs), gc (Graphcore IPUs)"},
	{.name = "interval",
		JM_BIND(JM_INT, struct jm_jpwr, interval_ms),
		.min = 1,
		.max = 3600000,
		.fallback = "100",
		.argument = "MS",
		.help = "milliseconds between the rows of the power table; each row has the mean "
			"power since the row before"},
	{.name = "df-out",
		JM_BIND(JM_TEXT, struct jm_jpwr, folder),
		.argument = "DIR",
		.help = "write power.SUFFIX.TYPE and energy.SUFFIX.TYPE into this folder; without "
			"it the tables are only printed"},
	{.name = "df-filetype",
		JM_BIND(JM_CHOICE, struct jm_jpwr, type),
		.choices = types,
		.fallback = "h5",
		.help = "HDF5 as pandas reads it (key jpwr), or CSV"},
	{.name = "df-suffix",
		JM_BIND(JM_TEXT, struct jm_jpwr, given_suffix),
		.argument = "TEXT",
		.help = "text in the file names before host and process id; %q{NAME} is replaced "
			"by the environment variable NAME"},
	{.name = "ignore-measure-errors",
		JM_BIND(JM_FLAG, struct jm_jpwr, ignore_errors),
		.help = "a sensor that fails causes a warning instead of exit status 125; its "
			"energy is then the sum of the rows that it has"},
	{.name = "use-mpi",
		JM_BIND(JM_FLAG, struct jm_jpwr, use_mpi),
		.help = "take the rank from the launcher's variables; the first rank of each node "
			"measures, the others only run the command. Without --df-suffix the rank "
			"is the suffix"},
	{.name = "mpi-ranks",
		JM_BIND(JM_TEXT, struct jm_jpwr, ranks),
		.argument = "R...",
		.repeat = true,
		.takes_word = is_rank,
		.help = "with --use-mpi: the ranks that measure, one or more numbers"},
	{0},
};

const struct jm_command jm_command_jpwr = {
	.name = "jpwr",
	.summary = "measure a command with the options, files and output of jpwr",
	.usage = "--methods M... [options] [--] CMD...",
	.description = "Accepts the options of jpwr (JSC power measurement tool), prints its "
		       "tables and writes its files, so that scripts that were written for it "
		       "continue to work. The energy is that of 'joulemark measure': from the "
		       "energy counter where there is one, and for the whole run time of CMD. The "
		       "exit status is that of CMD; 125 is a failure of joulemark.\n\n"
		       "'joulemark measure' also reports the uncertainty, the grade and the "
		       "phases, and writes a record.",
	.example = "joulemark jpwr --methods pynvml gh --df-out out --df-filetype csv -- ./train",
	.options = options,
	.max_args = 0,
	.takes_command = true,
	.begins_command = any_word,
	.run = jpwr,
};
