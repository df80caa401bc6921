/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page: page.html with its {{parts}} filled in. All data goes in as JSON whose <, > and & are
 * escaped, so that nothing a record contains can end the script element or begin another.
 */
#include "grid.h"
#include "page.h"

#include <stdlib.h>
#include <string.h>

struct parts {
	char *title, *table, *data; /* owned; ready to be written as they are */
};

static char *escape_html(const char *text)
{
	char *out = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&out, &size);

	if (!f)
		return NULL;
	for (; *text; text++) {
		if (*text == '<')
			fputs("&lt;", f);
		else if (*text == '>')
			fputs("&gt;", f);
		else if (*text == '&')
			fputs("&amp;", f);
		else if (*text == '"')
			fputs("&quot;", f);
		else
			fputc(*text, f);
	}
	if (!fclose(f))
		return out;
	free(out);
	return NULL;
}

/* In JSON these characters occur in strings only, where \u003c means the same. */
static char *escape_json(const json_t *value)
{
	char *plain = json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII);
	char *out = NULL;
	size_t size = 0;
	FILE *f = plain ? open_memstream(&out, &size) : NULL;

	for (const char *c = plain; f && *c; c++) {
		if (*c == '<' || *c == '>' || *c == '&')
			fprintf(f, "\\u%04x", (unsigned int)*c);
		else
			fputc(*c, f);
	}
	free(plain);
	if (f && !fclose(f))
		return out;
	free(out);
	return NULL;
}

static int write_csv(
	const struct jm_grouping *g, bool cases, json_t *into, const char *key, struct jm_err *err)
{
	struct jm_grouping view = *g; /* borrows all but the option */
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int rc = 0;

	view.options.cases = cases;
	if (f)
		rc = jm_report_write_csv(&view, f, err);
	if (!f || fclose(f) || json_object_set_new(into, key, json_string(text)))
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the page's data.");
	free(text);
	return rc;
}

/* Which records are drawn by themselves, by index: the first of each series, and those with a trace. */
static bool *list_drawn(const struct jm_grouping *g)
{
	bool *drawn = calloc((size_t)g->n_cases + 1, sizeof(*drawn));
	const json_t *trace;
	size_t i;

	for (int k = 0; drawn && k < g->n_cases; k++)
		if (g->series[g->c[k].series].record == g->c[k].record)
			drawn[g->c[k].index] = true;
	json_array_foreach(g->options.traces, i, trace)
	{
		json_int_t index = json_integer_value(json_object_get(trace, "record"));

		if (drawn && index >= 0 && index < g->n_cases)
			drawn[index] = true;
	}
	return drawn;
}

/* An object of those of the keys that it has; NULL: no memory. */
static json_t *pick(const json_t *from, const char *const *keys)
{
	json_t *to = json_object();
	int rc = 0;

	for (; *keys; keys++)
		if (json_object_get(from, *keys))
			rc |= json_object_set(to, *keys, json_object_get(from, *keys));
	if (!rc)
		return to;
	json_decref(to);
	return NULL;
}

/* Of one that is not drawn by itself: its day, and the watts for the chart over a cap. */
static json_t *pick_charted(const json_t *record, bool machine)
{
	static const char *const of_record[] = {"started", "provenance", NULL};
	static const char *const of_meter[] = {"scope", "origin", "watts_mean", NULL};
	json_t *slim = pick(record, of_record), *meters = json_array();
	const json_t *meter;
	size_t i;

	if (!machine)
		json_object_del(slim, "provenance");
	json_array_foreach(json_object_get(record, "meters"), i, meter)
		json_array_append_new(meters, pick(meter, of_meter));
	json_object_set_new(slim, "meters", meters);
	return slim;
}

/* In place of thousands of records: those that are drawn, and of the others what charts need. */
static json_t *pick_records(const struct jm_grouping *g, const json_t *records)
{
	const json_t *record, *machine = NULL;
	bool *drawn = list_drawn(g);
	json_t *list = json_array();
	size_t i;

	json_array_foreach(records, i, record)
	{
		const json_t *of_record = json_object_get(record, "provenance");
		bool another = of_record && !(machine && json_equal(of_record, machine));

		json_array_append_new(list, drawn && drawn[i] ? json_incref((json_t *)record)
							      : pick_charted(record, another));
		machine = of_record ? of_record : machine;
	}
	free(drawn);
	return list;
}

static int make_data(
	const struct jm_grouping *g, const json_t *records, char **ret, struct jm_err *err)
{
	json_t *summary = jm_report_summary(g), *data = json_object();
	const json_t *traces = g->options.traces;
	int rc = write_csv(g, false, data, "settings_csv", err);

	if (!rc)
		rc = write_csv(g, true, data, "cases_csv", err);
	json_object_set_new(data, "summary", summary);
	json_object_set_new(data, "records",
		g->options.brief ? pick_records(g, records) : json_incref((json_t *)records));
	json_object_set_new(data, "brief", json_boolean(g->options.brief));
	json_object_set_new(data, "traces", traces ? json_incref((json_t *)traces) : json_array());
	*ret = !rc && summary ? escape_json(data) : NULL;
	json_decref(data);
	if (!rc && !*ret)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the page's data.");
	return rc;
}

static int make_table(const struct jm_grouping *g, char **ret, struct jm_err *err)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int rc = 0;

	if (f)
		rc = jm_report_write_table(g, f, err);
	*ret = NULL;
	if (f && !fclose(f) && !rc)
		*ret = escape_html(text);
	free(text);
	if (!rc && !*ret)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the page's table.");
	return rc;
}

static const char *find_part(const struct parts *p, const char *name, size_t length)
{
	const struct {
		const char *name, *text;
	} rows[] = {
		{"title", p->title},
		{"table", p->table},
		{"data", p->data},
		{"css", jm_page_page_css},
		{"licence", jm_page_echarts_LICENSE},
		{"echarts", jm_page_echarts_min_js},
		{"format", jm_page_format_js},
		{"plot", jm_page_plot_js},
		{"charts", jm_page_charts_js},
		{"tables", jm_page_tables_js},
		{"overview", jm_page_overview_js},
		{"page", jm_page_page_js},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strlen(rows[i].name) == length && !strncmp(rows[i].name, name, length))
			return rows[i].text;
	return "";
}

static void fill(const struct parts *p, FILE *out)
{
	const char *at = jm_page_page_html, *open, *close;

	while ((open = strstr(at, "{{")) && (close = strstr(open, "}}"))) {
		fwrite(at, 1, (size_t)(open - at), out);
		fputs(find_part(p, open + 2, (size_t)(close - open - 2)), out);
		at = close + 2;
	}
	fputs(at, out);
}

int jm_report_write_html(
	const struct jm_grouping *g, const json_t *records, FILE *out, struct jm_err *err)
{
	struct parts p = {NULL, NULL, NULL};
	int rc = make_data(g, records, &p.data, err);

	if (!rc)
		rc = make_table(g, &p.table, err);
	p.title = escape_html(g->options.title	 ? g->options.title
			      : g->n_series == 1 ? g->series[0].title
						 : "Joulemark report");
	if (!rc && !p.title)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the page.");
	if (!rc)
		fill(&p, out);
	free(p.title);
	free(p.table);
	free(p.data);
	return rc;
}
