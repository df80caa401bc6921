/* SPDX-License-Identifier: Apache-2.0 */
/* What the words of a table mean: metrics that have a separate name, the reference, the grade. */
#include "meaning.h"
#include "base/text/json.h"
#include "report/format/text.h"

#include <stdio.h>
#include <string.h>

#define TWICE 100 /* percent of slowdown from which the multiple is given too */

static const struct {
	int metric;
	const char *text;
} rows[] = {
	{JM_M_EDP, "EDP: energy times time per @; lower is better"},
	{JM_M_ED2P, "ED2P: energy times the square of the time per @; lower is better"},
	{JM_M_ZEUS,
		"energy and time per @ as one energy, time at the power limit; lower is better"},
	{JM_M_GAIN, "energy saved per @, compared with the reference"},
	{JM_M_LOSS, "additional time per @, compared with the reference; 100 % is twice the time"},
	{JM_M_GAIN_LOSS, "energy saved minus slowdown, in percentage points"},
	{JM_M_HOURS, "time of the measured phase of one run"},
	{JM_M_KWH, "energy of the measured phase of one run"},
	{JM_M_WH_GPU_HOUR, "mean power of the GPUs of the run, as energy of one GPU in one hour"},
	{JM_M_GPU_LOAD,
		"utilisation: the share of the time in which a kernel ran on a GPU; mean over the "
		"GPUs of the run"},
	{JM_M_TTFT_P50, "median time from the arrival of a request to its first token"},
	{JM_M_TTFT_P99,
		"99th percentile of the time from the arrival of a request to its first token"},
	{JM_M_TPOT_P50, "median time of each further token of a request"},
	{JM_M_TPOT_P99, "99th percentile of the time of each further token of a request"},
	{JM_M_LATENCY_P99,
		"99th percentile of the time from the arrival of a request to its last token"},
	{JM_M_GOODPUT, "requests per second that keep the bounds --ttft and --tpot"},
	{JM_M_MFU, "model FLOPs utilisation: FLOP/s of the model, divided by the dense peak"},
	{JM_M_HFU, "hardware FLOPs utilisation: executed FLOP/s, divided by the dense peak"},
};

/* What the best setting by a metric is. */
static const struct {
	int metric;
	const char *text;
} questions[] = {
	{JM_M_THROUGHPUT, "highest throughput"},
	{JM_M_JOULES_ITEM, "least energy per @"},
	{JM_M_EDP, "least energy delay product"},
	{JM_M_GAIN, "most energy saved"},
	{JM_M_GAIN_LOSS, "best saving minus slowdown"},
};

void jm_text_question(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	char *out, size_t size)
{
	char title[80];

	jm_group_metric_title(g, s, metric, title, sizeof(title));
	jm_text_format(out, size, "%s %s",
		jm_group_metric_better(metric) > 0 ? "highest" : "lowest", title);
	for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++)
		if (questions[i].metric == metric)
			jm_text_item(questions[i].text, s->item, out, size);
}

/* "GPU" of gpu.power and of the scope gpu. */
static const char *device_word(const char *name)
{
	return !strncmp(name, "gpu", 3) ? "GPU" : !strncmp(name, "cpu", 3) ? "CPU" : "device";
}

static int count_devices(const json_t *record, const char *knob)
{
	const json_t *row;
	size_t i;
	int n = 0;

	json_array_foreach(json_object_get(record, "settings"), i, row) n +=
		!strcmp(jm_json_text(row, "knob"), knob);
	return n;
}

void jm_text_per(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	out[0] = '\0';
	if (g->n_dims == 1 && g->dim[0].knob && count_devices(s->record, g->dim[0].name) > 1)
		snprintf(out, size, "per %s", device_word(g->dim[0].name));
}

/* The scope that all meters of the total have; NULL: they differ. */
static const char *common_scope(const struct jm_group_series *s)
{
	const json_t *meter;
	const char *scope = NULL;
	size_t i;

	json_array_foreach(json_object_get(s->record, "meters"), i, meter)
	{
		const char *own = jm_json_text(meter, "scope");

		if (*jm_json_text(meter, "covered_by") ||
			json_is_true(json_object_get(meter, "elsewhere")) ||
			strcmp(jm_json_text(meter, "origin"), jm_origin_name(s->origin)) != 0)
			continue;
		if (scope && strcmp(scope, own) != 0)
			return NULL;
		scope = own;
	}
	return scope;
}

