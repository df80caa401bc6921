/* SPDX-License-Identifier: Apache-2.0 */
#include "serving_text.h"

#include <string.h>

#include "base/text/json.h"
#include "report/format/text.h"
#include "report/judge/series_table.h"
#include "result/serving_energy.h"

#define LATENCIES 4
#define FIGURES	  3
#define COSTS	  5
#define SPLITS	  5

static const struct {
	const char *key, *title;
} latencies[LATENCIES] = {{"ttft", "first token (TTFT)"}, {"tpot", "each token after it (TPOT)"},
	{"itl", "between two tokens"}, {"latency", "whole answer"}};

static const struct {
	const char *key, *title;
} figures[FIGURES] = {{"mean", "mean ms"}, {"p50", "p50 ms"}, {"p99", "p99 ms"}};

#define PART "serving"

static int served_runs(const struct jm_grouping *g, const struct jm_group_series *s)
{
	return jm_run_table_runs(g, s, PART);
}

/* ---- latencies ------------------------------------------------------------------------------- */

static int latency_titles(struct jm_grid *grid, int first, struct jm_err *err)
{
	int rc = 0;

	for (int f = 0; f < FIGURES && !rc; f++)
		rc = jm_grid_set(grid, -1, first + f, err, "%s", figures[f].title);
	return rc;
}

static int put_latencies(struct jm_grid *grid, int row, int first, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	const json_t *serving = json_object_get(c->record, PART);
	int rc = 0;

	(void)g;
	for (int k = 0; k < LATENCIES && !rc; k++) {
		const json_t *spread = json_object_get(serving, latencies[k].key);

		rc = jm_grid_set(grid, row + k, first, err, "%s", latencies[k].title);
		for (int f = 0; f < FIGURES && !rc; f++)
			rc = jm_run_table_number(grid, row + k, first + 1 + f,
				1e3 * jm_json_real_of(spread, figures[f].key), err);
	}
	return rc;
}

static int latency_table(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	static const struct jm_run_table table = {.part = PART,
		.rows = LATENCIES,
		.columns = 1 + FIGURES,
		.label = "latency",
		.titles = latency_titles,
		.put = put_latencies};

	return jm_run_table(&table, g, s, ret, err);
}

/* ---- requests and joules --------------------------------------------------------------------- */

static const char *p99_in_bounds(const json_t *serving)
{
	const json_t *kept = json_object_get(serving, "p99_in_bounds");

	if (!json_is_boolean(kept))
		return "-";
	return json_is_true(kept) ? "yes" : "no";
}

static int cost_titles(struct jm_grid *grid, int first, struct jm_err *err)
{
	static const char *const titles[COSTS + 1] = {"requests", "goodput/s", "J/output token",
		"J/token in, out", "J/request", "p99 in bounds"};
	int rc = 0;

	for (int k = 0; k <= COSTS && !rc; k++)
		rc = jm_grid_set(grid, -1, first + k, err, "%s", titles[k]);
	return rc;
}

static int put_costs(struct jm_grid *grid, int row, int first, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	const json_t *serving = json_object_get(c->record, PART);
	const json_t *window = json_object_get(serving, "window");
	const struct jm_serving_energy e = jm_serving_energy_of(c->record, g->options.add_watts);
	const double x[COSTS] = {
		jm_json_real_of(json_is_object(window) ? window : serving, "requests_done"),
		jm_json_real_of(serving, "goodput"), e.output_token, e.token, e.request};
	int rc = jm_grid_set(grid, row, first, err, "%.0f", x[0]);

	for (int k = 1; k < COSTS && !rc; k++)
		rc = jm_run_table_number(grid, row, first + k, x[k], err);
	return rc ? rc : jm_grid_set(grid, row, first + COSTS, err, "%s", p99_in_bounds(serving));
}

static int cost_table(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	static const struct jm_run_table table = {.part = PART,
		.rows = 1,
		.columns = COSTS + 1,
		.titles = cost_titles,
		.put = put_costs};

	return jm_run_table(&table, g, s, ret, err);
}

/* ---- prompts and answers --------------------------------------------------------------------- */

/* Where at least one run has it. */
static int split_runs(const struct jm_grouping *g, const struct jm_group_series *s)
{
	const struct jm_group_case *c;
	int i = 0, n = 0, with = 0;

	for (; (c = jm_run_table_next(g, s, PART, &i)); n++)
		with += json_is_object(json_object_get(json_object_get(c->record, PART), "split"));
	return with ? n : 0;
}

static int split_titles(struct jm_grid *grid, int first, struct jm_err *err)
{
	static const char *const titles[SPLITS] = {"J of prompts", "J of answers", "±",
		"J/token of a prompt", "J/token after the first"};
	int rc = 0;

	for (int k = 0; k < SPLITS && !rc; k++)
		rc = jm_grid_set(grid, -1, first + k, err, "%s", titles[k]);
	return rc;
}

static int put_split(struct jm_grid *grid, int row, int first, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	struct jm_serving_split s = jm_serving_split_of(c->record, g->options.add_watts);
	const double x[SPLITS] = {s.prefill, s.decode, s.error, s.input_token, s.output_token};
	int rc = 0;

	for (int k = 0; k < SPLITS && !rc; k++)
		rc = jm_run_table_number(grid, row, first + k, x[k], err);
	return rc;
}

static int split_table(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err)
{
	static const struct jm_run_table table = {.part = PART,
		.rows = 1,
		.columns = SPLITS,
		.titles = split_titles,
		.put = put_split};

	return jm_run_table(&table, g, s, ret, err);
}

static void explain(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	int n = 0, steady = 0, i = 0;
	const struct jm_group_case *c;

	for (; (c = jm_run_table_next(g, s, PART, &i)); n++)
		steady += !strcmp(jm_json_text(json_object_get(c->record, PART), "span"), "window");
	if (steady == n)
		jm_text_format(out, size,
			"Figures are of the requests that were done in the steady window, and "
			"joules those of that window; the table of settings is of all measured "
			"steps.");
	else
		jm_text_format(out, size,
			"%s no steady window, which needs more requests or a longer run: the "
			"figures are of all requests%s, those of the warm-up too, and without "
			"joules; the table of settings is of all measured steps.",
			n == 1 ? "The run has" : "Some runs have", n == 1 ? "" : " of these runs");
}

const struct jm_run_tables jm_served = {
	"Requests", NULL, explain, served_runs, {latency_table, cost_table}};

const struct jm_run_tables jm_served_split = {"Energy of prompts and answers, estimated",
	"A model divides the time of steps that compute both: the middle of two bounds, ± the way "
	"to "
	"either. --phase prefill and --phase decode measure each alone.",
	NULL, split_runs, {split_table}};
