/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark: finds the command, parses its options, runs it. */
#include "commands.h"
#include "cli/frame/common_options.h"
#include "cli/frame/help.h"
#include "cli/frame/json_option.h"
#include "cli/frame/screen.h"
#include "cli/frame/work_options.h"
#include "guard/guard_recover.h"
#include "report/format/text.h"
#include "run/worker/case_reaper.h"

#include "base/ctx.h"
#include "base/files/output.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void log_to_stderr(void *arg, enum jm_level level, const char *line)
{
	const struct jm_cli *cli = arg;

	if ((level == JM_DEBUG && !secure_getenv("JM_DEBUG")) || (level == JM_INFO && cli->quiet))
		return;
	jm_screen_say(level == JM_WARNING ? "warning: " : "", line);
}

static const struct jm_command *find_command(const char *name, struct jm_err *err)
{
	const char *names[32], *near;
	size_t n = 0;

	for (size_t i = 0; jm_commands[i]; i++) {
		if (!strcmp(jm_commands[i]->name, name))
			return jm_commands[i];
		if (!jm_commands[i]->hidden && n < 32)
			names[n++] = jm_commands[i]->name;
	}
	near = jm_did_you_mean(name, names, n);
	if (near)
		jm_err_set(
			err, JM_EUSAGE, "There is no command '%s'; did you mean '%s'?", name, near);
	else
		jm_err_set(err, JM_EUSAGE,
			"There is no command '%s'; 'joulemark --help' lists them.", name);
	return NULL;
}

/* The table that has the option: the command's own, else the one of every command. */
static struct jm_values *table_of(struct jm_cli *cli, const char *name)
{
	return !jm_values_get(&cli->values, name) && jm_values_get(&cli->common, name)
		       ? &cli->common
		       : &cli->values;
}

/* Is this a choice of the command's --format, as in 'watch --json'? */
static bool is_format(const struct jm_cli *cli, const char *name)
{
	const struct jm_option *o = cli->cmd->options;

	while (o && o->name && strcmp(o->name, "format") != 0)
		o++;
	for (const char *const *word = o && o->name ? o->choices : NULL; word && *word; word++)
		if (!strcmp(*word, name))
			return true;
	return false;
}

static int unknown_option(struct jm_cli *cli, const char *name)
{
	const struct jm_values *tables[] = {&cli->values, &cli->common};
	const char *names[128], *near;
	size_t n = 0;

	for (const struct jm_former *f = cli->cmd->former; f && f->name; f++)
		if (!strcmp(f->name, name))
			return jm_err_set(&cli->err, JM_EUSAGE, "--%s has another name here: %s.",
				name, f->instead);
	if (is_format(cli, name))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"There is no option --%s; write --format %s.", name, name);
	for (size_t t = 0; t < 2; t++)
		for (int i = 0; i < tables[t]->n && n < sizeof(names) / sizeof(names[0]); i++)
			names[n++] = tables[t]->value[i].option->name;
	near = jm_did_you_mean(name, names, n);
	if (near)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"There is no option --%s; did you mean --%s?", name, near);
	return jm_err_set(&cli->err, JM_EUSAGE,
		"There is no option --%s; 'joulemark %s --help' lists the options.", name,
		cli->cmd->name);
}

/* "-r" -> " did you mean --repeat?": the options of that letter, the usual ones first. */
static void mean_of_letter(const struct jm_cli *cli, char letter, char *out, size_t size)
{
	char names[120] = "";
	int n = 0;

	for (int usual = 1; usual >= 0; usual--)
		for (const struct jm_option *o = cli->cmd->options; o && o->name && n < 3; o++)
			if (o->name[0] == letter && o->usual == usual) {
				jm_text_append(names, sizeof(names), " or ", "--");
				jm_text_append(names, sizeof(names), "", o->name);
				n++;
			}
	snprintf(out, size, n ? "; did you mean %s?" : ".%s", names);
}