bool jm_group_has_metric(const struct jm_grouping *g, const struct jm_group_series *s, int metric)
{
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (g->point[i].stat[metric].n)
			return true;
	return false;
}

void jm_text_sum(const struct jm_group_series *s, char *out, size_t size)
{
	const char *scope = common_scope(s);
	char least[24] = "";

	out[0] = '\0';
	if (s->least_meters < s->n_meters)
		snprintf(least, sizeof(least), "%d to ", s->least_meters);
	if (s->has_energy && s->n_meters > 1)
		snprintf(out, size, "%s%d %ss", least, s->n_meters,
			scope && !strcmp(scope, "gpu") ? device_word(scope) : "meter");
}

bool jm_text_sums(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	char per[32], sum[40];

	jm_text_per(g, s, per, sizeof(per));
	jm_text_sum(s, sum, sizeof(sum));
	if (!*per || !*sum)
		return false;
	if (g->options.add_watts > 0)
		snprintf(out, size,
			"%s is set %s; power and energy are sums over %s and the assumed %.6g W.",
			g->dim[0].name, per, sum,
			g->options.add_watts * jm_metric_nodes(s->record));
	else
		snprintf(out, size, "%s is set %s; power and energy are sums over %s.",
			g->dim[0].name, per, sum);
	return true;
}

void jm_text_meaning(
	const struct jm_grouping *g, const char *item, int metric, char *out, size_t size)
{
	char text[240];
	double k;

	out[0] = '\0';
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].metric == metric)
			jm_text_item(rows[i].text, item, out, size);
	if (metric < JM_M_EDS)
		return;
	k = g->options.k[metric - JM_M_EDS];
	snprintf(text, sizeof(text),
		"Energy Delay Sum: %.2g × energy + %.2g × time per @, relative to the reference, "
		"which has 1; lower is better",
		1 - 1 / k, 1 / k);
	jm_text_item(text, item, out, size);
}

void jm_text_products(const struct jm_group_series *s, char *out, size_t size)
{
	jm_text_format(out, size,
		"The energy delay product (EDP) is the energy times the time per %s. EDS k, the "
		"Energy Delay Sum, is (1 - 1/k) of the energy + 1/k of the time per %s, both "
		"relative to the reference, which has 1; a small k gives more weight to the time. "
		"Lower values of both are better.",
		s->item, s->item);
}

const char *jm_text_reference(const struct jm_grouping *g, const struct jm_group_series *s)
{
	return strncmp(g->point[s->reference].label, "default", strlen("default"))
		       ? "unchanged, the value that the devices had before the run"
		       : "the default setting of the device";
}

/* The setting with the largest slowdown, where the work takes more than twice the time; NULL =
 * none. */
static const struct jm_group_point *slowest(
	const struct jm_grouping *g, const struct jm_group_series *s)
{
	const struct jm_group_point *found = NULL;

	for (int i = s->first_point; i < s->first_point + s->n_points; i++) {
		const struct jm_group_point *p = &g->point[i];

		if (p->stat[JM_M_LOSS].n && p->stat[JM_M_LOSS].mean > TWICE &&
			(!found || p->stat[JM_M_LOSS].mean > found->stat[JM_M_LOSS].mean))
			found = p;
	}
	return found;
}

void jm_text_relative(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	const struct jm_group_point *p = slowest(g, s);
	char part[120] = "";

	jm_text_format(out, size,
		"Energy saved and slowdown are per %s, both compared with the reference", s->item);
	if (p)
		snprintf(part, sizeof(part), " (%.0f %% slower is %.3g times the time)",
			p->stat[JM_M_LOSS].mean, 1 + p->stat[JM_M_LOSS].mean / 100);
	jm_text_append(out, size, "", part);
	jm_text_append(out, size, "", ".");
}

bool jm_text_paired(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	bool blocks = false;

	for (int i = 0; i < g->n_cases; i++)
		blocks = blocks || (g->c[i].series == (int)(s - g->series) && g->c[i].block >= 0);
	if (!blocks || s->reference < 0 || g->point[s->reference].n_ok < 2)
		return false;
	snprintf(out, size,
		"Both compare runs of the same block (one repeat of all settings), so that changes "
		"between blocks cancel; their intervals can therefore be narrower than those of "
		"the "
		"other columns.");
	return true;
}
