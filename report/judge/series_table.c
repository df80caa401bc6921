/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a series as text cells. Values of settings that the device violated are in
 * parentheses. */
#include "series_table.h"
#include "base/option.h"
#include "meaning.h"
#include "report/format/grid.h"
#include "report/format/text.h"
#include "report/model/dimension.h"
#include "report/model/family.h"
#include "sentence.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS (JM_FAMILY_AXES + 3 * JM_GROUP_MAX_DIMS + JM_M_ALL + 4)

enum column_kind { AXIS, SETTING, ACCEPTED, ENFORCED, STATE, RUNS, METRIC, ORIGIN };

struct column {
	enum column_kind kind;
	int index; /* of the dimension or metric */
	double factor;
	/* decimals of a metric, by the smallest half width of the column; JM_NO_PLACES: none */
	int places;
	char title[80];
};

static void add(struct column *columns, int *n, enum column_kind kind, int index, const char *title)
{
	struct column *c = &columns[(*n)++];

	c->kind = kind;
	c->index = index;
	c->factor = 1;
	jm_text_format(c->title, sizeof(c->title), "%s", title);
}

static bool varies(const struct jm_grouping *g, const struct jm_group_series *s, int dim)
{
	const struct jm_group_point *first = &g->point[s->first_point];

	for (int i = 1; i < s->n_points; i++)
		if (strcmp(first[i].value[dim].key, first->value[dim].key))
			return true;
	return false;
}

static bool one_device(const struct jm_grouping *g, const struct jm_group_series *s)
{
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (g->point[i].stat[JM_M_THROUGHPUT].n &&
			g->point[i].stat[JM_M_THROUGHPUT].mean !=
				g->point[i].stat[JM_M_THROUGHPUT_DEVICE].mean)
			return false;
	return true;
}

/* The words before the unit; NULL = none: the unit says which metric it is. */
static const char *words_of(int metric)
{
	static const char *const words[JM_M_EDS] = {
		[JM_M_WATTS_MEDIAN] = "median ",
		[JM_M_WATTS_P99] = "p99 ",
		[JM_M_WATTS_MAX] = "max ",
		[JM_M_GPU_LOAD] = "GPU load ",
		[JM_M_EDP] = "EDP ",
		[JM_M_GAIN] = "saved ",
		[JM_M_LOSS] = "slower ",
		[JM_M_GAIN_LOSS] = "saved minus slower ",
	};

	return words[metric];
}

static void put_title(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	const char *prefix, const char *unit, char *out, size_t size)
{
	const char *words = metric < JM_M_EDS ? words_of(metric) : NULL;
	char sum[40] = "";

	if (metric == JM_M_WATTS)
		jm_text_sum(s, sum, sizeof(sum));
	if (metric >= JM_M_EDS)
		jm_group_metric_title(g, s, metric, out, size);
	else if (metric == JM_M_COST && g->options.currency)
		snprintf(out, size, "%s %.20s %s", jm_metrics[metric].title, g->options.currency,
			unit);
	else if (!words && metric >= JM_M_ED2P)
		snprintf(out, size, "%s %s%s", jm_metrics[metric].title, prefix, unit);
	else
		jm_text_format(out, size, "%s%s%s%s%s%s", words ? words : "", prefix, unit,
			metric == JM_M_THROUGHPUT_DEVICE ? "/device"
			: metric == JM_M_WH_GPU_HOUR	 ? "/GPU/h"
							 : "",
			*sum ? ", " : "", sum);
}

/* The largest mean decides the prefix of the column. */
static void add_metric(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	struct column *columns, int *n)
{
	char title[80], unit[48];
	const char *prefix;
	double largest = 0, factor;

	if (!jm_group_has_metric(g, s, metric) ||
		(metric == JM_M_THROUGHPUT_DEVICE && one_device(g, s)))
		return;
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (g->point[i].stat[metric].n)
			largest = fmax(largest, fabs(g->point[i].stat[metric].mean));
	jm_group_metric_unit(s, metric, unit, sizeof(unit));
	factor = jm_text_prefix(unit, largest, &prefix);
	put_title(g, s, metric, prefix, unit, title, sizeof(title));
	add(columns, n, METRIC, metric, title);
	columns[*n - 1].factor = factor;
}

/* ---- which columns --------------------------------------------------------------------------- */

/* Names of columns that are no metrics, for --columns. */
static const char *const plain_names[] = {"accepted", "enforced", "state", "n", "origin"};

const char *jm_series_table_column(size_t i)
{
	const size_t plain = sizeof(plain_names) / sizeof(plain_names[0]);

	if (i < plain)
		return plain_names[i];
	return i - plain < JM_M_EDS    ? jm_metrics[i - plain].name
	       : i - plain == JM_M_EDS ? "all"
				       : NULL;
}

