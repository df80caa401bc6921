/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page: page.html with its {{parts}} filled in. All data goes in as JSON whose <, > and & are
 * escaped, so that nothing a record contains can end the script element or begin another.
 */
#include "html.h"
#include "page.h"
#include "page_data.h"
#include "report/text/table.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_DIGITS 7 /* of each number; decimals are shown up to the fourth */

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
	char *plain = json_dumps(
		value, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(PAGE_DIGITS));
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

static int make_data(const struct jm_grouping *g, char **ret, struct jm_err *err)
{
	json_t *data = jm_page_data(g);

	*ret = data ? escape_json(data) : NULL;
	json_decref(data);
	return *ret ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for the page's data.");
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
		{"dataform", jm_page_data_js},
		{"plot", jm_page_plot_js},
		{"charts", jm_page_charts_js},
		{"all_systems", jm_page_all_systems_js},
		{"timeline", jm_page_timeline_js},
		{"steps", jm_page_steps_js},
		{"visits", jm_page_visits_js},
		{"budgets", jm_page_budgets_js},
		{"hardware", jm_page_hardware_js},
		{"residue", jm_page_residue_js},
		{"signatures", jm_page_signatures_js},
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

int jm_report_write_html(const struct jm_grouping *g, FILE *out, struct jm_err *err)
{
	struct parts p = {NULL, NULL, NULL};
	int rc = make_data(g, &p.data, err);

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
