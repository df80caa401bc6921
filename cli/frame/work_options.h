/* SPDX-License-Identifier: Apache-2.0 */
/* The options that a command takes for others: those of a workload, and of the model that it
 * runs. */
#ifndef JM_WORK_OPTIONS_H
#define JM_WORK_OPTIONS_H

#include "cli.h"
#include "engine/graph/model.h"
#include "run/workload.h"

#define JM_CHOSEN_MOST 64

/* The workload of that name, or the one that runs a model or preset of that name; NULL = neither.
 * ret_model: the model, NULL = it is a workload; may be NULL. */
const struct jm_workload *jm_work_find(const char *name, const struct jm_model **ret_model);

struct jm_work_options {
	const char *who;	     /* for sentences: "workload 'train'" */
	const struct jm_option *own; /* may be NULL */
	/* What was chosen, each with its rows: an option that is not among the own ones must be in
	 * all of these. */
	struct {
		char name[64];
		const struct jm_option *rows;
	} chosen[JM_CHOSEN_MOST];
	int n_chosen;
};

/* Adds one choice. JM_ERANGE: there are too many. */
int jm_work_options_choose(struct jm_work_options *o, const char *name,
	const struct jm_option *rows, struct jm_err *err);
/* Is there a row for every option that was given besides the command's own? */
int jm_work_options_check(struct jm_cli *cli, const struct jm_work_options *o);
/* Gives an option besides the command's own; the texts are not copied. */
int jm_work_options_give(struct jm_cli *cli, const char *name, const char *text);
/* The first row of that name of any workload or model; NULL = none has it. */
const struct jm_option *jm_work_options_find(const char *name);
/* The text of the last option of that name besides the command's own; NULL = it is not given. */
const char *jm_work_options_text(const struct jm_cli *cli, const char *name);
/* The member "options" of a request's "what" (run/plan/plan.h): the workload's own, with their
 * defaults, and those given of what was chosen. */
int jm_work_options_request(
	struct jm_cli *cli, const struct jm_workload *w, const char *who, struct json_t *what);

/* Adds one option to such a member: the values of a list (text), each checked by the row. */
int jm_work_options_add(
	struct jm_cli *cli, const struct jm_option *row, const char *text, struct json_t *options);

#endif
