/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark query: run SQL on the views of a store. */
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"
#include "base/text/csv_fields.h"
#include "report/format/grid.h"
#include "store/store.h"
#include "store/store_query.h"

#include <stdlib.h>
#include <string.h>

static const char *const formats[] = {"table", "csv", "json", NULL};

struct call {
	enum { TABLE, CSV, JSON } format; /* in the order of formats */
};

struct result {
	json_t *names, *rows;
};

static int take(void *arg, const json_t *names, json_t *row, struct jm_err *err)
{
	struct result *r = arg;

	if (!row)
		r->names = json_incref((json_t *)names);
	else if (json_array_append(r->rows, row))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the result of the query.");
	return 0;
}

/* "" for null; for the caller to free. */
static char *text_of(const json_t *value)
{
	char number[40] = "";

	if (json_is_string(value))
		return strdup(json_string_value(value));
	if (json_is_integer(value))
		snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		snprintf(number, sizeof(number), "%.10g", json_real_value(value));
	return strdup(number);
}

static int print_table(const struct result *r, int width, FILE *f, struct jm_err *err)
{
	int rows = (int)json_array_size(r->rows), columns = (int)json_array_size(r->names);
	struct jm_grid grid;
	int rc = jm_grid_new(&grid, rows, columns, err);

	for (int c = 0; c < columns && !rc; c++) {
		rc = jm_grid_set(&grid, -1, c, err, "%s",
			json_string_value(json_array_get(r->names, (size_t)c)));
		for (int k = 0; k < rows && !rc; k++) {
			const json_t *value =
				json_array_get(json_array_get(r->rows, (size_t)k), (size_t)c);
			char *text = text_of(value);

			grid.left[c] = grid.left[c] || json_is_string(value);
			rc = jm_grid_set(&grid, k, c, err, "%s",
				json_is_null(value) ? "-"
				: text		    ? text
						    : "");
			free(text);
		}
	}
	if (!rc && columns == 1)
		grid.n_setting = 0;
	if (!rc)
		jm_grid_print(&grid, 0, width, f);
	jm_grid_done(&grid);
	return rc;
}

static void print_csv_row(const json_t *row, FILE *f)
{
	const json_t *value;
	size_t i;

	json_array_foreach(row, i, value)
	{
		char *text = text_of(value);

		fputs(i ? "," : "", f);
		jm_csv_put_text(f, text ? text : "");
		free(text);
	}
	fputs("\r\n", f);
}

static void print_csv(const struct result *r, FILE *f)
{
	const json_t *row;
	size_t i;

	print_csv_row(r->names, f);
	json_array_foreach(r->rows, i, row) print_csv_row(row, f);
}

/* One object per row. */
static int print_json(const struct result *r, FILE *f, struct jm_err *err)
{
	json_t *all = json_array(), *row, *name;
	size_t i, k;
	int rc;

	json_array_foreach(r->rows, i, row)
	{
		json_t *one = json_object();

		json_array_foreach(r->names, k, name)
			json_object_set(one, json_string_value(name), json_array_get(row, k));
		json_array_append_new(all, one);
	}
	rc = json_dumpf(all, f, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
	fputc('\n', f);
	json_decref(all);
	return rc ? jm_err_set(err, JM_EIO, "The result of the query cannot be written.") : 0;
}

static int print(struct jm_cli *cli, const struct result *r)
{
	struct call call;

	JM_FILL(&cli->values, &call);
	if (call.format == JSON)
		return print_json(r, cli->out, &cli->err);
	if (call.format == TABLE)
		return print_table(r, cli->width, cli->out, &cli->err);
	print_csv(r, cli->out);
	return 0;
}

static int run(struct jm_cli *cli)
{
	struct result r = {NULL, json_array()};
	struct jm_store *store = NULL;
	int rc = jm_store_open(cli->args[0], JM_STORE_READ, &store, &cli->err);

	if (!rc)
		rc = jm_store_query(store, cli->args[1], take, &r, &cli->err);
	if (!rc)
		rc = print(cli, &r);
	jm_store_close(store, NULL);
	json_decref(r.names);
	json_decref(r.rows);
	return rc ? jm_cli_fail(cli) : 0;
}

static const struct jm_option options[] = {
	{.name = "format",
		JM_BIND(JM_CHOICE, struct call, format),
		.choices = formats,
		.fallback = "table",
		.help = "table; csv; json is an array with one object per row"},
	{JM_JSON_FORMAT},
	{.name = NULL},
};

const struct jm_command jm_command_query = {
	.name = "query",
	.summary = "run SQL on the views of a store",
	.usage = "[options] STORE SELECT",
	.description =
		"Runs one SELECT of SQLite's SQL on a store. The views are 'results' (one row per "
		"run: workload, device, options, settings, throughput_per_s, joules_measured, "
		"grade, "
		"...), 'records' (case_id, repeat, status, attempt, started, and the record as "
		"JSON, "
		"which json_extract reads), and 'cases' (case_id, parameters). 'joulemark help "
		"--keys' lists the columns of 'results'. Nothing is written: a statement other "
		"than "
		"SELECT is refused, and so are the tables behind the views, which change from "
		"version to version.",
	.example = "joulemark query sweep.db \\\n"
		   "    \"SELECT settings, avg(throughput_per_s) FROM results GROUP BY settings\"\n"
		   "joulemark query --format csv sweep.db \\\n"
		   "    \"SELECT * FROM results WHERE status = "
		   "'ok'\"",
	.options = options,
	.min_args = 2,
	.max_args = 2,
	.run = run,
};
