/* SPDX-License-Identifier: Apache-2.0 */
/* What a record means with figures that it does not hold: prices, carbon, peaks; formulas in
 * metric.h. */
#include "result/metric_figures.h"
#include "base/text/json.h"
#include "result/record.h"
#include "result/setting_state.h"

#include <math.h>
#include <string.h>

#define JOULES_PER_KWH 3.6e6
#define MILLION	       1e6

static double percent_of(double flops_per_item, double items_per_s, double peak)
{
	return peak > 0 && flops_per_item > 0 ? 100 * flops_per_item * items_per_s / peak : NAN;
}

void jm_metric_figures(const json_t *record, const struct jm_figures *f, struct jm_measured *m)
{
	double model = jm_json_real_of(record, "flops_model_per_item");
	double executed = jm_json_real_of(record, "flops_executed_per_item");
	double rate = m->value[JM_M_THROUGHPUT_DEVICE];
	double kwh = m->value[JM_M_JOULES_ITEM] / JOULES_PER_KWH * (isnan(f->pue) ? 1 : f->pue);

	m->value[JM_M_COST] = MILLION * kwh * f->price;
	m->value[JM_M_CARBON] = MILLION * kwh * f->carbon;
	m->value[JM_M_MFU] = percent_of(model, rate, f->peak_flops);
	m->value[JM_M_HFU] = percent_of(executed, rate, f->peak_flops);
	m->value[JM_M_MFU_MEASURED] = percent_of(model, rate, f->measured_flops);
	m->value[JM_M_HFU_MEASURED] = percent_of(executed, rate, f->measured_flops);
}

double jm_metric_peak(const json_t *record)
{
	if (strcmp(jm_json_text(record, "workload"), "gemm") != 0 || jm_metric_failed(record))
		return NAN;
	return jm_json_real_of(record, "throughput_per_device") *
	       jm_json_real_of(record, "flops_executed_per_item");
}

double jm_metric_limit(const json_t *record)
{
	const char *main_phase = jm_json_text(record, "phase");
	const json_t *row;
	double sum = 0;
	int n = 0;

	for (size_t i = 0; (row = jm_record_setting(record, i)); i++) {
		const char *phase = jm_json_text(row, "phase");

		if (strcmp(jm_json_text(row, "unit"), "W") != 0 ||
			(*phase ? strcmp(phase, main_phase) != 0
				: jm_setting_is_replaced(record, main_phase, row)))
			continue;
		sum += jm_json_real_of(row, "enforced");
		n++;
	}
	return n ? sum : NAN;
}

double jm_metric_zeus(double eta, double joules_item, double seconds_item, double limit_watts)
{
	return eta * joules_item + (1 - eta) * limit_watts * seconds_item;
}
