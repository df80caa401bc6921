/* SPDX-License-Identifier: Apache-2.0 */
/* Help and man page, from the rows of commands and options. */
#include "help.h"
#include "cli.h"
#include "common_options.h"
#include "shell_completion.h"
#include "help_record.h"
#include "option_values.h"
#include "work_options.h"

#include "report/format/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH_MOST 100
#define LARGE	   1e6 /* a limit from here on is none that anybody meets */
#define TAGLINE                                                                                    \
	"what AI work costs on a machine: speed, power and energy, and which power cap is best"

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

/* "--batch N", "--json[=FILE]", "--quiet" */
static void option_text(const struct jm_option *o, char *out, size_t size)
{
	const char *argument = argument_name(o);

	snprintf(out, size, "--%s%s%s%s", o->name,
		o->bare	    ? "[="
		: *argument ? " "
			    : "",
		argument, o->bare ? "]" : "");
}

/* Long lines are hard to read, however wide the terminal is. */
static int text_width(int width)
{
	return width < WIDTH_MOST ? width : WIDTH_MOST;
}

/* Blank lines separate paragraphs. */
static void print_wrapped(FILE *out, const char *text, int indent, int width)
{
	while (*text) {
		const char *end = strstr(text, "\n\n");
		size_t n = end ? (size_t)(end - text) : strlen(text);
		char *paragraph = strndup(text, n);

		if (paragraph)
			jm_text_wrap(out, paragraph, indent, indent, text_width(width));
		free(paragraph);
		text += n + strspn(text + n, "\n");
		if (*text)
			fputc('\n', out);
	}
}

/* "1 to 64; default 4", printed after the sentence of an option */
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
		const char *unit = o->unit ? o->unit : "";

		used += o->max < LARGE ? snprintf(out, size, " %.10g to %.10g", o->min, o->max)
				       : snprintf(out, size, " At least %.10g", o->min);
		used += snprintf(out + used, size - (size_t)used, "%s%s%s%s.", *unit ? " " : "",
			unit, *unit ? "; a number alone is in " : "", unit);
	}
	if (o->fallback && used < (int)size)
		snprintf(out + used, size - (size_t)used, " Default %s.", o->fallback);
}

static void print_option(const struct jm_option *o, FILE *out, int width)
{
	char limits[512], text[1024], name[128];

	option_text(o, name, sizeof(name));
	fprintf(out, "  %s\n", name);
	limits_text(o, limits, sizeof(limits));
	snprintf(text, sizeof(text), "%s.%s%s", o->help, limits,
		o->repeat ? " May be repeated." : "");
	print_wrapped(out, text, 8, width);
}

static void print_options(const struct jm_option *rows, FILE *out, int width)
{
	for (const struct jm_option *o = rows; o && o->name; o++) {
		if (o->heading)
			fprintf(out, "%s%s\n", o == rows ? "" : "\n", o->heading);
		print_option(o, out, width);
	}
}

/* The common options that the command does not redefine. */
static void print_common_options(const struct jm_command *cmd, FILE *out, int width)
{
	fprintf(out, "\nOptions of every command\n");
	for (const struct jm_option *o = jm_common_options; o->name; o++)
		if (!jm_option_find(cmd->options, o->name))
			print_option(o, out, width);
}

static bool any_usual(const struct jm_option *rows)
{
	while (rows && rows->name && !rows->usual)
		rows++;
	return rows && rows->name;
}

/* The options that the short help does not describe: a line of names for each heading. */
static void print_others(const struct jm_command *cmd, FILE *out, int width)
{
	char line[512] = "This command:", text[128];

	fputc('\n', out);
	snprintf(text, sizeof(text), "Other options, which 'joulemark help %s --all' describes",
		cmd->name);
	jm_text_wrap(out, text, 0, 2, text_width(width));
	for (const struct jm_option *o = cmd->options; o->name; o++) {
		if (o->heading)
			snprintf(line, sizeof(line), "%s:", o->heading);
		if (!o->usual)
			jm_text_append(line, sizeof(line), " --", o->name);
		if ((!o[1].name || o[1].heading) && line[strlen(line) - 1] != ':')
			jm_text_wrap(out, line, 2, 8, text_width(width));
	}
	snprintf(line, sizeof(line), "Every command:");
	for (const struct jm_option *o = jm_common_options; o->name; o++)
		if (!jm_option_find(cmd->options, o->name))
			jm_text_append(line, sizeof(line), " --", o->name);
	jm_text_wrap(out, line, 2, 8, text_width(width));
}

static void print_usual(const struct jm_command *cmd, FILE *out, int width)
{
	fprintf(out, "\nUsual options\n");
	for (const struct jm_option *o = cmd->options; o->name; o++)
		if (o->usual)
			print_option(o, out, width);
	print_others(cmd, out, width);
}

