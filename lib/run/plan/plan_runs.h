/* SPDX-License-Identifier: Apache-2.0 */
/* The runs of a plan file with their keys and axes, and what the file is read with. */
#ifndef JM_PLAN_RUNS_H
#define JM_PLAN_RUNS_H

#include <jansson.h>

#include "base/option.h"
#include "base/text/yaml.h"

#define JM_PLAN_AXES 32 /* of one run */
#define JM_PLAN_NAME 64
#define JM_PLAN_RUNS 1000

enum jm_plan_kind { JM_PLAN_OPTION, JM_PLAN_VARIABLE, JM_PLAN_DERIVED };

struct jm_plan_key {
	const char *name;
	const struct jm_yaml *value;
	enum jm_plan_kind kind;
	bool own; /* given by the run itself; else by what holds for all runs */
	int axis; /* index; -1 = it is none */
};

struct jm_plan_axis {
	const char *name;
	const struct jm_yaml *where;
	char **value;
	int n;
	int dial;  /* axes of one dial advance together */
	bool free; /* left to the options of `run`, as a list */
};

struct jm_plan_exclude;

struct jm_plan_run {
	char name[JM_PLAN_NAME];
	const struct jm_yaml *where;
	bool command; /* an outside command; else a workload or model */
	struct jm_plan_key *key;
	int n_keys;
	struct jm_plan_axis axis[JM_PLAN_AXES];
	int n_axes;
	int dial_n[JM_PLAN_AXES]; /* positions of each dial that is not free */
	int n_dials;
	struct jm_plan_exclude *exclude;
	int n_excludes;
	int *after; /* indices of runs */
	int n_after;
	json_t *tags; /* texts */
};

struct jm_plan_file {
	const char *title; /* NULL = none */
	struct jm_plan_run *run;
	int n;
	struct jm_yaml_document **document;
	int n_documents;
};

struct jm_plan_file_options {
	const struct jm_option *rows; /* of `run` */
	const char *platform;	      /* instead of the one that the file names; NULL = that one */
	const json_t
		*over; /* {name: text or [text...]} that replace what the file says; may be NULL */
	/* Has the work this option? work: NULL = a command. */
	bool (*applies)(void *arg, const char *work, const char *option);
	void *arg;
};

/* Where a run stands: a position per dial. */
struct jm_plan_point {
	int at[JM_PLAN_AXES];
};

#endif