static int short_option(struct jm_cli *cli, const char *word)
{
	char meant[160];

	mean_of_letter(cli, word[1], meant, sizeof(meant));
	return jm_err_set(&cli->err, JM_EUSAGE,
		"Options are written in full, with two dashes, not '%s'%s", word, meant);
}

/* The value, and the following words that belong to the option, too. */
static int set_values(struct jm_cli *cli, struct jm_values *table, const struct jm_value *value,
	const char *text, char **argv, int *i)
{
	const struct jm_option *o = value->option;
	int rc = jm_values_set(table, o->name, text, &cli->err);

	while (!rc && o->takes_word && argv[*i + 1] && o->takes_word(argv[*i + 1]))
		rc = jm_values_set(table, o->name, argv[++*i], &cli->err);
	return rc;
}

/* The rule of all commands: of two values one would be lost without a message. A flag has the same
 * one again. */
static int refuse_second(struct jm_cli *cli, const char *name, const struct jm_option *o)
{
	bool list = !o || (o->use & JM_OPTION_SWEPT);

	return jm_err_set(&cli->err, JM_EUSAGE, "--%s is given twice; give it once%s%s%s.", name,
		list ? ", with several values as one list: --" : "", list ? name : "",
		list ? " A,B" : "");
}

/* value: NULL = of the work, whose flags are the options without text. */
static bool is_second(
	const struct jm_cli *cli, const char *name, const struct jm_value *value, const char *text)
{
	const char *first = jm_work_options_text(cli, name);

	if (value)
		return value->given && !value->option->repeat && value->option->type != JM_FLAG;
	return first && (text || strcmp(first, "1") != 0);
}

/* The value of an option that may stand alone: the next word (NULL = none), if it is meant for
 * it. */
static const char *next_or_bare(const struct jm_option *row, const char *next, int *i)
{
	if (!next || !row->takes_next || !row->takes_next(next))
		return row->bare;
	++*i;
	return next;
}

/* argv[*i] is an option; its value may follow "=" or be the next word. A flag of the work may have
 * values, too: they are swept. */
static int parse_option(struct jm_cli *cli, int argc, char **argv, int *i)
{
	char *name = argv[*i] + 2, *equals = strchr(name, '=');
	struct jm_values *table;
	const struct jm_value *value;
	const struct jm_option *row;
	const char *text = equals ? equals + 1 : NULL;
	bool known, valued;

	if (equals)
		*equals = '\0';
	table = table_of(cli, name);
	value = jm_values_get(table, name);
	known = value || !cli->cmd->takes_extra;
	if (known && !value)
		return unknown_option(cli, name);
	row = value ? value->option : jm_work_options_find(name);
	valued = row && row->type != JM_FLAG;
	if (!text && value && !valued)
		text = "1";
	if (!text && row && row->bare)
		text = next_or_bare(row, argv[*i + 1], i);
	if (!text && *i + 1 < argc && (known || strncmp(argv[*i + 1], "--", 2) != 0))
		text = argv[++*i];
	if (!text && valued)
		return jm_err_set(&cli->err, JM_EUSAGE, "--%s needs a value.", name);
	if (is_second(cli, name, value, text))
		return refuse_second(cli, name, known ? value->option : NULL);
	if (!known)
		return jm_work_options_give(cli, name, text ? text : "1");
	return set_values(cli, table, value, text, argv, i);
}

/* An option that would be ignored is more likely a mistake than meant. */
static int check_needs(struct jm_cli *cli)
{
	for (const struct jm_option *o = cli->cmd->options; o && o->name; o++)
		if (o->needs && jm_cli_given(cli, o->name) && !jm_cli_given(cli, o->needs))
			return jm_err_set(&cli->err, JM_EUSAGE,
				"--%s has no effect without --%s; give both, or omit --%s.",
				o->name, o->needs, o->name);
	return 0;
}