static void print_all(const struct jm_command *cmd, FILE *out, int width)
{
	if (cmd->options && cmd->options->name) {
		fprintf(out, cmd->options->heading ? "\n" : "\nOptions\n");
		print_options(cmd->options, out, width);
	}
	print_common_options(cmd, out, width);
}

/* The short help has the first paragraph and the usual options, where some are. */
int jm_help_command(const struct jm_command *cmd, bool all, FILE *out, int width)
{
	bool whole = all || !any_usual(cmd->options);
	char usage[256], first[2048];
	size_t n = strcspn(cmd->description, "\n");

	snprintf(usage, sizeof(usage), "joulemark %s %s", cmd->name, cmd->usage);
	jm_text_wrap(out, usage, 0, 4, text_width(width));
	fputc('\n', out);
	snprintf(first, sizeof(first), "%.*s", (int)n, cmd->description);
	print_wrapped(out, whole ? cmd->description : first, 0, width);
	if (whole)
		print_all(cmd, out, width);
	else
		print_usual(cmd, out, width);
	if (cmd->example)
		fprintf(out, "\nExample\n%s\n", cmd->example);
	return 0;
}

/* Those of the model of that name, if it is one. */
static bool print_model_options(const char *name, FILE *out, int width)
{
	const struct jm_preset *preset;
	const struct jm_model *model;

	if (jm_model_find(name, &model, &preset, NULL))
		return false;
	fprintf(out, "\nOptions of model '%s'; those given replace the preset's\n", model->name);
	print_options(model->options, out, width);
	return true;
}

bool jm_help_model(const struct jm_cli *cli)
{
	const struct jm_preset *preset;
	const struct jm_model *model;

	if (jm_model_find(cli->args[0], &model, &preset, NULL))
		return false;
	jm_help_command(cli->cmd, true, cli->out, cli->width);
	return print_model_options(cli->args[0], cli->out, cli->width);
}

/* Work whose unit depends on its options calls it an item; that of a model is known. */
static void print_summary(
	const struct jm_workload *w, const struct jm_model *model, FILE *out, int width)
{
	const char *item = model && !strcmp(w->unit, "item") ? model->item : w->unit;
	char text[512], unit[80] = "";

	if (strcmp(item, "item") != 0)
		snprintf(unit, sizeof(unit), "; an item is %s %s",
			strchr("aeiou", item[0]) ? "an" : "a", item);
	snprintf(text, sizeof(text), "%s%s.", w->summary, unit);
	print_wrapped(out, text, 0, width);
}

bool jm_help_workload(const struct jm_cli *cli)
{
	const char *name = cli->args[0];
	FILE *out = cli->out;
	int width = cli->width;
	char text[160];
	const struct jm_model *model;
	const struct jm_workload *w = jm_work_find(name, &model);

	if (!w)
		return false;
	snprintf(text, sizeof(text), "joulemark run [options] %s [workload's options]", name);
	jm_text_wrap(out, text, 0, 4, text_width(width));
	fputc('\n', out);
	print_summary(w, model, out, width);
	if (!w->options || !w->options->name)
		return true;
	snprintf(text, sizeof(text),
		"Options of '%s', in addition to those of 'joulemark run'; a list is swept",
		w->name);
	fputc('\n', out);
	jm_text_wrap(out, text, 0, 2, text_width(width));
	print_options(w->options, out, width);
	print_model_options(name, out, width);
	return true;
}

int jm_help_program(const struct jm_command *const *commands, FILE *out, int width)
{
	char line[256];

	snprintf(line, sizeof(line), "joulemark %s - %s", JM_VERSION, TAGLINE);
	jm_text_wrap(out, line, 0, 4, text_width(width));
	fprintf(out, "\nCommands\n");
	for (int i = 0; commands[i]; i++) {
		if (commands[i]->heading)
			fprintf(out, "\n%s\n", commands[i]->heading);
		snprintf(line, sizeof(line), "%-10s %s", commands[i]->name, commands[i]->summary);
		if (!commands[i]->hidden)
			jm_text_wrap(out, line, 2, 13, text_width(width));
	}
	fputc('\n', out);
	jm_text_wrap(out,
		"'joulemark COMMAND --help' describes a command and its options. An option with a "
		"value is given once, unless its description says 'May be repeated'. Start with "
		"'joulemark doctor'.",
		0, 0, text_width(width));
	return 0;
}

/* Text for roff: no line may start with a dot or a quote, and backslashes and dashes are
 * escaped. */
static void print_roff(const char *text, FILE *out)
{
	bool line_start = true;

	for (; *text; text++) {
		if (line_start && (*text == '.' || *text == '\''))
			fprintf(out, "\\&");
		line_start = *text == '\n';
		if (line_start && text[1] == '\n') {
			fprintf(out, "\n.PP");
			continue;
		}
		if (*text == '\\')
			fprintf(out, "\\e");
		else if (*text == '-')
			fprintf(out, "\\-");
		else
			fputc(*text, out);
	}
	fputc('\n', out);
}

