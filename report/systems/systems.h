/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All systems that did one work, as rows of a table: a machine or simulated node, device and
 * options, at each of its settings, per device. Also the ratios of the figures that papers report
 * of the same network.
 */
#ifndef JM_SYSTEMS_H
#define JM_SYSTEMS_H

#include "comparison.h"
#include "report/model/grouping.h"

/* name, unit (@ = the item), +1: more is better, the metric of a record and of a published row,
 * [enum jm_compared], whose ratio is the reciprocal where `inverse` */
#define JM_SYSTEM_METRICS(X)                                                                       \
	X(THROUGHPUT, "throughput", "@/s", 1, "items_per_s", JM_COMPARED_TIME, true)               \
	X(POWER, "power", "W", -1, "watts", JM_COMPARED_POWER, false)                              \
	X(EFFICIENCY, "efficiency", "@/J", 1, "items_per_joule", JM_COMPARED_ENERGY, true)
enum jm_system_metric {
#define X(name, text, unit, better, key, compared, inverse) JM_SYSTEM_##name,
	JM_SYSTEM_METRICS(X)
#undef X
		JM_SYSTEM_METRIC_COUNT
};
extern const char *const jm_system_metric_names[]; /* NULL-terminated */
struct jm_system_metric_row {
	const char *unit;
	int better;
	const char *key; /* in a published row */
	enum jm_compared compared;
	bool inverse;
};
extern const struct jm_system_metric_row jm_system_metrics[]; /* [enum jm_system_metric] */

struct jm_estimate {
	double mean, low, high; /* 95 % interval; NAN = unknown */
};

struct jm_system {
	const json_t *record; /* its first */
	const struct jm_group_series *series;
	const struct jm_group_point *point;
	char name[160], setting[128];
	int work;
	double devices;	  /* 1 where no number is known */
	double cap_watts; /* of each device, the same; NAN = none was set, or it is the reference */
	bool simulated;
	struct jm_estimate value[JM_SYSTEM_METRIC_COUNT]; /* per device */
};

/* A system against a published row. */
struct jm_system_pair {
	int system;
	const json_t *row;
	struct jm_compare_line line[JM_COMPARED_COUNT]; /* A is the published one, B the system */
};

struct jm_systems_work {
	char title[200], item[32];
	int first, n;		 /* systems, sorted */
	const json_t *published; /* the figures of papers; NULL = none, or not requested */
	int first_pair, n_pairs;
};

struct jm_systems {
	struct jm_grouping g;
	json_t *published;
	struct jm_system *system;
	struct jm_systems_work *work;
	struct jm_system_pair *pair;
	int n, n_works, n_pairs;
	enum jm_system_metric sort;
};

/* records must outlive it. */
int jm_systems_make(const json_t *records, enum jm_system_metric sort, bool with_published,
	struct jm_systems *ret, struct jm_err *err);
void jm_systems_done(struct jm_systems *s);
/* The system's figure by that of the published row, with its interval. */
struct jm_estimate jm_system_ratio(const struct jm_system_pair *p, enum jm_system_metric metric);
/* Is row i of the published ones that of its device which fits the system best? */
bool jm_systems_is_best_row(const json_t *rows, size_t i, const struct jm_system *s);
/* "H100 94 GB at 300 W", "Graphcore GC200 IPU, batch 2048" */
void jm_systems_row_name(const json_t *row, char *out, size_t size);

#endif
