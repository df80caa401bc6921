/* SPDX-License-Identifier: Apache-2.0 */
#include "report_objective.h"
#include "base/text/number.h"
#include "tune/objective.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOWDOWN 5 /* percent, where the user gives no limit */

double jm_report_objective_slowdown(const struct jm_grouping *g)
{
	return g->options.max_slowdown > 0 ? g->options.max_slowdown : SLOWDOWN;
}

const char *jm_report_objective_name(enum jm_report_objective objective)
{
	static const char *const names[] = {"slowdown", "energy", "edp", "ed2p", "eds", "power"};

	return names[objective];
}

static int read_budget(const char *text, struct jm_report_options *o, struct jm_err *err)
{
	char *end = NULL;
	double watts = strtod(text, &end);

	if (end != text && (!strcmp(end, "kW") || !strcmp(end, "MW")))
		watts *= *end == 'k' ? 1e3 : 1e6;
	else if (end == text || strcmp(end, "W") != 0)
		watts = NAN;
	if (!(watts > 0) || isinf(watts))
		return jm_err_set(err, JM_EUSAGE,
			"--objective power takes watts, as in power:2000W or power:2kW, not "
			"'%.40s'.",
			text);
	o->objective = JM_OBJECTIVE_POWER;
	o->objective_number = watts;
	return 0;
}

/* The metric of EDS has the k that are listed. */
static int add_k(double k, struct jm_report_options *o, struct jm_err *err)
{
	for (int i = 0; i < o->n_k; i++)
		if (o->k[i] == k)
			return 0;
	if (!(k > 1))
		return jm_err_set(
			err, JM_EUSAGE, "--objective eds takes a number above 1, as in eds:2.");
	if (o->n_k == JM_REPORT_MAX_K)
		return jm_err_set(err, JM_EUSAGE,
			"--k and --objective have more than %d numbers for EDS.", JM_REPORT_MAX_K);
	o->k[o->n_k++] = k;
	return 0;
}

static int add_listed_k(struct jm_report_options *o, double k, struct jm_err *err)
{
	for (int i = 0; i < o->n_k; i++)
		if (o->k[i] == k)
			return jm_err_set(err, JM_EUSAGE, "--k lists %.6g twice; list it once.", k);
	if (o->n_k == JM_REPORT_MAX_K)
		return jm_err_set(err, JM_EUSAGE, "--k takes at most %d numbers.", JM_REPORT_MAX_K);
	o->k[o->n_k++] = k;
	return 0;
}

int jm_report_k_parse(const char *text, struct jm_report_options *o, struct jm_err *err)
{
	int rc = 0;

	for (const char *at = text; at && !rc; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		char one[32];
		double k;

		snprintf(one, sizeof(one), "%.*s", (int)strcspn(at, ","), at);
		if (!jm_number_real(one, &k) || !(k > 1) || !(k <= 1000))
			return jm_err_set(err, JM_EUSAGE,
				"--k takes numbers above 1, such as 1.5,2.0; '%s' is not one.",
				one);
		rc = add_listed_k(o, k, err);
	}
	return rc;
}

int jm_report_objective_parse(const char *text, struct jm_report_options *o, struct jm_err *err)
{
	static const enum jm_report_objective of_kind[] = {
		[JM_MIN_ENERGY] = JM_OBJECTIVE_ENERGY,
		[JM_MIN_EDP] = JM_OBJECTIVE_EDP,
		[JM_MIN_ED2P] = JM_OBJECTIVE_ED2P,
		[JM_MIN_EDS] = JM_OBJECTIVE_EDS,
		[JM_MIN_SLOWDOWN] = JM_OBJECTIVE_SLOWDOWN,
	};
	struct jm_objective objective = {.number = NAN};
	int rc;

	if (!strncmp(text, "power:", 6))
		return read_budget(text + 6, o, err);
	rc = jm_objective_parse(text, &objective, err);
	if (rc || objective.kind == JM_MIN_ZEUS)
		return jm_err_set(err, JM_EUSAGE,
			"'%.40s' is no objective of a report; write slowdown:5%%, energy, edp, "
			"ed2p, eds:2 or power:2000W.",
			text);
	o->objective = of_kind[objective.kind];
	o->objective_number = objective.number;
	if (o->objective == JM_OBJECTIVE_SLOWDOWN)
		o->max_slowdown = 100 * objective.number;
	return o->objective == JM_OBJECTIVE_EDS ? add_k(objective.number, o, err) : 0;
}

int jm_report_objective_metric(const struct jm_grouping *g)
{
	int k = 0;

	switch (g->options.objective) {
	case JM_OBJECTIVE_ENERGY:
		return JM_M_JOULES_ITEM;
	case JM_OBJECTIVE_EDP:
		return JM_M_EDP;
	case JM_OBJECTIVE_ED2P:
		return JM_M_ED2P;
	case JM_OBJECTIVE_POWER:
		return JM_M_THROUGHPUT;
	case JM_OBJECTIVE_EDS:
		while (k < g->options.n_k - 1 && g->options.k[k] != g->options.objective_number)
			k++;
		return JM_M_EDS + k;
	default:
		return JM_M_GAIN;
	}
}

void jm_report_objective_text(const struct jm_grouping *g, char *out, size_t size)
{
	switch (g->options.objective) {
	case JM_OBJECTIVE_ENERGY:
		snprintf(out, size, "least energy per item, at any speed");
		break;
	case JM_OBJECTIVE_EDP:
		snprintf(out, size, "least energy delay product (EDP)");
		break;
	case JM_OBJECTIVE_ED2P:
		snprintf(out, size, "least energy delay² product (ED2P)");
		break;
	case JM_OBJECTIVE_EDS:
		snprintf(out, size, "lowest Energy Delay Sum with k = %g",
			g->options.objective_number);
		break;
	case JM_OBJECTIVE_POWER:
		snprintf(out, size, "highest throughput within a mean power of %g W",
			g->options.objective_number);
		break;
	default:
		snprintf(out, size, "least energy while at most %g %% slower than the reference",
			jm_report_objective_slowdown(g));
	}
}

void jm_report_objective_brief(const struct jm_grouping *g, char *out, size_t size)
{
	switch (g->options.objective) {
	case JM_OBJECTIVE_ENERGY:
		snprintf(out, size, "least energy");
		break;
	case JM_OBJECTIVE_EDP:
		snprintf(out, size, "least EDP");
		break;
	case JM_OBJECTIVE_ED2P:
		snprintf(out, size, "least ED2P");
		break;
	case JM_OBJECTIVE_EDS:
		snprintf(out, size, "lowest EDS k=%g", g->options.objective_number);
		break;
	case JM_OBJECTIVE_POWER:
		snprintf(out, size, "≤ %g W", g->options.objective_number);
		break;
	default:
		snprintf(out, size, "≤ %g %% slower", jm_report_objective_slowdown(g));
	}
}
