/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `compare` share: a side of the command line, and conditions with an exit status. */
#ifndef JM_CLI_COMPARE_PARTS_H
#define JM_CLI_COMPARE_PARTS_H

#include "cli/frame/cli.h"
#include "record_input.h"
#include "report/systems/compare.h"

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

/* cli/inspect/compare_side.c */
int jm_given_read(const char *text, struct jm_given *g, struct jm_err *err);
void jm_given_done(struct jm_given *g);

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

/* cli/inspect/compare_judge.c: text is cut into pieces, which the conditions point to. */
int jm_conditions_parse(char *text, struct jm_conditions *ret, struct jm_err *err);
/* Exit statuses, and the status of one row ([JM_COMPARED_COUNT] lines), 0 or one of them; what is met or
 * cannot be decided is named on stderr. */
#define JM_COMPARE_MET	     1
#define JM_COMPARE_UNDECIDED 3
#define JM_COMPARE_DAMAGED   4
int jm_conditions_judge(const struct jm_conditions *conditions, const char *title,
	const struct jm_compare_line *line);
/* The one that a command ends with: a condition that is met, then a damaged record, then an undecided condition. */
int jm_compare_worse(int status, int other);

/* cli/inspect/compare_systems.c: --systems and --published; the exit status. */
int jm_compare_systems(struct jm_cli *cli, const struct jm_conditions *conditions);

#endif
