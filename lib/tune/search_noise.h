/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The visits of a search and what they say: means, their scatter, differences with intervals; and
 * the watch over a setting that is held. Part of search.h.
 */
#ifndef JM_SEARCH_NOISE_H
#define JM_SEARCH_NOISE_H

#include "visit.h"

#define JM_SEEN_FOUND 0 /* the point of the setting that was found */

struct jm_seen_visit {
	struct jm_visit visit;
	int point, search; /* search: its first visit */
	bool aside;	   /* it differs from the others of its point, and counts for nothing */
};

struct jm_seen {
	struct jm_objective objective;
	double limit_watts;
	struct jm_tune_setting *point;
	int n_points;
	struct jm_seen_visit *visit;
	int n, since; /* since: the first visit of this search */
};

enum jm_seen_what { JM_SEEN_COST, JM_SEEN_ENERGY, JM_SEEN_TIME };

/* found: its values, for the place on the curve. */
int jm_seen_init(struct jm_seen *s, const struct jm_objective *objective, double limit_watts,
	const double found[JM_TUNE_KNOBS], struct jm_err *err);
void jm_seen_done(struct jm_seen *s);
/* A search begins: what was seen before counts no more. */
void jm_seen_begin(struct jm_seen *s);
/* The point of these values, or one that is at most `within` of each away; JM_ENOMEM. */
int jm_seen_point(struct jm_seen *s, const double value[JM_TUNE_KNOBS],
	const double within[JM_TUNE_KNOBS], struct jm_err *err);
/*
 * ret_again: the visit differs from the earlier ones of its point by more than JM_TUNE_ODD, as
 * where the work was interrupted: it is set aside, and to be made again. If that one differs, too,
 * the two agree with each other: then they count, and the earlier one is set aside, if there is
 * only one.
 */
int jm_seen_add(struct jm_seen *s, const struct jm_visit *visit, int point, bool *ret_again,
	struct jm_err *err);
/* Visits of the point from the visit `first` on. */
int jm_seen_count(const struct jm_seen *s, int point, int first);
/*
 * Mean logarithm of point a less that of point b, from the visit `first` on, and half its 95 %
 * interval: Student's t with the scatter of all points of this search around their means; a visit
 * counts as at least as uncertain as the sampling of its energy. half: infinite where nothing is
 * known of the scatter. log: NAN where one was not visited.
 */
struct jm_tune_gain jm_seen_compare(
	const struct jm_seen *s, int a, int b, int first, enum jm_seen_what what);
/* The point of this search with the lowest objective; few visits count against a point. */
int jm_seen_best(const struct jm_seen *s);
struct jm_tune_gain jm_seen_cost(const struct jm_seen *s, int visit);

/* Energy and time per item of the last visits of a held setting, against those of the first. */
#define JM_HOLD_VISITS 3
struct jm_hold_watch {
	double first[2], last[JM_HOLD_VISITS][2]; /* logarithms of e, d */
	int n;
};
void jm_hold_watch_begin(struct jm_hold_watch *w);
/* True where one of them has moved by more than JM_TUNE_DRIFT, in all of the last visits. */
bool jm_hold_watch_add(struct jm_hold_watch *w, const struct jm_visit *visit);

#endif
