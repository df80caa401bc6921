/* SPDX-License-Identifier: Apache-2.0 */
/* --json[=FILE]: the same in every command. Alone it means standard output. */
#ifndef JM_JSON_OPTION_H
#define JM_JSON_OPTION_H

#include "base/files/output.h"
#include "cli.h"

#include <jansson.h>

#define JM_JSON_ROW(HELP) .name = "json", .argument = "FILE", .bare = "-", .help = HELP
/* Of a command that prints JSON in place of its text. */
#define JM_JSON_OPTION                                                                             \
	{                                                                                          \
		JM_JSON_ROW("print JSON, or write it to this file"), .type = JM_TEXT               \
	}

/* Fields of the row of a command with --format and --output: jm_json_format sets both. */
#define JM_JSON_FORMAT                                                                             \
	JM_JSON_ROW("the same as --format json, and --output FILE if a file is given"),            \
		.type = JM_TEXT

/* jm_option.takes_next of commands in which the next word is the file: everything but an option. */
bool jm_json_next(const char *word);
/* Is --json given? */
bool jm_json_wanted(const struct jm_cli *cli);
/* Where the row is JM_JSON_FORMAT, --json sets the format, and the output where it names a file. */
int jm_json_format(struct jm_cli *cli);
/* Writes to the file at path; "-" is the normal output of a command: stdout, or --output. */
int jm_cli_put_by(struct jm_cli *cli, const char *path, jm_output_fn *put, const void *what);
/* Writes the value where --json says, and releases it; NULL: there was no memory for it. */
int jm_json_put(struct jm_cli *cli, json_t *value);

#endif
