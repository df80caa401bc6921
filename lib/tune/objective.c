/* SPDX-License-Identifier: Apache-2.0 */
#include "objective.h"

#include "base/option.h"
#include "result/metric.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A percent above the limit of a slowdown counts as so many percent of energy, the less the further
 * above it is: what is ten times as slow would otherwise scatter so much that nothing else is told
 * apart. */
#define STEEP 8.0
#define FAR   0.1

static const struct {
	const char *name;
	bool takes_number;
	double min, max;
	const char *example;
} rows[] = {
	[JM_MIN_ENERGY] = {"energy", false, 0, 0, "energy"},
	[JM_MIN_EDP] = {"edp", false, 0, 0, "edp"},
	[JM_MIN_ED2P] = {"ed2p", false, 0, 0, "ed2p"},
	[JM_MIN_EDS] = {"eds", true, 1, 1000, "eds:2"},
	[JM_MIN_ZEUS] = {"zeus", true, 0, 1, "zeus:0.5"},
	[JM_MIN_SLOWDOWN] = {"slowdown", true, 0.001, 1, "slowdown:5%"},
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static int read_number(const char *text, size_t row, double *ret, struct jm_err *err)
{
	char *end = NULL;
	double number = *text ? strtod(text, &end) : NAN;

	if (end && *end == '%' && row == JM_MIN_SLOWDOWN) {
		number /= 100;
		end++;
	}
	if (!end || end == text || *end || !(number >= rows[row].min && number <= rows[row].max))
		return jm_err_set(err, JM_EUSAGE,
			"--objective %s takes a number from %g to %g, as in %s, not '%.40s'.",
			rows[row].name, rows[row].min, rows[row].max, rows[row].example, text);
	*ret = number;
	return 0;
}

int jm_objective_parse(const char *text, struct jm_objective *ret, struct jm_err *err)
{
	size_t n = strcspn(text, ":");
	struct jm_objective o = {.number = NAN};
	size_t row = 0;
	int rc = 0;

	while (row < N_ROWS && (strlen(rows[row].name) != n || memcmp(rows[row].name, text, n)))
		row++;
	if (row == N_ROWS)
		return jm_err_set(err, JM_EUSAGE,
			"'%.40s' is no objective; write energy, edp, ed2p, eds:K, zeus:ETA or "
			"slowdown:PERCENT, as in slowdown:5%%.",
			text);
	if (!rows[row].takes_number && text[n])
		return jm_err_set(
			err, JM_EUSAGE, "--objective %s takes no number.", rows[row].name);
	o.kind = (enum jm_objective_kind)row;
	if (rows[row].takes_number)
		rc = read_number(text[n] ? text + n + 1 : "", row, &o.number, err);
	if (!rc)
		*ret = o;
	return rc;
}

void jm_objective_text(const struct jm_objective *o, char *out, size_t size)
{
	if (o->kind == JM_MIN_SLOWDOWN)
		snprintf(out, size, "slowdown:%g%%", 100 * o->number);
	else if (rows[o->kind].takes_number)
		snprintf(out, size, "%s:%g", rows[o->kind].name, o->number);
	else
		snprintf(out, size, "%s", rows[o->kind].name);
}

/* eta e + (1 - eta) P_max d, by its value for the setting found, where e = P d. */
static double zeus(double eta, double energy, double time, double limit)
{
	return (eta * energy + (1 - eta) * limit * time) / (eta + (1 - eta) * limit);
}

double jm_objective_cost(const struct jm_objective *o, double energy, double time, double limit)
{
	if (!(energy > 0 && time > 0 && isfinite(energy) && isfinite(time)))
		return NAN;
	switch (o->kind) {
	case JM_MIN_ENERGY:
		return log(energy);
	case JM_MIN_EDP:
		return log(energy) + log(time);
	case JM_MIN_ED2P:
		return log(energy) + 2 * log(time);
	case JM_MIN_EDS:
		return log(jm_metric_eds(o->number, energy, time));
	case JM_MIN_ZEUS:
		return log(zeus(o->number, energy, time, limit));
	case JM_MIN_SLOWDOWN:
		return log(energy) + STEEP * FAR * log1p(fmax(0, time - 1 - o->number) / FAR);
	}
	return NAN;
}
