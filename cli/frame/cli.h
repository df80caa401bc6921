/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: one const row per command; parsing, help and man page come from the rows. */
#ifndef JM_CLI_H
#define JM_CLI_H

#include "base/ctx.h"
#include "base/option.h"

#include <stdio.h>

#define JM_EXIT_USAGE	2
#define JM_EXIT_FAILURE 125 /* our own failure */

/* An option that the command's own table does not have, kept for the table of a workload or a
 * model. */
struct jm_extra {
	const char *name, *text;
};

struct jm_cli {
	struct jm_ctx ctx;
	const struct jm_command *const *commands; /* all of them, NULL-terminated */
	const struct jm_command *cmd;
	struct jm_values values; /* of cmd->options */
	struct jm_values common; /* of jm_common_options */
	FILE *out;		 /* results; standard output, or what --output names */
	const char *output;	 /* the value of --output; NULL = none */
	int width;		 /* columns of out */
	int given_width;	 /* the value of --width; 0 = not given */
	bool colour;		 /* out takes colours */
	bool quiet;
	char **args; /* positional arguments */
	int n_args;
	char **command; /* words of the command to run, NULL-terminated; NULL = none */
	struct jm_extra *extra;
	int n_extra;
	/* What the machine lacks is appended to this object, {"device cuda": sentence}, in place of
	 * an error;
	 * NULL = it is an error. */
	struct json_t *lacks;
	struct jm_err err;
};

/* The former name of an option, and what to write instead: "write --meters". */
struct jm_former {
	const char *name, *instead;
};

struct jm_command {
	const char *name;
	const char *summary; /* one line, for the list */
	const char *
		heading; /* in the list, of this command and those that follow; NULL = the one before */
	const char *usage; /* what follows the name: "[options] MODEL", "[options] -- CMD..." */
	const char *description;	 /* a paragraph or several, separated by blank lines */
	const char *example;		 /* lines of shell; may be NULL */
	const struct jm_option *options; /* terminated by name NULL; may be NULL */
	const struct jm_former *former;	 /* terminated by name NULL; may be NULL */
	int min_args, max_args;		 /* positional; max_args -1 = any number */
	bool takes_command;		 /* "-- CMD..." is allowed */
	/* Does the command to run begin with this word, though no "--" stands before it? NULL =
	 * never. */
	bool (*begins_command)(const struct jm_cli *cli, const char *word);
	bool takes_extra; /* unknown options are collected in cli->extra */
	/* Prints what its first argument takes; false: that is not known. NULL = the command's help
	 * is all there is. */
	bool (*help_of)(const struct jm_cli *cli);
	bool hidden;			/* not in the help */
	bool no_recovery;		/* what a killed joulemark left set is not put back first */
	int (*run)(struct jm_cli *cli); /* returns the exit status */
};

/* Is this option of the command given, and not its default? */
bool jm_cli_given(const struct jm_cli *cli, const char *name);
/* The first of these options, NULL-terminated, that is; NULL = none. For sentences that name it. */
const char *jm_cli_first_given(const struct jm_cli *cli, const char *const *names);
/* Prints cli->err and gives the exit status that fits it: 2 for wrong usage, else 125. */
int jm_cli_fail(const struct jm_cli *cli);

#endif