/* Is the name in the list "a,b"? */
static bool listed(const char *list, const char *name)
{
	size_t n = strlen(name), length;

	for (; list && *list; list += length + (list[length] == ',')) {
		length = strcspn(list, ",");
		if (length == n && !strncmp(list, name, n))
			return true;
	}
	return false;
}

bool jm_series_table_lists(const struct jm_grouping *g, const char *name)
{
	const char *list = g->options.columns;

	return list && (!strcmp(list, "all") || listed(list, name));
}

/* Have the settings failed runs, outliers, or unequally many runs? */
static bool runs_matter(const struct jm_grouping *g, const struct jm_group_series *s)
{
	const struct jm_group_point *first = &g->point[s->first_point];

	for (int i = 0; i < s->n_points; i++)
		if (first[i].n_ok != first->n_ok || first[i].n_failed || first[i].n_outliers)
			return true;
	return false;
}

bool jm_series_table_says_runs(const struct jm_grouping *g, const struct jm_group_series *s)
{
	return g->options.columns ? jm_series_table_lists(g, "n") : runs_matter(g, s);
}

static bool wants(const struct jm_grouping *g, const struct jm_group_series *s, const char *name)
{
	if (g->options.columns)
		return jm_series_table_lists(g, name);
	return !strcmp(name, "n") && runs_matter(g, s);
}

/* The few that matter: with a reference what a setting saves and costs, else the absolute
 * figures. */
static bool wants_metric(const struct jm_grouping *g, const struct jm_group_series *s, int metric)
{
	char name[64];

	if (g->options.columns) {
		jm_group_metric_name(g, metric, name, sizeof(name));
		return wants(g, s, name);
	}
	switch (metric) {
	case JM_M_THROUGHPUT:
	case JM_M_WATTS:
	case JM_M_JOULES_ITEM:
		return true;
	case JM_M_GAIN:
	case JM_M_LOSS:
		return s->reference >= 0;
	case JM_M_EDP:
		return s->reference < 0;
	case JM_M_COST: /* the user gave the figure for it */
	case JM_M_CARBON:
	case JM_M_MFU:
		return true;
	}
	return false;
}

static void add_knob(const struct jm_grouping *g, const struct jm_group_series *s, int dim,
	bool only, struct column *columns, int *n)
{
	static const enum column_kind kinds[] = {ACCEPTED, ENFORCED};
	char title[80];

	for (size_t i = 0; i < 2; i++) {
		jm_text_format(title, sizeof(title), "%s%s%s", only ? "" : g->dim[dim].name,
			only ? "" : " ", plain_names[i]);
		if (wants(g, s, plain_names[i]))
			add(columns, n, kinds[i], dim, title);
	}
}

static void add_settings(const struct jm_grouping *g, const struct jm_group_series *s,
	struct column *columns, int *n, int *ret_n_setting)
{
	bool knobs = false;

	for (int i = 0; i < g->n_dims; i++)
		if (varies(g, s, i) || g->n_dims == 1)
			add(columns, n, SETTING, i, g->dim[i].name);
	if (!*n)
		add(columns, n, SETTING, 0, g->n_dims ? g->dim[0].name : "setting");
	*ret_n_setting = *n;
	for (int i = 0, shown = *n; i < shown; i++) {
		int dim = columns[i].index;

		if (dim >= g->n_dims || !g->dim[dim].knob)
			continue;
		knobs = true;
		add_knob(g, s, dim, shown == 1, columns, n);
	}
	if (knobs && wants(g, s, "state"))
		add(columns, n, STATE, 0, "state");
	if (wants(g, s, "n"))
		add(columns, n, RUNS, 0, "n");
}

static int choose_columns(const struct jm_grouping *g, const struct jm_group_series *s,
	struct column *columns, int *ret_n_setting)
{
	static const int before[] = {JM_M_THROUGHPUT, JM_M_THROUGHPUT_DEVICE, JM_M_WATTS,
		JM_M_WATTS_MEDIAN, JM_M_WATTS_P99, JM_M_WATTS_MAX, JM_M_GPU_LOAD, JM_M_WH_GPU_HOUR,
		JM_M_HOURS, JM_M_KWH, JM_M_JOULES_ITEM, JM_M_WH_ITEM, JM_M_ITEMS_JOULE,
		JM_M_ITEMS_WH, JM_M_EDP, JM_M_ED2P, JM_M_ZEUS, JM_M_COST, JM_M_CARBON, JM_M_MFU,
		JM_M_HFU, JM_M_MFU_MEASURED, JM_M_HFU_MEASURED, JM_M_TTFT_P50, JM_M_TTFT_P99,
		JM_M_TPOT_P50, JM_M_TPOT_P99, JM_M_LATENCY_P99, JM_M_GOODPUT};
	int n = 0;

