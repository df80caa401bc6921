/* SPDX-License-Identifier: Apache-2.0 */
#include "json_option.h"

#include "base/files/output.h"

#include <string.h>

bool jm_json_next(const char *word)
{
	return word[0] != '-' || !word[1];
}

bool jm_json_wanted(const struct jm_cli *cli)
{
	return jm_values_text(&cli->values, "json");
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
