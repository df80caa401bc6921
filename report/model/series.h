/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records in order: series (same work, other settings) of points (same setting) of cases (repeats).
 * Every format is drawn from this one structure.
 */
#ifndef JM_SERIES_H
#define JM_SERIES_H

#include "result/metric.h"
#include "machine.h"
#include "options.h"
#include "base/stat/stat.h"

#define JM_GROUP_MAX_DIMS 16

/* What differs between the points of a series: a knob or, where no knob was set, an option. */
struct jm_group_dim {
	const char *name; /* in a record */
	char unit[16];	  /* base unit; "" = none or unknown */
	bool knob;
	bool soft; /* a duty cycle or quota, not a control of the machine */
};

/* How a setting ended, the worst last. */
#define JM_GROUP_STATES(X)                                                                         \
	X(NONE, "")                                                                                \
	X(NOT_REACHED, "not reached")                                                              \
	X(BINDING, "binding")                                                                      \
	X(UNKNOWN, "unknown")                                                                      \
	X(VIOLATED, "violated")
enum jm_group_state {
#define X(name, text) JM_STATE_##name,
	JM_GROUP_STATES(X)
#undef X
};

/* A value of one dimension. x, accepted, enforced in the dimension's unit; NAN = unknown. */
struct jm_group_value {
	char text[96]; /* "300 W", "unchanged (700 W)", "300-400 W" */
	char *key;     /* the same for equal values only; owned */
	double x;      /* for an axis: requested, else accepted, else enforced */
	double requested, accepted, enforced_min, enforced_max;
	enum jm_group_state state;
};

struct jm_group_case {
	const json_t *record; /* borrowed */
	int index;	      /* of the record in the array */
	struct jm_measured m;
	struct jm_group_value value[JM_GROUP_MAX_DIMS];
	char *series_key; /* owned */
	int series, point;
	int machine; /* in the group's list */
	int block;   /* -1 = none */
	bool ok, reference, outlier;
	enum jm_group_state state;
};

struct jm_group_point {
	const struct jm_group_value *value; /* of its first case, [n_dims] */
	char label[128];
	double x; /* of the first dimension */
	int series;
	bool reference;
	int n_ok, n_failed, n_outliers;
	enum jm_group_state state;
	double accepted[JM_GROUP_MAX_DIMS]; /* over all its cases and devices; NAN = unknown */
	double enforced_min[JM_GROUP_MAX_DIMS], enforced_max[JM_GROUP_MAX_DIMS];
	bool bounded;  /* requests of a run were judged by bounds of latency */
	bool late;     /* in a run, requests broke the bounds of latency that it had */
	bool eligible; /* as best setting */
	/* eligible, and no other is as good in speed and efficiency and better in one */
	bool pareto;
	char why_not[96];	   /* when it is not */
	double impossible_percent; /* a utilisation above 100 %, which stat omits; 0 = none */
	struct jm_stat stat[JM_M_ALL];
};

struct jm_group_series {
	const json_t *record; /* its first: workload, device, precision, options */
	char title[256];      /* its name, and what distinguishes it from others of that name */
	char item[32];	      /* "token"; "run" for a command without items */
	int first_point, n_points;
	int reference; /* index of the point; -1 = none */
	int n_ok, n_failed;
	bool has_energy, mixed_origin, soft;
	bool faulty; /* a meter of a case has readings that cannot be trusted */
	enum jm_origin origin;
	int n_meters, least_meters; /* that a case adds up, at most and at least */
	char grade[8];		    /* the worst of its cases; "" = none given */
	/* Where its cases were run: one machine, or several of one kind that were pooled. */
	int first_machine, n_machines; /* the lowest index; how many different ones */
	bool cards_linked;	       /* of several: settings can be compared across the cards */
	double spread_throughput,
		spread_joules; /* between cards, part of the mean; NAN = unknown */
};

struct jm_grouping {
	struct jm_report_options options; /* defaults filled in */
	struct jm_group_dim dim[JM_GROUP_MAX_DIMS];
	int n_dims;
	struct jm_group_case *c;
	struct jm_group_point *point;
	struct jm_group_series *series;
	int n_cases, n_points, n_series;
	json_t *peaks; /* FLOP/s of a device, measured, by host, device and precision */
	struct jm_machine *machine; /* different ones, in order of appearance */
	int n_machines;
};

#endif
