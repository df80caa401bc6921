/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark report: from a store or from JSON files of records to a table, a file or a page. */
#include "cli.h"
#include "report/report.h"
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACES_AT_MOST 24 /* on a page: about 100 kB each */

static const char *const formats[] = {
#define X(name, text) text,
	JM_REPORT_FORMATS(X)
#undef X
		NULL,
};

static bool is_store(const char *path)
{
	static const char magic[] = "SQLite format 3";
	char head[sizeof(magic)] = "";
	FILE *in = fopen(path, "rb");
	size_t n;

	if (!in)
		return false;
	n = fread(head, 1, sizeof(head), in);
	fclose(in);
	return n == sizeof(head) && !memcmp(head, magic, sizeof(magic));
}

/* Appends a record, an array of them, or several one after the other. */
static int add_json(json_t *records, const char *path, struct jm_err *err)
{
	FILE *in = strcmp(path, "-") ? fopen(path, "r") : stdin;
	json_error_t json_err = {.line = 0};
	json_t *value;
	int rc = 0, n = 0;

	if (!in)
		return jm_err_set(err, JM_ENOENT, "%s cannot be read: %s.", path, strerror(errno));
	while ((value = json_loadf(in, JSON_DISABLE_EOF_CHECK, &json_err))) {
		if (json_is_array(value))
			rc = json_array_extend(records, value);
		else
			rc = json_array_append(records, value);
		json_decref(value);
		n++;
		if (rc)
			break;
	}
	if (rc)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the records of %s.", path);
	else if (!n || json_error_code(&json_err) != json_error_premature_end_of_input)
		rc = jm_err_set(err, JM_EFORMAT, "%s is neither a store nor JSON: %s in line %d.",
			path, json_err.text, json_err.line);
	if (in != stdin)
		fclose(in);
	return rc;
}

/* Is this the first run of its case that went well? Its trace stands for the others. */
static bool stands_for_case(const json_t *records, size_t first, size_t index, const char **ret_id)
{
	const json_t *record = json_array_get(records, index);
	const char *status = json_string_value(json_object_get(record, "status"));

	*ret_id = json_string_value(json_object_get(json_object_get(record, "case"), "id"));
	if (!*ret_id || (status && strcmp(status, "ok")))
		return false;
	for (size_t i = first; i < index; i++) {
		const json_t *other = json_array_get(records, i);
		const char *id =
			json_string_value(json_object_get(json_object_get(other, "case"), "id"));
		const char *went = json_string_value(json_object_get(other, "status"));

		if (id && !strcmp(id, *ret_id) && (!went || !strcmp(went, "ok")))
			return false;
	}
	return true;
}

/* A record without a trace has none on the page. */
static int add_trace(struct jm_store *store, const json_t *records, size_t index, const char *id,
	json_t *traces, struct jm_err *err)
{
	const json_t *of_case = json_object_get(json_array_get(records, index), "case");
	int repeat = (int)json_integer_value(json_object_get(of_case, "repeat"));
	struct jm_err none = JM_ERR_INIT;
	struct jm_meters set = {0};
	struct jm_trace *trace;
	json_t *json = NULL;
	int rc = jm_store_trace(store, id, repeat, &set, &trace, &none);

	if (rc == JM_ENOENT)
		return 0;
	if (rc)
		return jm_err_set(err, rc, "%s", none.text);
	rc = jm_report_trace(trace, &set, (int)index, &json, err);
	if (!rc && json_array_append_new(traces, json))
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for a power trace.");
	jm_trace_free(trace);
	jm_meters_done(&set);
	return rc;
}

static int add_records(struct jm_store *store, json_t *records, json_t *traces, struct jm_err *err)
{
	size_t first = json_array_size(records);
	json_t *found;
	const char *id;
	int rc = jm_store_records_array(store, &found, err);

	if (rc)
		return rc;
	if (json_array_extend(records, found))
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the records.");
	json_decref(found);
	for (size_t i = first; traces && i < json_array_size(records) && !rc; i++)
		if (json_array_size(traces) < TRACES_AT_MOST &&
			stands_for_case(records, first, i, &id))
			rc = add_trace(store, records, i, id, traces, err);
	return rc;
}

/* traces: NULL = not wanted. */
static int add_store(json_t *records, json_t *traces, const char *path, struct jm_err *err)
{
	struct jm_store *store;
	int rc = jm_store_open(path, JM_STORE_READ, &store, err);

	if (rc)
		return rc;
	rc = add_records(store, records, traces, err);
	jm_store_close(store, NULL);
	return rc;
}

static int parse_k(const char *text, struct jm_report_options *o, struct jm_err *err)
{
	const char *at = text;
	char *end;

	for (o->n_k = 0; *at; at = *end ? end + 1 : end) {
		double k = strtod(at, &end);

		if (end == at || (*end && *end != ',') || !(k > 1) || !(k <= 1000))
			return jm_err_set(err, JM_EUSAGE,
				"--k takes numbers above 1, as in 1.5,2.0; '%s' is none.", at);
		if (o->n_k == JM_REPORT_MAX_K)
			return jm_err_set(
				err, JM_EUSAGE, "--k takes at most %d numbers.", JM_REPORT_MAX_K);
		o->k[o->n_k++] = k;
	}
	return 0;
}

