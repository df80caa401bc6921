/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics for Prometheus: OpenMetrics 1.0, or the older text format 0.0.4, which the textfile
 * collector of its node exporter reads. A value that is unknown is left out.
 */
#ifndef JM_OPENMETRICS_H
#define JM_OPENMETRICS_H

#include <jansson.h>
#include <stdio.h>

#include "joulemark.h"

struct jm_openmetrics {
	FILE *out;
	bool classic; /* the older format */
	/* of the family that was begun last */
	const char *name;
	bool counter;
};

struct jm_metric_label {
	const char *name, *value; /* value: any UTF-8; "" = the label is left out */
};

#define JM_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define JM_CLASSIC_TYPE	    "text/plain; version=0.0.4; charset=utf-8"

/* name ends in its unit: "joulemark_energy_joules"; "_total" is appended for the samples of a
 * counter. */
void jm_openmetrics_family(struct jm_openmetrics *o, const char *name, bool counter,
	const char *unit, const char *help);
void jm_openmetrics_sample(
	struct jm_openmetrics *o, const struct jm_metric_label *label, int n, double value);
void jm_openmetrics_end(struct jm_openmetrics *o);

/* Joules, their uncertainty, mean watts, items and seconds per phase and meter of an array of
 * records. */
void jm_openmetrics_records(struct jm_openmetrics *o, const json_t *records);
/* Of one record, to a file; "-" is stdout. A name that ends in ".prom" gets the older format. */
int jm_openmetrics_write(const char *path, const json_t *record, struct jm_err *err);

#endif
