/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `compare` share: a side of the command line, and conditions with an exit
 * status. */
#ifndef JM_CLI_COMPARE_PARTS_H
#define JM_CLI_COMPARE_PARTS_H

#include "cli/frame/cli.h"
#include "record_input.h"
#include "report/systems/comparison.h"
#include "report/systems/systems.h"

#define JM_FILTERS_MAX	  16
#define JM_CONDITIONS_MAX 8

/* FILE:NAME=VALUE,... */
struct jm_filter {
	char *name[JM_FILTERS_MAX + 1], *value[JM_FILTERS_MAX];
	int n;
};

struct jm_given {
	char *text; /* owned, cut into pieces */
	struct jm_filter filter;
	struct jm_record_input in;
	json_t *kept;
};

/* "energy>+2%" */
struct jm_condition {
	const char *text;
	enum jm_compared metric;
	bool above;
	double ratio;
};

struct jm_conditions {
	struct jm_condition c[JM_CONDITIONS_MAX];
	int n;
	bool by_estimate;
};

/* The options. */
struct jm_compare_call {
	struct jm_conditions conditions; /* of fail_if */
	const char *fail_if, *json;	 /* NULL = not given */
	const char *purchase;		 /* likewise; of costs */
	struct jm_compare_costs costs;
	bool systems, published; /* published includes systems */
	enum jm_system_metric sort;
	bool sort_given;
};

/* Exit statuses, and the status of one row ([JM_COMPARED_COUNT] lines), 0 or one of them; what is
 * met or cannot be decided is named on stderr. */
#define JM_COMPARE_MET	     1
#define JM_COMPARE_UNDECIDED 3
#define JM_COMPARE_DAMAGED   4

#endif
