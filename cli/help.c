/* SPDX-License-Identifier: Apache-2.0 */
/* Help and man page, from the rows of commands and options. */
#include "cli.h"
#include "run/workload.h"
#include "engine/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAGLINE                                                                                    \
	"what AI work costs on a machine: speed, power, energy, and where the power cap should "   \
	"stand"

static const char *argument_name(const struct jm_option *o)
{
	static const char *const by_type[] = {
		[JM_INT] = "N",
		[JM_REAL] = "X",
		[JM_TEXT] = "TEXT",
		[JM_CHOICE] = "WHICH",
		[JM_FLAG] = "",
		[JM_DURATION] = "TIME",
	};

	return o->argument ? o->argument : by_type[o->type];
}

/* Wraps text at 88 columns behind an indent; blank lines separate paragraphs. */
static void print_wrapped(const char *text, int indent)
{
	int column = 0;

	while (*text) {
		size_t blanks = strspn(text, " \n"), len;

		if (column && blanks >= 2 && !strncmp(text, "\n\n", 2)) {
			printf("\n\n");
			column = 0;
		}
		text += blanks;
		len = strcspn(text, " \n");
		if (!len)
			break;
		if (column && column + 1 + (int)len > 88) {
			putchar('\n');
			column = 0;
		}
		if (!column)
			column = printf("%*s", indent, "");
		else
			column += printf(" ");
		column += printf("%.*s", (int)len, text);
		text += len;
	}
	putchar('\n');
}

/* "1 to 64; default 4" behind an option's sentence */
static void limits_text(const struct jm_option *o, char *out, size_t size)
{
	int used = 0;

	out[0] = '\0';
	if (o->type == JM_CHOICE) {
		for (int i = 0; o->choices[i] && used < (int)size; i++)
			used += snprintf(out + used, size - (size_t)used, "%s%s",
				i ? ", " : " One of ", o->choices[i]);
		used += snprintf(out + used, size - (size_t)used, ".");
	} else if (o->type != JM_TEXT && o->type != JM_FLAG && o->min < o->max) {
		bool unit = o->unit && *o->unit;

		used += snprintf(out, size, " %.10g to %.10g%s%s%s%s.", o->min, o->max,
			unit ? " " : "", unit ? o->unit : "", unit ? "; a number alone is in " : "",
			unit ? o->unit : "");
	}
	if (o->fallback && used < (int)size)
		snprintf(out + used, size - (size_t)used, " Default %s.", o->fallback);
}

static void print_options(const struct jm_option *rows)
{
	char limits[512], text[1024];

	for (const struct jm_option *o = rows; o && o->name; o++) {
		printf("  --%s%s%s\n", o->name, *argument_name(o) ? " " : "", argument_name(o));
		limits_text(o, limits, sizeof(limits));
		snprintf(text, sizeof(text), "%s.%s%s", o->help, limits,
			o->repeat ? " May be repeated." : "");
		print_wrapped(text, 8);
	}
}

int jm_help_command(const struct jm_command *cmd)
{
	printf("joulemark %s %s\n\n", cmd->name, cmd->usage);
	print_wrapped(cmd->description, 0);
	if (cmd->options && cmd->options->name) {
		printf("\nOptions\n");
		print_options(cmd->options);
	}
	if (cmd->example)
		printf("\nExample\n%s\n", cmd->example);
	return 0;
}

/* The workload of that name, or the one that works on a preset of that name; NULL = neither. */
static const struct jm_workload *workload_of(const char *name)
{
	for (int i = 0; jm_models[i]; i++)
		for (const struct jm_preset *p = jm_models[i]->presets; p && p->name; p++)
			if (!strcmp(p->name, name) && p->workload)
				return jm_workload_find(p->workload, NULL);
	return jm_workload_find(name, NULL);
}

/* Work whose unit depends on its options calls it an item. */
static void print_summary(const struct jm_workload *w)
{
	printf("%s", w->summary);
	if (strcmp(w->unit, "item") != 0)
		printf("; an item is %s %s", strchr("aeiou", w->unit[0]) ? "an" : "a", w->unit);
	printf(".\n");
}

bool jm_help_workload(const char *name)
{
	const struct jm_workload *w = workload_of(name);

	if (!w)
		return false;
	printf("joulemark run [options] %s [workload's options]\n\n", name);
	print_summary(w);
	if (!w->options || !w->options->name)
		return true;
	printf("\nOptions of '%s', besides those of 'joulemark run'; a list sweeps\n", w->name);
	print_options(w->options);
	return true;
}

int jm_help_program(const struct jm_command *const *commands)
{
	printf("joulemark %s - %s\n\nCommands\n", JM_VERSION, TAGLINE);
	for (int i = 0; commands[i]; i++)
		if (!commands[i]->hidden)
			printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
	printf("\n'joulemark COMMAND --help' tells more. Start with 'joulemark doctor'.\n");
	return 0;
}

