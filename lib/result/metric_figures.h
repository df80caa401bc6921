/* SPDX-License-Identifier: Apache-2.0 */
/* What a record means with figures that it does not hold: prices, carbon, peaks; formulas in
 * metric.h. */
#ifndef JM_METRIC_FIGURES_H
#define JM_METRIC_FIGURES_H

#include "result/metric.h"

/* What no record holds: the user's figures. NAN = not given. */
struct jm_figures {
	double price, carbon;  /* currency and gCO2e, each per kWh */
	double pue;	       /* energy of the facility to that of the machines; at least 1 */
	double peak_flops;     /* FLOP/s of one device at best */
	double measured_flops; /* the same, measured */
	double zeus_eta;       /* 0 = time alone counts, 1 = energy alone */
};
/* Cost, carbon and utilisation of a measured record. */
void jm_metric_figures(const json_t *record, const struct jm_figures *f, struct jm_measured *m);
/* Of a workload that does nothing but matrix products: FLOP/s of one device; NAN = it is none. */
double jm_metric_peak(const json_t *record);
/* Sum of the power limits that the devices of the record held, W; NAN = none is known. */
double jm_metric_limit(const json_t *record);
double jm_metric_zeus(double eta, double joules_item, double seconds_item, double limit_watts);

#endif
