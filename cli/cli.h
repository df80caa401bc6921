/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: one const row per command; parsing, help and man page come from the rows. */
#ifndef JM_CLI_H
#define JM_CLI_H

#include "base/option.h"

#define JM_EXIT_USAGE	2
#define JM_EXIT_FAILURE 125 /* our own failure */

/* An option that the command's own table does not have, kept for a workload's table. */
struct jm_extra {
	const char *name, *text;
};

struct jm_cli {
	struct jm_ctx ctx;
	const struct jm_command *const *commands; /* all of them, NULL-terminated */
	const struct jm_command *cmd;
	struct jm_values values; /* of cmd->options */
	char **args;		 /* positional arguments */
	int n_args;
	char **command; /* what stands after "--", NULL-terminated; NULL = nothing */
	struct jm_extra *extra;
	int n_extra;
	struct jm_err err;
};

struct jm_command {
	const char *name;
	const char *summary; /* one line, for the list */
	const char *usage;   /* what follows the name: "[options] MODEL", "[options] -- CMD..." */
	const char *description;	 /* a paragraph or several, separated by blank lines */
	const char *example;		 /* lines of shell; may be NULL */
	const struct jm_option *options; /* terminated by name NULL; may be NULL */
	int min_args, max_args;		 /* positional; max_args -1 = any number */
	bool takes_command;		 /* "-- CMD..." is allowed */
	bool takes_extra;		 /* unknown options are collected in cli->extra */
	bool hidden;			 /* not in the help */
	int (*run)(struct jm_cli *cli);	 /* returns the exit status */
};

/* Prints cli->err and gives the exit status that fits it: 2 for wrong usage, else 125. */
int jm_cli_fail(const struct jm_cli *cli);
/* cli/help.c: data on stdout */
int jm_help_program(const struct jm_command *const *commands);
int jm_help_command(const struct jm_command *cmd);
/* The options that 'run NAME' takes besides its own; false when NAME is no workload and no model. */
bool jm_help_workload(const char *name);
int jm_help_man(const struct jm_command *const *commands);

#endif