/* Text for roff: no line may start with a dot or a quote, and backslashes and dashes are escaped. */
static void print_roff(const char *text)
{
	bool line_start = true;

	for (; *text; text++) {
		if (line_start && (*text == '.' || *text == '\''))
			printf("\\&");
		line_start = *text == '\n';
		if (line_start && text[1] == '\n') {
			printf("\n.PP");
			continue;
		}
		if (*text == '\\')
			printf("\\e");
		else if (*text == '-')
			printf("\\-");
		else
			putchar(*text);
	}
	putchar('\n');
}

static void man_options(const struct jm_option *rows)
{
	char limits[512], text[1024];

	for (const struct jm_option *o = rows; o && o->name; o++) {
		printf(".TP\n.BR \\-\\-%s \" %s\"\n", o->name, argument_name(o));
		limits_text(o, limits, sizeof(limits));
		snprintf(text, sizeof(text), "%s.%s%s", o->help, limits,
			o->repeat ? " May be repeated." : "");
		print_roff(text);
	}
}

static void man_command(const struct jm_command *cmd)
{
	printf(".SS \"joulemark %s %s\"\n", cmd->name, cmd->usage);
	print_roff(cmd->description);
	man_options(cmd->options);
	if (!cmd->example)
		return;
	printf(".PP\nExample:\n.PP\n.nf\n");
	print_roff(cmd->example);
	printf(".fi\n");
}

int jm_help_man(const struct jm_command *const *commands)
{
	printf(".TH JOULEMARK 1 \"\" \"joulemark %s\" \"User Commands\"\n", JM_VERSION);
	printf(".SH NAME\njoulemark \\- %s\n", TAGLINE);
	printf(".SH SYNOPSIS\n.B joulemark\n.I command\n[options] [arguments] [\\-\\- command "
	       "...]\n");
	printf(".SH COMMANDS\n");
	for (int i = 0; commands[i]; i++)
		if (!commands[i]->hidden)
			man_command(commands[i]);
	printf(".SH WORKLOADS\nWhat 'joulemark run' runs, and the options that it takes besides "
	       "its "
	       "own. A list sweeps.\n");
	for (int i = 0; jm_workloads[i]; i++) {
		printf(".SS %s\n", jm_workloads[i]->name);
		print_summary(jm_workloads[i]);
		man_options(jm_workloads[i]->options);
	}
	printf(".SH \"EXIT STATUS\"\nThe measured command's own, or 128 + signal when it was "
	       "killed; 127 when "
	       "it was not found; 125 when joulemark itself failed; 2 for wrong usage.\n");
	printf(".SH ENVIRONMENT\n.TP\n.B JM_ROOT\nprefix of /sys, /proc and /dev\n.TP\n.B "
	       "JM_STATE\nfolder "
	       "of the journal of settings\n.TP\n.B JM_NVML_LIB\nthe NVML library to "
	       "open\n.PP\nAll are "
	       "ignored when privileges are raised.\n");
	return 0;
}

static void unknown(const struct jm_command *const *commands, const char *name, struct jm_err *err)
{
	const char *names[64], *near;
	size_t n = 0;

	for (int i = 0; commands[i] && n < 32; i++)
		if (!commands[i]->hidden)
			names[n++] = commands[i]->name;
	for (int i = 0; jm_workloads[i] && n < 64; i++)
		names[n++] = jm_workloads[i]->name;
	near = jm_did_you_mean(name, names, n);
	jm_err_set(err, JM_EUSAGE, "There is no command or workload '%s'; %s%s%s", name,
		near ? "did you mean '"
		     : "'joulemark --help' lists the commands, 'joulemark list' ",
		near ? near : "the workloads.", near ? "'?" : "");
}

static int help_run(struct jm_cli *cli)
{
	if (jm_values_number(&cli->values, "man") > 0)
		return jm_help_man(cli->commands);
	if (!cli->n_args)
		return jm_help_program(cli->commands);
	for (int i = 0; cli->commands[i]; i++)
		if (!strcmp(cli->commands[i]->name, cli->args[0]))
			return jm_help_command(cli->commands[i]);
	if (jm_help_workload(cli->args[0]))
		return 0;
	unknown(cli->commands, cli->args[0], &cli->err);
	return jm_cli_fail(cli);
}

static const struct jm_option help_options[] = {
	{.name = "man", .type = JM_FLAG, .help = "print the man page"},
	{0},
};

const struct jm_command jm_command_help = {
	.name = "help",
	.summary = "tell about a command or a workload",
	.usage = "[COMMAND|WORKLOAD]",
	.description =
		"Prints the help of a command, of a workload that 'joulemark run' runs, or the "
		"list of commands.",
	.options = help_options,
	.max_args = 1,
	.run = help_run,
};