static enum jm_report_format format_of(const struct jm_cli *cli)
{
	const char *text = jm_values_text(&cli->values, "format");
	int i = 0;

	if (jm_values_text(&cli->values, "html"))
		return JM_REPORT_HTML;
	while (formats[i] && strcmp(formats[i], text))
		i++;
	return (enum jm_report_format)i;
}

/* A page on a terminal is of no use: a name is made up for it. */
static const char *output_of(const struct jm_cli *cli, enum jm_report_format format)
{
	const char *path = jm_values_text(&cli->values, "output");

	if (jm_values_text(&cli->values, "html"))
		return jm_values_text(&cli->values, "html");
	if (!path && format == JM_REPORT_HTML)
		return "report.html";
	return path && strcmp(path, "-") ? path : NULL;
}

static int write_out(const char *path, const char *text, struct jm_err *err)
{
	FILE *out = path ? fopen(path, "w") : stdout;
	int bad;

	if (!out)
		return jm_err_set(err, JM_EIO, "%s cannot be written: %s.", path, strerror(errno));
	bad = fputs(text, out) < 0;
	bad |= path ? fclose(out) : fflush(out);
	if (bad)
		return jm_err_set(err, JM_EIO, "The report was not written to %s: %s.",
			path ? path : "standard output", strerror(errno));
	if (path)
		fprintf(stderr, "joulemark: %s is written (%zu kB).\n", path, strlen(text) / 1000);
	return 0;
}

static int read_options(struct jm_cli *cli, struct jm_report_options *o)
{
	*o = (struct jm_report_options){
		.title = jm_values_text(&cli->values, "title"),
		.add_watts = jm_values_number(&cli->values, "add-watts"),
		.width = (int)jm_values_number(&cli->values, "width"),
		.cases = jm_values_number(&cli->values, "cases") > 0,
		.published = jm_values_number(&cli->values, "published") > 0,
	};
	return parse_k(jm_values_text(&cli->values, "k"), o, &cli->err);
}

static int report(struct jm_cli *cli, json_t *records, json_t *traces)
{
	enum jm_report_format format = format_of(cli);
	struct jm_report_options options;
	char *text;
	int rc = read_options(cli, &options);

	options.traces = traces;
	if (format != JM_REPORT_HTML)
		traces = NULL;

	for (int i = 0; i < cli->n_args && !rc; i++)
		rc = is_store(cli->args[i]) ? add_store(records, traces, cli->args[i], &cli->err)
					    : add_json(records, cli->args[i], &cli->err);
	if (!rc)
		rc = jm_report_render(records, format, &options, &text, &cli->err);
	if (rc)
		return rc;
	rc = write_out(output_of(cli, format), text, &cli->err);
	free(text);
	return rc;
}

static int run(struct jm_cli *cli)
{
	json_t *records = json_array(), *traces = json_array();
	int rc;

	if (!records || !traces)
		rc = jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the records.");
	else
		rc = report(cli, records, traces);
	json_decref(traces);
	json_decref(records);
	return rc ? jm_cli_fail(cli) : 0;
}

static const struct jm_option options[] = {
	{.name = "format",
		.type = JM_CHOICE,
		.choices = formats,
		.fallback = "table",
		.help = "what to write; html is one page that needs no network"},
	{.name = "html",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "write the page: the same as --format html --output FILE"},
	{.name = "output",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "where to; - is stdout (default: stdout, of html report.html)"},
	{.name = "k",
		.type = JM_TEXT,
		.argument = "K,...",
		.fallback = "1.5,2.0",
		.help = "slowdown factors of the Energy Delay Sum"},
	{.name = "add-watts",
		.type = JM_REAL,
		.unit = "W",
		.min = 0,
		.max = 1e6,
		.fallback = "0",
		.help = "assumed power of the rest of the node, added to every case"},
	{.name = "cases",
		.type = JM_FLAG,
		.help = "CSV with one row per case instead of one per setting"},
	{.name = "published",
		.type = JM_FLAG,
		.help = "also lists what papers report for the same network, apart from the "
			"records and without a part in any figure of theirs; of csv that list "
			"alone"},
	{.name = "title", .type = JM_TEXT, .help = "of the page"},
	{.name = "width",
		.type = JM_INT,
		.min = 40,
		.max = 1000,
		.fallback = "100",
		.help = "columns of the table"},
	{.name = NULL},
};

const struct jm_command jm_command_report = {
	.name = "report",
	.summary = "tables, metrics, best settings and an HTML page from a store or JSON records",
	.usage = "[options] STORE|RECORD.json...",
	.description =
		"Puts the records of one or several stores or JSON files (- is stdin) together: "
		"throughput, power, energy per item, EDP, EDS, energy gain and time loss against "
		"the reference, mean and 95 % interval over repeats, and the best setting by each "
		"metric where the intervals allow to say so.\n\n"
		"Energy is the sum of the topmost meters of one origin; estimated energy yields no "
		"verdict. Settings that the device violated stand in parentheses and are not "
		"eligible. Failed cases stay visible with their reason.",
	.example = "joulemark report sweep.db\n"
		   "joulemark report --html sweep.html sweep.db\n"
		   "joulemark report --format csv --cases a.json b.json\n"
		   "joulemark report --published resnet50.db",
	.options = options,
	.min_args = 1,
	.max_args = -1,
	.run = run,
};