static int check_arguments(struct jm_cli *cli)
{
	const struct jm_command *cmd = cli->cmd;

	if (check_needs(cli))
		return cli->err.code;
	if (cli->n_args < cmd->min_args && !(cmd->takes_command && cli->command))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"An argument is missing. Usage: 'joulemark %s %s'.", cmd->name, cmd->usage);
	if (cmd->max_args >= 0 && cli->n_args > cmd->max_args)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"'%s' is one argument too many. Usage: 'joulemark %s%s%s'.",
			cli->args[cmd->max_args], cmd->name, *cmd->usage ? " " : "", cmd->usage);
	if (cli->command && !cli->command[0])
		return jm_err_set(&cli->err, JM_EUSAGE,
			"No command follows '--'. Usage: 'joulemark %s %s'.", cmd->name,
			cmd->usage);
	return 0;
}

static int take_separator(struct jm_cli *cli, char **rest)
{
	if (!cli->cmd->takes_command)
		return jm_err_set(
			&cli->err, JM_EUSAGE, "'%s' takes no command after '--'.", cli->cmd->name);
	cli->command = rest;
	return 0;
}

static bool begins_command(const struct jm_cli *cli, const char *word)
{
	return cli->cmd->begins_command && cli->cmd->begins_command(cli, word);
}

/* Positional words are moved to the front of argv, where cli->args points. What follows --help is
 * not examined, except that the next word may name what help is for. */
static int parse_words(struct jm_cli *cli, int argc, char **argv, bool *ret_help)
{
	int rc = 0;

	for (int i = 0; i < argc && !rc && !cli->command; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			*ret_help = true;
			if (!cli->n_args && i + 1 < argc && argv[i + 1][0] != '-')
				cli->args[cli->n_args++] = argv[i + 1];
			return 0;
		}
		if (!strcmp(argv[i], "--"))
			rc = take_separator(cli, argv + i + 1);
		else if (!strncmp(argv[i], "--", 2))
			rc = parse_option(cli, argc, argv, &i);
		else if (argv[i][0] == '-' && argv[i][1])
			rc = short_option(cli, argv[i]);
		else if (begins_command(cli, argv[i]))
			cli->command = argv + i;
		else
			cli->args[cli->n_args++] = argv[i];
	}
	return rc;
}

static int parse(struct jm_cli *cli, int argc, char **argv, bool *ret_help)
{
	int rc = jm_values_init(&cli->values, cli->cmd->options, &cli->err);

	if (!rc)
		rc = jm_values_init(&cli->common, jm_common_options, &cli->err);
	cli->args = argv;
	if (!rc)
		rc = parse_words(cli, argc, argv, ret_help);
	if (!rc && !*ret_help)
		rc = jm_json_format(cli);
	return rc || *ret_help ? rc : check_arguments(cli);
}

/* ---- where results go ------------------------------------------------------------------------ */

/* Results for a file are collected in memory and written whole at the end. */
static int open_output(struct jm_cli *cli, char **text, size_t *size)
{
	JM_FILL(&cli->common, cli);
	cli->colour = !cli->output && jm_screen_colour(STDOUT_FILENO);
	cli->width = cli->given_width;
	if (!cli->width)
		cli->width = jm_screen_width(cli->output ? -1 : STDOUT_FILENO);
	if (!cli->output)
		return 0;
	if (jm_output_try(cli->output, &cli->err))
		return cli->err.code;
	cli->out = open_memstream(text, size);
	return cli->out ? 0 : jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the output.");
}

/* If the output cannot be written, joulemark's own status becomes a failure; the status of a
 * command that it ran, and that of wrong usage, are kept. */
static int unwritten(const struct jm_cli *cli, int status)
{
	return status && (cli->command || status == JM_EXIT_USAGE) ? status : JM_EXIT_FAILURE;
}