static void man_options(const struct jm_option *rows, FILE *out)
{
	char limits[512], text[1024];

	for (const struct jm_option *o = rows; o && o->name; o++) {
		if (o->heading)
			fprintf(out, ".PP\n.B %s\n", o->heading);
		fprintf(out,
			o->bare ? ".TP\n.BR \\-\\-%s \"[=%s]\"\n" : ".TP\n.BR \\-\\-%s \" %s\"\n",
			o->name, argument_name(o));
		limits_text(o, limits, sizeof(limits));
		snprintf(text, sizeof(text), "%s.%s%s", o->help, limits,
			o->repeat ? " May be repeated." : "");
		print_roff(text, out);
	}
}

static void man_command(const struct jm_command *cmd, FILE *out)
{
	fprintf(out, ".SS \"joulemark %s %s\"\n", cmd->name, cmd->usage);
	print_roff(cmd->description, out);
	man_options(cmd->options, out);
	if (!cmd->example)
		return;
	fprintf(out, ".PP\nExample:\n.PP\n.nf\n");
	print_roff(cmd->example, out);
	fprintf(out, ".fi\n");
}

static const struct {
	const char *name, *meaning;
} environment[] = {
	{"COLUMNS", "width of the text where it is not printed on a terminal"},
	{"JM_AMDSMI_LIB", "the AMD SMI library to open"},
	{"JM_BACKENDS", "folder of the backends' plug-ins"},
	{"JM_CUBLASLT_LIB", "the cuBLASLt library to open"},
	{"JM_CUDA_FAST", "when set: allow algorithms on a GPU whose results may differ in "
			 "their last bits from run to run"},
	{"JM_CUDA_LOGITS", "largest number of bytes of a GPU's memory for logits"},
	{"JM_CUDA_LIB", "the library of NVIDIA's driver for --decode device"},
	{"JM_CUDNN_LIB", "the cuDNN library to open"},
	{"JM_CURL_LIB", "the curl library to open"},
	{"JM_DEBUG", "when set: also print messages for the search of faults"},
	{"JM_GANG_SECONDS", "seconds that the ranks of a case wait for one that does not "
			    "join them (600)"},
	{"JM_GANG_SECRET", "random text that ranks have in common which were started apart "
			   "(run --launcher started)"},
	{"JM_GUARD", "absolute path of the program joulemark that the library starts to change "
		     "settings; without it the program that was installed with the library"},
	{"JM_HDF5_LIB", "the HDF5 library to open"},
	{"JM_MICROHTTPD_LIB", "the libmicrohttpd library to open"},
	{"JM_HWLOC_LIB", "the hwloc library to open"},
	{"JM_MODBUS_LIB", "the libmodbus library to open"},
	{"JM_NCCL_LIB", "the NCCL library to open"},
	{"JM_NVJPEG_LIB", "the nvJPEG library to open"},
	{"JM_NVML_LIB", "the NVML library to open"},
	{"JM_PLANS", "folder of the algorithms that were chosen by timing on a GPU"},
	{"JM_ROCMSMI_LIB", "the ROCm SMI library to open"},
	{"JM_ROOT", "prefix of /sys, /proc and /dev"},
	{"JM_SNMP_LIB", "the net-snmp library to open"},
	{"JM_STATE", "folder of the journal of settings"},
	{"JM_TRANSPORTS", "folder of the transports' plug-ins"},
	{"MASTER_ADDR, MASTER_PORT", "of ranks that were started apart: where rank 0 awaits "
				     "the others"},
	{"NO_COLOR", "when set and not empty: no colours"},
	{"RANK, WORLD_SIZE", "of ranks that were started apart: the number of this one, and "
			     "of all; also those of Open MPI, PMIx and Slurm"},
};

static void print_environment(FILE *out)
{
	fprintf(out, ".SH ENVIRONMENT\n");
	for (size_t i = 0; i < sizeof(environment) / sizeof(environment[0]); i++)
		fprintf(out, ".TP\n.B %s\n%s\n", environment[i].name, environment[i].meaning);
	fprintf(out,
		".PP\nAll of them are ignored when the program runs with raised privileges.\n");
}

