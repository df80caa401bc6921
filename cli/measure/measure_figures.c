/* SPDX-License-Identifier: Apache-2.0 */
#include "measure_figures.h"

#include "base/text/json.h"
#include "report/format/text.h"
#include "result/metric.h"

#include <math.h>
#include <stdio.h>

#define JOULES_PER_KWH 3.6e6
#define MILLION	       1e6

int jm_measure_figures_check(const struct jm_measure_figures *f, bool several, struct jm_cli *cli)
{
	bool priced = !isnan(f->price) || !isnan(f->carbon);

	if (!priced && (!isnan(f->pue) || f->from))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--%s has no effect without --price or --carbon; give one of these, or "
			"omit it.",
			isnan(f->pue) ? "figures-from" : "pue");
	if (priced && !f->from)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--price and --carbon need --figures-from with their date and source, such "
			"as "
			"'contract of 2026-01' or 'grid operator, mean of 2025'.");
	if (priced && several)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--price and --carbon apply to one command; omit --compare, or give them "
			"to "
			"'joulemark report'.");
	return 0;
}

/* Of one run, where there were several. */
static double joules_of(const json_t *record)
{
	const json_t *repeats = json_object_get(record, "repeats");
	enum jm_origin origin;

	if (repeats)
		return jm_json_real_of(
			json_array_get(json_object_get(repeats, "energy"), 0), "joules");
	return jm_metric_joules(record, &origin);
}

json_t *jm_measure_figures_json(const struct jm_measure_figures *f, const json_t *record)
{
	double pue = isnan(f->pue) ? 1 : f->pue, kwh = pue * joules_of(record) / JOULES_PER_KWH;
	json_t *json;

	if (!f->from)
		return NULL;
	json = json_object();
	jm_json_set_text(&json, "from", f->from);
	jm_json_set_number(&json, "price_per_kwh", f->price);
	jm_json_set_text(&json, "currency", f->currency);
	jm_json_set_number(&json, "carbon_g_per_kwh", f->carbon);
	jm_json_set_number(&json, "pue", pue);
	jm_json_set_number(&json, "cost", kwh * f->price);
	jm_json_set_number(&json, "carbon_g", kwh * f->carbon);
	return json;
}

/* "0.0123 EUR, 0.41 EUR per million tokens; 0.25 EUR/kWh, PUE 1.2 (contract of 2026-01)" */
static void put_figure(const struct jm_measure_text *t, const json_t *record, const char *label,
	const char *key, const char *per_kwh, const char *unit)
{
	const json_t *figures = json_object_get(record, "figures");
	const char *item = jm_json_text(record, "unit");
	double value = jm_json_real_of(figures, key), given = jm_json_real_of(figures, per_kwh);
	double items = jm_json_real_of(record, "items"), pue = jm_json_real_of(figures, "pue");
	char text[700], number[40], each[140] = "", factor[40] = "";

	if (isnan(given))
		return;
	jm_text_estimate(MILLION * value / items, NAN, number, sizeof(number));
	if (items > 0 && !isnan(value) && !json_object_get(record, "repeats"))
		snprintf(each, sizeof(each), ", %s %.20s per million %.32ss", number, unit,
			*item ? item : "item");
	if (pue != 1)
		snprintf(factor, sizeof(factor), ", PUE %.4g", pue);
	jm_text_estimate(value, NAN, number, sizeof(number));
	jm_text_format(text, sizeof(text), "%s%s%.20s%s%s; %.6g %.20s/kWh%s (%.200s)",
		isnan(value) ? "unknown" : number, isnan(value) ? "" : " ",
		isnan(value) ? "" : unit, json_object_get(record, "repeats") ? " for one run" : "",
		each, given, unit, factor, jm_json_text(figures, "from"));
	jm_measure_line(t, label, text);
}

void jm_measure_figures_show(const struct jm_measure_text *t, const json_t *record)
{
	const char *currency = jm_json_text(json_object_get(record, "figures"), "currency");

	if (!json_object_get(record, "figures"))
		return;
	put_figure(t, record, "Cost", "cost", "price_per_kwh",
		*currency ? currency : "currency units");
	put_figure(t, record, "Carbon", "carbon_g", "carbon_g_per_kwh", "gCO2e");
}