static int close_output(struct jm_cli *cli, char **text, int status)
{
	int rc = 0;

	if (!cli->output || !cli->out || cli->out == stdout)
		return status;
	cli->err = (struct jm_err)JM_ERR_INIT;
	if (fclose(cli->out))
		rc = jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the output.");
	else if (*text && **text)
		rc = jm_output_text(cli->output, *text, &cli->err);
	cli->out = stdout;
	if (!rc)
		return status;
	jm_cli_fail(cli);
	return unwritten(cli, status);
}

/* What a joulemark that was killed has left set is put back first, by whatever comes next. What
 * cannot be is logged and does not stop the command: it may be the one that helps. */
static void recover(struct jm_cli *cli)
{
	/* a closed pipe must not end the restoring half-way */
	void (*before)(int) = signal(SIGPIPE, SIG_IGN);
	int n;

	jm_guard_recover_soon(&cli->ctx, &n, NULL);
	jm_case_reaper_recover(&cli->ctx, false);
	signal(SIGPIPE, before);
}

static int show_help(const struct jm_cli *cli, bool all)
{
	if (cli->cmd->help_of && cli->n_args && cli->cmd->help_of(cli))
		return 0;
	return jm_help_command(cli->cmd, all, cli->out, cli->width);
}

static int run_command(struct jm_cli *cli, int argc, char **argv)
{
	bool help = false, help_all = argc && !strcmp(argv[argc - 1], "--all");
	char *text = NULL;
	size_t size = 0;
	int rc = parse(cli, argc, argv, &help);

	if (!rc)
		rc = open_output(cli, &text, &size);
	if (!rc && !help && !cli->cmd->hidden && !cli->cmd->no_recovery &&
		!jm_cli_given(cli, "dry-run"))
		recover(cli);
	if (rc)
		rc = jm_cli_fail(cli);
	else
		rc = help ? show_help(cli, help_all) : cli->cmd->run(cli);
	rc = close_output(cli, &text, rc);
	free(text);
	jm_values_done(&cli->values);
	jm_values_done(&cli->common);
	free(cli->extra);
	return rc;
}

/* A full disk must not look like success. */
static int flush_stdout(const struct jm_cli *cli, int status)
{
	if (!ferror(stdout) && !fflush(stdout))
		return status;
	fprintf(stderr, "joulemark: Writing to standard output failed; is the disk full or the "
			"pipe closed?\n");
	return unwritten(cli, status);
}

/* In place of a closed standard descriptor the next file opened would take what is printed: the
 * store. It stays as useless as a closed one. */
static int hold_standard_descriptors(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDONLY);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	return fd < 0 ? -1 : close(fd);
}

/* A write beyond the limit of a file's size fails with EFBIG, as on a full disk; a command that is
 * run gets the default back. */
static void on_file_limit(int number)
{
	(void)number;
}

int main(int argc, char **argv)
{
	struct jm_cli cli = {.commands = jm_commands, .out = stdout, .width = JM_WIDTH_DEFAULT};
	int status;

	if (signal(SIGXFSZ, on_file_limit) == SIG_IGN)
		signal(SIGXFSZ, SIG_IGN);
	if (hold_standard_descriptors())
		return JM_EXIT_FAILURE;
	if (argc < 2) {
		jm_help_program(jm_commands, stdout, jm_screen_width(STDOUT_FILENO));
		return JM_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("joulemark %s\n", JM_VERSION);
		return flush_stdout(&cli, 0);
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return flush_stdout(
			&cli, jm_help_program(jm_commands, stdout, jm_screen_width(STDOUT_FILENO)));
	if (jm_ctx_init(&cli.ctx, &cli.err))
		return jm_cli_fail(&cli);
	cli.ctx.guard_program = "/proc/self/exe";
	cli.ctx.log = log_to_stderr;
	cli.ctx.log_arg = &cli;
	cli.cmd = find_command(argv[1], &cli.err);
	if (!cli.cmd)
		return jm_cli_fail(&cli);
	status = flush_stdout(&cli, run_command(&cli, argc - 2, argv + 2));
	if (cli.ctx.n_left)
		_exit(status);
	return status;
}