	add_settings(g, s, columns, &n, ret_n_setting);
	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
		if (wants_metric(g, s, before[i]))
			add_metric(g, s, before[i], columns, &n);
	for (int i = 0; i < g->options.n_k; i++)
		if (wants_metric(g, s, JM_M_EDS + i))
			add_metric(g, s, JM_M_EDS + i, columns, &n);
	for (int i = JM_M_GAIN; i <= JM_M_GAIN_LOSS; i++)
		if (wants_metric(g, s, i))
			add_metric(g, s, i, columns, &n);
	if (wants(g, s, "origin") && s->has_energy)
		add(columns, &n, ORIGIN, 0, "origin");
	if (n == *ret_n_setting)
		add(columns, &n, RUNS, 0, "n");
	return n;
}

int jm_series_table_check_columns(const struct jm_grouping *g, struct jm_err *err)
{
	char metric[JM_M_ALL][64], word[64];
	const char *names[JM_M_ALL + 6], *near;
	size_t n = 0;

	for (int m = 0; m < JM_M_EDS + g->options.n_k; m++) {
		jm_group_metric_name(g, m, metric[m], sizeof(metric[m]));
		names[n++] = metric[m];
	}
	for (size_t i = 0; i < sizeof(plain_names) / sizeof(plain_names[0]); i++)
		names[n++] = plain_names[i];
	names[n++] = "all";
	for (const char *at = g->options.columns; at && *at;
		at += strcspn(at, ","), at += *at == ',') {
		size_t k = 0;

		snprintf(word, sizeof(word), "%.*s", (int)strcspn(at, ","), at);
		while (k < n && strcmp(names[k], word) != 0)
			k++;
		if (k < n)
			continue;
		if (!*word)
			return jm_err_set(err, JM_EUSAGE,
				"'%s' has an empty name between its commas.", g->options.columns);
		near = jm_did_you_mean(word, names, n);
		return jm_err_set(err, JM_EUSAGE, "There is no column '%s'%s%s%s", word,
			near ? "; did you mean '" : "; 'joulemark report --help' lists them.",
			near ? near : "", near ? "'?" : "");
	}
	return 0;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void print_enforced(const struct jm_grouping *g, const struct jm_group_point *p, int dim,
	char *out, size_t size)
{
	char low[40], high[40];

	if (isnan(p->enforced_min[dim])) {
		snprintf(out, size, "-");
		return;
	}
	jm_dim_quantity(p->enforced_min[dim], g->dim[dim].unit, low, sizeof(low));
	jm_dim_quantity(p->enforced_max[dim], g->dim[dim].unit, high, sizeof(high));
	if (strcmp(low, high))
		snprintf(out, size, "%.6g-%s", p->enforced_min[dim], high);
	else
		snprintf(out, size, "%s", low);
}

static bool is_percent(int metric)
{
	return metric == JM_M_GAIN || metric == JM_M_LOSS || metric == JM_M_GAIN_LOSS;
}

/* As the column shows them. */
static void shown_of(const struct jm_group_point *p, const struct column *c, double *ret_mean,
	double *ret_half_width)
{
	const struct jm_stat *stat = &p->stat[c->index];
	double half = is_percent(c->index) ? jm_text_percent_half(stat) : stat->half_width;

	*ret_mean = stat->mean / c->factor;
	*ret_half_width = half / c->factor;
}

/* So that no row loses a digit that is known. */
static int places_of(
	const struct jm_grouping *g, const struct jm_group_series *s, const struct column *c)
{
	int most = JM_NO_PLACES;

	for (int i = s->first_point; i < s->first_point + s->n_points; i++) {
		double mean, half;
		int places;

		shown_of(&g->point[i], c, &mean, &half);
		places = jm_text_places(
			is_percent(c->index) ? JM_PERCENT_PLACES : INT_MAX, mean, half);
		most = places > most ? places : most;
	}
	return most;
}

static void print_metric(
	const struct jm_group_point *p, const struct column *c, char *out, size_t size)
{
	const struct jm_stat *stat = &p->stat[c->index];
	bool kept = p->state != JM_STATE_VIOLATED;
	double mean, half;
	char number[80];

	shown_of(p, c, &mean, &half);
	if (c->places != JM_NO_PLACES)
		jm_text_estimate_at(c->places, mean, half, number, sizeof(number));
	else if (is_percent(c->index))
		jm_text_percent(stat, number, sizeof(number));
	else
		jm_text_estimate(mean, half, number, sizeof(number));
	snprintf(out, size, kept || !stat->n ? "%s" : "(%s)", number);
}

static void print_runs(const struct jm_group_point *p, char *out, size_t size)
{
	if (p->n_failed)
		snprintf(out, size, "%d of %d%s", p->n_ok, p->n_ok + p->n_failed,
			p->n_outliers ? "!" : "");
	else
		snprintf(out, size, "%d%s", p->n_ok, p->n_outliers ? "!" : "");
}

/* Mark after a setting: " >" its requests broke bounds of latency, " °" the device never
 * reached it, " ?" unknown whether it was held; else "". */
static const char *state_mark(const struct jm_group_point *p)
{
	if (p->late)
		return " >";
	return p->state == JM_STATE_NOT_REACHED ? " °" : p->state == JM_STATE_UNKNOWN ? " ?" : "";
}

/* "700 W *": the note below the table explains the star, so that the words before the value are not
 * repeated. */
static void print_setting(const struct jm_grouping *g, const struct jm_group_point *p, int dim,
	char *out, size_t size)
{
	const char *text = g->n_dims ? p->value[dim].text : p->label, *open = strchr(text, '(');
	size_t n = open ? strcspn(open + 1, ")") : 0;

	if (p->reference && open && g->n_dims && g->dim[dim].knob && open[1 + n] == ')' &&
		!open[2 + n])
		snprintf(out, size, "%.*s *%s", (int)n, open + 1, state_mark(p));
	else
		snprintf(out, size, "%s%s%s", text, p->reference ? " *" : "", state_mark(p));
}

static void print_cell(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_group_point *p, const struct column *c, char *out, size_t size)
{
	switch (c->kind) {
	case AXIS:
		jm_family_axis(&g->series[p->series], c->title, out, size);
		break;
	case SETTING:
		print_setting(g, p, c->index, out, size);
		break;
	case ACCEPTED:
		snprintf(out, size, "-");
		if (!isnan(p->accepted[c->index]))
			jm_dim_quantity(p->accepted[c->index], g->dim[c->index].unit, out, size);
		break;
	case ENFORCED:
		print_enforced(g, p, c->index, out, size);
		break;
	case STATE:
		snprintf(out, size, "%s",
			p->state == JM_STATE_NONE ? "-" : jm_group_state_name(p->state));
		break;
	case RUNS:
		print_runs(p, out, size);
		break;
	case METRIC:
		print_metric(p, c, out, size);
		break;
	case ORIGIN:
		snprintf(out, size, "%s", s->mixed_origin ? "mixed" : jm_origin_name(s->origin));
		break;
	}
}

static int fill(struct jm_grid *grid, const struct jm_grouping *g, const struct jm_group_series *s,
	const struct column *columns, struct jm_err *err)
{
	char text[200];
	int rc = 0;

	for (int c = 0; c < grid->columns && !rc; c++) {
		grid->left[c] = columns[c].kind == SETTING || columns[c].kind == AXIS ||
				columns[c].kind == STATE || columns[c].kind == ORIGIN;
		rc = jm_grid_set(grid, -1, c, err, "%s", columns[c].title);
		for (int r = 0; r < grid->rows && !rc; r++) {
			print_cell(g, s, &g->point[s->first_point + r], &columns[c], text,
				sizeof(text));
			rc = jm_grid_set(grid, r, c, err, "%s", text);
		}
	}
	return rc;
}

int jm_series_table_of_family(struct jm_grid *grid, const struct jm_grouping *g,
	const struct jm_family *f, struct jm_err *err)
{
	struct column columns[MAX_COLUMNS], *others = columns + f->n_axes;
	int n_setting, n = 0, rc;

	for (int i = 0; i < f->n_axes; i++)
		add(columns, &n, AXIS, i, f->axis[i]);
	n += choose_columns(g, &f->all, others, &n_setting);
	for (int i = 0; i < n; i++)
		columns[i].places = columns[i].kind == METRIC ? places_of(g, &f->all, &columns[i])
							      : JM_NO_PLACES;
	rc = jm_grid_new(grid, f->all.n_points, n, err);
	grid->n_setting = f->n_axes + n_setting;
	if (!rc)
		rc = fill(grid, g, &f->all, columns, err);
	if (rc)
		jm_grid_done(grid);
	return rc;
}

int jm_series_table_of(struct jm_grid *grid, const struct jm_grouping *g,
	const struct jm_group_series *s, struct jm_err *err)
{
	const struct jm_family alone = {.first = (int)(s - g->series), .n = 1, .all = *s};

	return jm_series_table_of_family(grid, g, &alone, err);
}

int jm_series_table_set_run(struct jm_grid *grid, int row, const struct jm_grouping *g,
	const struct jm_group_case *c, struct jm_err *err)
{
	const struct jm_group_point *p = &g->point[c->point];
	int repeat = (int)json_integer_value(
		json_object_get(json_object_get(c->record, "case"), "repeat"));

	if (p->n_ok + p->n_failed < 2)
		return jm_grid_set(grid, row, 0, err, "%s", p->label);
	return jm_grid_set(grid, row, 0, err, "%s, repeat %d", p->label, repeat);
}
