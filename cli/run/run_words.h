/* SPDX-License-Identifier: Apache-2.0 */
/* What a word of the command line of `run` is. */
#ifndef JM_RUN_WORDS_H
#define JM_RUN_WORDS_H

#include "cli/frame/cli.h"

/* By its name, which ends in .yaml or .yml. */
bool jm_plan_is_file(const char *word);
/* Is the word a command that can be executed, and neither a workload nor a model? */
bool jm_run_begins_command(const struct jm_cli *cli, const char *word);
/* After --json: is the word the file to write, and not the work? */
bool jm_run_json_next(const char *word);

/* Writes one word as a shell reads it. */
void jm_run_quote(const char *word, char *out, size_t size);

#endif
