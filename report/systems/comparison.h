/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two sets of records side by side: of each work that both have, the ratio in time, power and
 * energy with its 95 % interval and a test, and whether that allows a conclusion. Paired by block
 * where the two ran in the same blocks of one sweep, else by Welch's test.
 */
#ifndef JM_COMPARISON_H
#define JM_COMPARISON_H

#include <jansson.h>

#include "base/stat/stat_compare.h"
#include "result/metric.h"

/* name, title, unit (@ = the item), needs energy */
#define JM_COMPARED(X)                                                                             \
	X(TIME, "time", "s/@", false)                                                              \
	X(POWER, "power", "W", true)                                                               \
	X(ENERGY, "energy", "J/@", true)                                                           \
	X(COST, "cost", "1/1e6 @", true) /* of purchase and electricity, where they are given */
enum jm_compared {
#define X(name, text, unit, energy) JM_COMPARED_##name,
	JM_COMPARED(X)
#undef X
		JM_COMPARED_COUNT
};
extern const char *const jm_compared_names[]; /* NULL-terminated */

struct jm_compare_line {
	double mean_a, mean_b; /* geometric */
	struct jm_comparison c;
	double p_rank; /* of Mann and Whitney's test; NAN: paired, or one side is empty */
	bool paired;
	const char *why_not; /* half a sentence; NULL = the interval decides */
	bool hard;	     /* more repeats would not change that */
};

struct jm_compare_row {
	char title[200], item[32];
	bool simulated;		/* both sides are */
	int failed_a, failed_b; /* runs without figures */
	struct jm_compare_line line[JM_COMPARED_COUNT];
};

/* One side of a comparison. */
struct jm_compare_side {
	json_t *records;   /* array */
	const char *file;  /* where they are from */
	const char *given; /* as the user named it */
};

/* What the machine of each side costs. The cost of an item is its share of the time until the
 * machine is written off, and its energy. */
struct jm_compare_costs {
	double purchase[2]; /* 0 = no costs are compared */
	double years;
	double price, pue;    /* per kWh, 0 = not given; at least 1 */
	const char *currency; /* NULL = not named */
	const char *source;   /* of the figures */
};

struct jm_compare {
	struct jm_compare_costs costs;
	struct jm_compare_row *row;
	int n;
	int only_a, only_b; /* works that the other side does not have */
	const char *note;   /* NULL = none */
};

/* ignore: names of parameters that the sides differ in by choice, NULL-terminated; "settings" = all
 * of these. */
int jm_compare_make(const struct jm_compare_side side[2], const char *const *ignore,
	const struct jm_compare_costs *costs, struct jm_compare *ret, struct jm_err *err);
/* How many of the metrics are compared: the cost is the last one, and is left out where none is
 * given. */
int jm_compared_count(const struct jm_compare *c);
void jm_compare_done(struct jm_compare *c);
/* "higher", "lower", "unclear", "no verdict" */
const char *jm_compare_verdict(const struct jm_compare_line *l);

#endif