static int print_man(const struct jm_command *const *commands, FILE *out)
{
	fprintf(out, ".TH JOULEMARK 1 \"\" \"joulemark %s\" \"User Commands\"\n", JM_VERSION);
	fprintf(out, ".SH NAME\njoulemark \\- %s\n", TAGLINE);
	fprintf(out,
		".SH SYNOPSIS\n.B joulemark\n.I command\n[options] [arguments] [\\-\\- command "
		"...]\n");
	fprintf(out, ".SH COMMANDS\n");
	for (int i = 0; commands[i]; i++)
		if (!commands[i]->hidden)
			man_command(commands[i], out);
	fprintf(out, ".SH \"OPTIONS OF EVERY COMMAND\"\n");
	man_options(jm_common_options, out);
	fprintf(out, ".SH WORKLOADS\nWorkloads of 'joulemark run' and their options, in addition "
		     "to its own. An option that is given as a list is swept.\n");
	for (int i = 0; jm_workloads[i]; i++) {
		fprintf(out, ".SS %s\n", jm_workloads[i]->name);
		print_summary(jm_workloads[i], NULL, out, WIDTH_MOST);
		man_options(jm_workloads[i]->options, out);
	}
	fprintf(out, ".SH MODELS\nModels that workloads run and 'joulemark describe' plans, with "
		     "their own options. Those that a preset sets are replaced by those given.\n");
	for (int i = 0; jm_models[i]; i++) {
		fprintf(out, ".SS %s\n", jm_models[i]->name);
		print_roff(jm_models[i]->summary, out);
		man_options(jm_models[i]->options, out);
	}
	fprintf(out,
		".SH \"EXIT STATUS\"\nOf 'measure', 'jpwr', and 'set' with a command: that of the "
		"command, or 128 + signal when a signal killed it; 127 when it was not found. "
		"Of other commands: 0 for success, and what their descriptions say. Of all: 125 "
		"when joulemark itself failed, 2 for wrong usage.\n");
	print_environment(out);
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

static const char *const shells[] = {
#define X(name, text) text,
	JM_SHELLS(X)
#undef X
		NULL,
};

struct call {
	int shell; /* enum jm_shell; -1 = not given */
	const char *values;
	bool all, man, schema, keys;
};

/* That the first argument names; NULL = none. */
static const struct jm_command *command_of(const struct jm_cli *cli)
{
	for (int i = 0; cli->n_args && cli->commands[i]; i++)
		if (!strcmp(cli->commands[i]->name, cli->args[0]))
			return cli->commands[i];
	return NULL;
}

static int help_run(struct jm_cli *cli)
{
	struct call call = {.shell = -1};

	JM_FILL(&cli->values, &call);
	if (call.shell >= 0) {
		jm_completion_print(cli->commands, (enum jm_shell)call.shell, cli->out);
		return 0;
	}
	if (call.values) {
		jm_option_values_print(cli, call.values, command_of(cli), cli->out);
		return 0;
	}
	if (cli->n_args && (call.man || call.schema || call.keys)) {
		jm_err_set(&cli->err, JM_EUSAGE,
			"--man, --schema and --keys do not describe a single command; omit "
			"'%.80s'.",
			cli->args[0]);
		return jm_cli_fail(cli);
	}
	if (call.man)
		return print_man(cli->commands, cli->out);
	if (call.schema)
		return jm_help_schema(cli->out);
	if (call.keys)
		return jm_help_keys(cli->out);
	if (!cli->n_args)
		return jm_help_program(cli->commands, cli->out, cli->width);
	if (command_of(cli))
		return jm_help_command(command_of(cli), call.all, cli->out, cli->width);
	if (jm_help_workload(cli))
		return 0;
	unknown(cli->commands, cli->args[0], &cli->err);
	return jm_cli_fail(cli);
}

static const struct jm_option help_options[] = {
	{.name = "all",
		JM_BIND(JM_FLAG, struct call, all),
		.help = "describe all options of the command, not only the usual ones"},
	{.name = "man", JM_BIND(JM_FLAG, struct call, man), .help = "print the man page"},
	{.name = "completion",
		JM_BIND(JM_CHOICE, struct call, shell),
		.choices = shells,
		.argument = "SHELL",
		.help = "print the completion of the command line for this shell"},
	{.name = "values",
		JM_BIND(JM_TEXT, struct call, values),
		.argument = "OPTION",
		.help = "print the values that a shell may complete for this option of the "
			"command: "
			"devices that are here, knobs, models, columns; FILE: for the fields of a "
			"store"},
	{.name = "schema",
		JM_BIND(JM_FLAG, struct call, schema),
		.help = "print the JSON Schema of a record"},
	{.name = "keys",
		JM_BIND(JM_FLAG, struct call, keys),
		.help = "print the keys of a record as a table"},
	{0},
};

const struct jm_command jm_command_help = {
	.name = "help",
	.summary = "describe a command or a workload",
	.usage = "[--all] [COMMAND|WORKLOAD|MODEL]",
	.description = "Prints the help of a command, of a workload or model that 'joulemark run' "
		       "runs, or "
		       "the list of commands.",
	.options = help_options,
	.max_args = 1,
	.run = help_run,
};
