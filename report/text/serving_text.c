/* SPDX-License-Identifier: Apache-2.0 */
#include "serving_text.h"

#include <math.h>
#include <string.h>

#include "base/text/json.h"
#include "report/format/text.h"
#include "report/judge/grid.h"
#include "result/serving_energy.h"

#define LATENCIES 4
#define FIGURES	  3
#define COSTS	  5

static const struct {
	const char *key, *title;
} latencies[LATENCIES] = {{"ttft", "first token (TTFT)"}, {"tpot", "each token after it (TPOT)"},
	{"itl", "between two tokens"}, {"latency", "whole answer"}};

static const struct {
	const char *key, *title;
} figures[FIGURES] = {{"mean", "mean ms"}, {"p50", "p50 ms"}, {"p99", "p99 ms"}};

/* The next run from number i on that served requests; NULL = there is none. */
static const struct jm_group_case *next_run(
	const struct jm_grouping *g, const struct jm_group_series *s, int *i)
{
	for (; *i < g->n_cases; ++*i) {
		const struct jm_group_case *c = &g->c[*i];

		if (c->ok && &g->series[c->series] == s &&
			json_is_object(json_object_get(c->record, "serving")))
			return &g->c[(*i)++];
	}
	return NULL;
}

int jm_served_runs(const struct jm_grouping *g, const struct jm_group_series *s)
{
	int n = 0, i = 0;

	while (next_run(g, s, &i))
		n++;
	return n;
}

static int put_number(struct jm_grid *grid, int row, int column, double x, struct jm_err *err)
{
	char text[40];

	jm_text_estimate(x, NAN, text, sizeof(text));
	return jm_grid_set(grid, row, column, err, "%s", text);
}

/* A table whose first column is the setting where there are several runs. */
static int start(struct jm_grid *grid, int rows, int columns, bool several, struct jm_err *err)
{
	int rc = jm_grid_new(grid, rows, columns + several, err);

	if (rc)
		return rc;
	grid->left[0] = several;
	grid->n_setting = several;
	return several ? jm_grid_set(grid, -1, 0, err, "setting") : 0;
}

static int put_latencies(struct jm_grid *grid, int first, bool several, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	const json_t *serving = json_object_get(c->record, "serving");
	int rc = 0;

	for (int k = 0; k < LATENCIES && !rc; k++) {
		const json_t *spread = json_object_get(serving, latencies[k].key);

		if (several)
			rc = jm_grid_run(grid, first + k, g, c, err);
		if (!rc)
			rc = jm_grid_set(grid, first + k, several, err, "%s", latencies[k].title);
		for (int f = 0; f < FIGURES && !rc; f++)
			rc = put_number(grid, first + k, several + 1 + f,
				1e3 * jm_json_real_of(spread, figures[f].key), err);
	}
	return rc;
}

int jm_served_latencies(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	int n = jm_served_runs(g, s), i = 0, row = 0;
	const struct jm_group_case *c;
	struct jm_grid grid;
	int rc = start(&grid, LATENCIES * n, 1 + FIGURES, n > 1, err);

	if (rc)
		return rc;
	grid.left[n > 1] = true;
	grid.n_setting = 1 + (n > 1);
	rc = jm_grid_set(&grid, -1, n > 1, err, "latency");
	for (int f = 0; f < FIGURES && !rc; f++)
		rc = jm_grid_set(&grid, -1, (n > 1) + 1 + f, err, "%s", figures[f].title);
	for (; !rc && (c = next_run(g, s, &i)); row += LATENCIES)
		rc = put_latencies(&grid, row, n > 1, g, c, err);
	if (rc)
		jm_grid_done(&grid);
	else
		*ret = grid;
	return rc;
}

static const char *p99_in_bounds(const json_t *serving)
{
	const json_t *kept = json_object_get(serving, "p99_in_bounds");

	if (!json_is_boolean(kept))
		return "-";
	return json_is_true(kept) ? "yes" : "no";
}

static int put_costs(struct jm_grid *grid, int row, bool several, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	const json_t *serving = json_object_get(c->record, "serving");
	const json_t *window = json_object_get(serving, "window");
	const struct jm_serving_energy e = jm_serving_energy_of(c->record, g->options.add_watts);
	const double x[COSTS] = {
		jm_json_real_of(json_is_object(window) ? window : serving, "requests_done"),
		jm_json_real_of(serving, "goodput"), e.output_token, e.token, e.request};
	int rc = several ? jm_grid_run(grid, row, g, c, err) : 0;

	if (!rc)
		rc = jm_grid_set(grid, row, several, err, "%.0f", x[0]);
	for (int k = 1; k < COSTS && !rc; k++)
		rc = put_number(grid, row, several + k, x[k], err);
	return rc ? rc : jm_grid_set(grid, row, several + COSTS, err, "%s", p99_in_bounds(serving));
}

int jm_served_costs(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	static const char *const titles[COSTS + 1] = {"requests", "goodput/s", "J/output token",
		"J/token in, out", "J/request", "p99 in bounds"};
	int n = jm_served_runs(g, s), i = 0;
	const struct jm_group_case *c;
	struct jm_grid grid;
	int rc = start(&grid, n, COSTS + 1, n > 1, err);

	if (rc)
		return rc;
	for (int k = 0; k <= COSTS && !rc; k++)
		rc = jm_grid_set(&grid, -1, (n > 1) + k, err, "%s", titles[k]);
	for (int row = 0; !rc && (c = next_run(g, s, &i)); row++)
		rc = put_costs(&grid, row, n > 1, g, c, err);
	if (rc)
		jm_grid_done(&grid);
	else
		*ret = grid;
	return rc;
}

void jm_served_span(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	int n = 0, steady = 0, i = 0;
	const struct jm_group_case *c;

	for (; (c = next_run(g, s, &i)); n++)
		steady += !strcmp(
			jm_json_text(json_object_get(c->record, "serving"), "span"), "window");
	if (steady == n)
		jm_text_format(out, size,
			"Figures are of the requests that were done in the steady window, and "
			"joules those of that window.");
	else
		jm_text_format(out, size,
			"%s too short for a steady window: the figures are of all requests%s, "
			"those of the warm-up too, and joules per token are unknown. Measure "
			"longer.",
			n == 1 ? "The run was" : "Some runs were", n == 1 ? "" : " of these runs");
}
