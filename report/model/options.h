/* SPDX-License-Identifier: Apache-2.0 */
/* What a user asks of a report. */
#ifndef JM_REPORT_OPTIONS_H
#define JM_REPORT_OPTIONS_H

#include <jansson.h>

#include "joulemark.h"
#include "result/metric_figures.h"

#define JM_REPORT_MAX_K 8

/* What the best setting is; see report/judge/report_objective.h. */
enum jm_report_objective {
	JM_OBJECTIVE_SLOWDOWN, /* least energy, at most max_slowdown slower */
	JM_OBJECTIVE_ENERGY,
	JM_OBJECTIVE_EDP,
	JM_OBJECTIVE_ED2P,
	JM_OBJECTIVE_EDS,   /* of k = objective_number, which is one of k */
	JM_OBJECTIVE_POWER, /* highest throughput with a mean power of at most objective_number W */
};

/* All zero is the default. */
struct jm_report_options {
	const char *title; /* of the page; NULL = made from the records */
	double k[JM_REPORT_MAX_K];
	int n_k; /* of EDS; 0 = 1.5 and 2.0 */
	enum jm_report_objective objective;
	double objective_number;
	double max_slowdown; /* percent, of the best setting; 0 = 5 */
	double add_watts; /* assumed power of the rest of the node, added to every case; 0 = none */
	bool idle_gpus;	  /* energy of GPUs on which the work did not run counts, too */
	int width;	  /* columns of the terminal; 0 = 80 */
	bool bold;	  /* titles of the table in bold, for a terminal */
	bool why;	  /* table: the reasons of the grade */
	bool told;	  /* table: the reader has just seen why runs failed */
	struct jm_figures figures;	/* 0 = not given */
	const char *currency;		/* of figures.price; NULL = not named */
	const char *figures_from;	/* date and source of price and carbon intensity */
	double rack_watts, rated_watts; /* of a rack, and of a node by its plate; 0 = not given */
	int racks;			/* that share their power; 0 = 1 */
	double rack_reserve;		/* percent of the rack's power that is not used */
	const char
		*columns; /* of the table: names with commas, "all"; NULL = the few that matter */
	bool phases;	  /* table: the phases of each run */
	bool cases;	  /* CSV: one row per case instead of one per setting */
	/* joins machines with the same models of devices; the card is a factor */
	bool pool_devices;
	bool published; /* also what papers report, apart; CSV: that alone */
	/* HTML: array of what jm_page_trace_json makes; NULL = none */
	const json_t *traces;
	/* HTML: by the index of a record (as text) the same with its details, where it lacks them;
	 * or NULL */
	const json_t *details;
};

#endif
