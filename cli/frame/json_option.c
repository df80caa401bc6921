/* SPDX-License-Identifier: Apache-2.0 */
#include "json_option.h"

#include <string.h>

bool jm_json_next(const char *word)
{
	return word[0] != '-' || !word[1];
}

bool jm_json_wanted(const struct jm_cli *cli)
{
	return jm_values_text(&cli->values, "json");
}

/* The table that has --output: the command's own, else the one of every command. */
static struct jm_values *output_table(struct jm_cli *cli)
{
	return jm_values_get(&cli->values, "output") ? &cli->values : &cli->common;
}

int jm_json_format(struct jm_cli *cli)
{
	struct jm_values *output = output_table(cli);
	const char *path;

	if (!jm_values_get(&cli->values, "json") || !jm_values_get(&cli->values, "format") ||
		!jm_json_wanted(cli))
		return 0;
	path = jm_values_text(&cli->values, "json");
	if (jm_cli_given(cli, "format"))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--json stands for --format json; give one of the two.");
	if (strcmp(path, "-") != 0 && jm_values_given(output, "output"))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--json=%s and --output both name a file; give one of the two.", path);
	if (jm_values_set(&cli->values, "format", "json", &cli->err))
		return cli->err.code;
	return strcmp(path, "-") != 0 ? jm_values_set(output, "output", path, &cli->err) : 0;
}

int jm_cli_put_by(struct jm_cli *cli, const char *path, jm_output_fn *put, const void *what)
{
	if (strcmp(path, "-") != 0)
		return jm_output_by(path, put, what, &cli->err);
	return put(what, cli->out)
		       ? 0
		       : jm_err_set(&cli->err, JM_EIO, "The results could not be written.");
}

int jm_json_put(struct jm_cli *cli, json_t *value)
{
	const char *path = jm_values_text(&cli->values, "json");
	int rc = 0;

	if (!value)
		rc = jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the JSON.");
	else if (strcmp(path, "-") != 0)
		rc = jm_output_json(path, value, &cli->err);
	else if (json_dumpf(value, cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) ||
		 fputc('\n', cli->out) == EOF)
		rc = jm_err_set(&cli->err, JM_EIO, "The JSON could not be written.");
	json_decref(value);
	return rc;
}
