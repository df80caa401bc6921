/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records in order: series (same work, other settings) of points (same setting) of cases (repeats).
 * Every format is drawn from this one structure.
 */
#ifndef JM_GROUP_H
#define JM_GROUP_H

#include "result/metric.h"
#include "machine.h"
#include "report.h"
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
const char *jm_group_state_name(enum jm_group_state state);

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
	bool eligible; /* as best setting */
	bool pareto; /* eligible, and no other is as good in speed and efficiency and better in one */
	char why_not[96]; /* when it is not */
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
	int n_meters;
	char grade[8]; /* the worst of its cases; "" = none given */
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

/* The options (NULL: none) with their defaults, of a grouping whose other parts are not there yet. */
void jm_group_take_options(struct jm_grouping *g, const struct jm_report_options *options);
/* The records must outlive the group. */
int jm_group_init(struct jm_grouping *g, const json_t *records,
	const struct jm_report_options *options, struct jm_err *err);
void jm_group_done(struct jm_grouping *g);

/* "EDS k=1.5", "energy per token": name and unit of a metric in this series. */
void jm_group_metric_title(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	char *out, size_t size);
void jm_group_metric_unit(const struct jm_group_series *s, int metric, char *out, size_t size);
/* "eds_k1.5", "joules_per_item": for CSV and JSON. */
void jm_group_metric_name(const struct jm_grouping *g, int metric, char *out, size_t size);
int jm_group_metric_better(int metric);
bool jm_group_metric_energy(int metric);

/* report/dim.c: what differs, and the value of a dimension in a record. */
int jm_dim_find(struct jm_grouping *g, const json_t *records, struct jm_err *err);
/* Returns -1 without memory. */
int jm_dim_value(const struct jm_group_dim *dim, const json_t *record, struct jm_group_value *ret);
/* Is this parameter, as "gpu.power" or "gpu.power@GPU-8f", one of the dimensions? */
bool jm_dim_is(const struct jm_grouping *g, const char *key);
/* 300 and "W": "300 W"; clocks in MHz. */
void jm_dim_quantity(double value, const char *unit, char *out, size_t size);
const json_t *jm_dim_parameters(const json_t *record); /* NULL = none */
/* The words of a command, with {names} where the cases of its run have other words; NULL = it is none. */
const json_t *jm_dim_command(const json_t *record);
/* A leaf of the record's case.parameters by the last part of its path; NULL = not there. */
const json_t *jm_dim_parameter(const json_t *record, const char *name);
/* Identity of the work: everything but the dimensions. For the caller to free; NULL: no memory. */
char *jm_dim_series_key(const struct jm_grouping *g, const json_t *record);

/* report/title.c: the name of the work, and the item; then what distinguishes series of one name
 * (-1: no memory). */
void jm_group_title(const struct jm_grouping *g, struct jm_group_series *s);
/* "train resnet50", the words of a command, or "" where the record names neither. */
void jm_group_work(const json_t *record, bool with_subject, char *out, size_t size);
int jm_group_tell_apart(struct jm_grouping *g);

/* report/capacity.c: nodes of a rack by rated, 99th percentile and mean power, and the rack's throughput; null
 * without --rack-power. The highest p99 of the runs counts. */
json_t *jm_capacity(const struct jm_grouping *g, const struct jm_group_point *p);

/* report/warnings.c: marks the Pareto front of a series. */
void jm_pareto_mark(struct jm_grouping *g, const struct jm_group_series *s);
/* Drift over the runs, and first runs that differ: one sentence each, for the caller to decref. */
json_t *jm_warnings(const struct jm_grouping *g, const struct jm_group_series *s);

/* report/cards.c: means and intervals of a series of several machines, with the card as a factor. */
int jm_cards_adjust(struct jm_grouping *g, struct jm_group_series *s, struct jm_err *err);

/* report/verdict.c */
enum jm_verdict_kind { JM_VERDICT_BEST, JM_VERDICT_TIE, JM_VERDICT_NONE };
const char *jm_verdict_kind_name(enum jm_verdict_kind kind); /* "best", "tie", "none" */
struct jm_verdict {
	int metric;
	enum jm_verdict_kind kind;
	int leading;	    /* point with the best mean; -1 = nothing to compare */
	double improvement; /* percent of the reference's mean, positive = better; NAN */
	char text[200];	    /* "300 W", "no clear best: 300 W, 400 W", "no conclusion" */
	char why[240];	    /* of tie and none: one sentence */
};
#define JM_VERDICT_MAX (5 + JM_METRIC_MAX_K)
/* Returns how many. */
int jm_verdicts(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_verdict ret[JM_VERDICT_MAX]);
/*
 * The number of the verdict whose question is the same as that of number i, with the same answer: the energy saved
 * ranks settings as the energy per item does, energy saved minus slowdown as EDS 2; -1 = none.
 */
int jm_verdict_repeats(
	const struct jm_grouping *g, const struct jm_verdict v[JM_VERDICT_MAX], int n, int i);
#define JM_SLOWDOWN 5.0 /* percent: of the best setting that loses at most so much time */
/*
 * The setting that saves most energy by its mean, and clearly saves some, among those whose slowdown, upper end of
 * its 95 % interval, is at most JM_SLOWDOWN. A tie: there are others within the limit whose saving cannot be
 * distinguished from it. Without text.
 */
void jm_verdict_within(
	const struct jm_grouping *g, const struct jm_group_series *s, struct jm_verdict *ret);
/* Is the point the leading one of that, or among those that cannot be distinguished from it? */
bool jm_verdict_within_tied(const struct jm_grouping *g, const struct jm_verdict *v, int point);
/* Is the point among those that cannot be distinguished from the leading one? */
bool jm_verdict_tied(const struct jm_grouping *g, const struct jm_verdict *v, int point);

#endif
