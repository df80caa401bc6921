/* SPDX-License-Identifier: Apache-2.0 */
/* Cost and carbon of a measurement, by the user's own figures. */
#ifndef JM_MEASURE_FIGURES_H
#define JM_MEASURE_FIGURES_H

#include "cli/frame/cli.h"
#include "measure_text.h"

#include <jansson.h>

struct jm_measure_figures {
	double price, carbon; /* currency and gCO2e, each per kWh; NAN = not given */
	double pue;	      /* energy of the facility to that of the machines; NAN = not given */
	const char *currency, *from; /* NULL = not given */
};

/* None of them goes without what it needs, and they are of one command alone: JM_EUSAGE. */
int jm_measure_figures_check(const struct jm_measure_figures *f, bool several, struct jm_cli *cli);
/* The record's `figures`: what was given, and what the energy costs by it; of one run where a
 * command was repeated. NULL = nothing was given. */
json_t *jm_measure_figures_json(const struct jm_measure_figures *f, const json_t *record);
/* Lines "Cost" and "Carbon", where the record has them. */
void jm_measure_figures_show(const struct jm_measure_text *t, const json_t *record);

#endif
