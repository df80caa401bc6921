/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark compare --systems and --published: the records of all files in one table for each
 * work. */
#include "compare_systems.h"
#include "base/text/json.h"
#include "cli/frame/json_option.h"
#include "compare_judge.h"
#include "compare_side.h"
#include "report/format/text.h"
#include "report/systems/systems.h"
#include "report/systems/systems_show.h"

#include <stdlib.h>
#include <string.h>

/* A run that two files or two filters of one file select counts once. */
static int add_once(json_t *records, json_t *seen, json_t *record)
{
	const json_t *of_case = json_object_get(record, "case");
	const json_t *provenance = json_object_get(record, "provenance");
	char key[280];

	snprintf(key, sizeof(key), "%.80s %.60s %.80s %lld", jm_json_text(of_case, "id"),
		jm_json_text(record, "started"), jm_json_text(provenance, "host"),
		(long long)json_integer_value(json_object_get(of_case, "repeat")));
	if (json_object_get(seen, key))
		return 0;
	return json_object_set_new_nocheck(seen, key, json_true()) ||
	       json_array_append(records, record);
}

static int add_all(json_t *records, json_t *seen, const json_t *more, struct jm_err *err)
{
	json_t *record;
	size_t i;

	json_array_foreach(more, i, record)
	{
		if (add_once(records, seen, record))
			return jm_err_set(err, JM_ENOMEM, "Out of memory for the records.");
	}
	return 0;
}

/* Records of all files, which belong to g[]. */
static int read_all(const struct jm_cli *cli, struct jm_given *g, json_t *records,
	bool *ret_damaged, struct jm_err *err)
{
	json_t *seen = json_object();
	int rc = seen && records ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for the records.");

	*ret_damaged = false;
	for (int i = 0; i < cli->n_args && !rc; i++) {
		rc = jm_given_read(cli->args[i], &g[i], err);
		rc = rc ? rc : add_all(records, seen, g[i].kept, err);
		*ret_damaged = *ret_damaged || g[i].in.n_damaged;
	}
	json_decref(seen);
	return rc;
}

static int show(struct jm_cli *cli, const char *path, const struct jm_systems *s)
{
	int rc = 0;

	if (!path || strcmp(path, "-") != 0)
		rc = jm_systems_print(s, cli->width, cli->out, &cli->err);
	return !path || rc ? rc : jm_json_put(cli, jm_systems_json(s));
}

/* Nothing to judge is no success: the condition cannot be decided. */
static int judge(const struct jm_systems *s, const struct jm_conditions *conditions)
{
	int status = conditions->n && !s->n_pairs ? JM_COMPARE_UNDECIDED : 0;
	char row[120], title[500];

	if (status)
		fprintf(stderr, "joulemark: No published figures fit these runs, so that --fail-if "
				"cannot be decided.\n");
	for (int i = 0; i < s->n_pairs; i++) {
		const struct jm_system *one = &s->system[s->pair[i].system];

		jm_systems_row_name(s->pair[i].row, row, sizeof(row));
		jm_text_format(
			title, sizeof(title), "%s, %s against %s", one->name, one->setting, row);
		status = jm_compare_worse(
			status, jm_conditions_judge(conditions, title, s->pair[i].line));
	}
	return status;
}

static int systems(
	struct jm_cli *cli, struct jm_given *g, json_t *records, const struct jm_compare_call *call)
{
	struct jm_systems s;
	bool damaged;
	int rc = read_all(cli, g, records, &damaged, &cli->err), status;

	if (!rc)
		rc = jm_systems_make(records, call->sort, call->published, &s, &cli->err);
	if (rc)
		return jm_cli_fail(cli);
	rc = show(cli, call->json, &s);
	status = rc ? jm_cli_fail(cli) : judge(&s, &call->conditions);
	jm_systems_done(&s);
	return !rc && damaged ? jm_compare_worse(status, JM_COMPARE_DAMAGED) : status;
}

int jm_compare_systems(struct jm_cli *cli, const struct jm_compare_call *call)
{
	struct jm_given *g = calloc((size_t)cli->n_args, sizeof(*g));
	json_t *records = json_array();
	int status;

	if (g) {
		status = systems(cli, g, records, call);
	} else {
		jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for %d files.", cli->n_args);
		status = jm_cli_fail(cli);
	}
	for (int i = 0; g && i < cli->n_args; i++)
		jm_given_done(&g[i]);
	json_decref(records);
	free(g);
	return status;
}
