/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for the setting of one knob, or of two, with the lowest objective, from visits that
 * somebody else makes: no clock, no sensor, no knob.
 *
 *	jm_search_next	which setting to hold during the next visit
 *	jm_search_add	what came of that visit
 *
 * First a coarse grid, there and back, so that a steady drift falls out of every difference: the
 * setting found, both ends of the range, and two points between them in the golden ratio. Where
 * nothing is better than the setting found by more than JM_TUNE_FLAT, the curve is flat, and the
 * search ends. Otherwise a golden section goes on between the neighbours of the best point. Two
 * settings are visited in turns until their interval (95 %) separates them, or is narrower than
 * JM_TUNE_ALIKE, or JM_TUNE_VISITS is reached. In the end the best is compared with the setting
 * found by visits of both made for it, from which the gain is known; the best is held if it is
 * better, the setting found otherwise.
 *
 * With two knobs the grid has both ends and the middle of each, and the setting found. From its
 * best point on, a golden section follows one knob while the other stands still, then the other,
 * and both again within a quarter of the range, until a line brings no other best point.
 *
 * While a setting is held, visits go on. Where energy or time per item have moved, both settings
 * are compared again, and where the searches so far took less than JM_TUNE_SHARE of the time, the
 * search begins anew.
 *
 * The objective should have one minimum over the knob; where it has several, one of them may be
 * found, which is then still better than the setting found.
 */
#ifndef JM_SEARCH_H
#define JM_SEARCH_H

#include "search_range.h"

extern const char
	*const jm_stage_names[]; /* "coarse", "golden", "confirm", "hold", NULL: of enum jm_stage */

struct jm_search_options {
	struct jm_objective objective;
	struct jm_search_range knob[JM_TUNE_KNOBS];
	int n;		    /* knobs */
	double limit_watts; /* of the setting found, all devices together; for ZEUS */
	double within_s; /* for a search; then the best so far is compared with the setting found */
};

enum jm_choice {
	JM_CHOICE_OPEN,	   /* the search has not ended */
	JM_CHOICE_BETTER,  /* than the setting found */
	JM_CHOICE_FLAT,	   /* no setting differs by more than JM_TUNE_FLAT: the setting found */
	JM_CHOICE_FOUND,   /* no other setting is better than the setting found */
	JM_CHOICE_UNCLEAR, /* the best is not separated from the setting found, which is held */
};
extern const char *const jm_choice_names[]; /* "open", "better", "flat", "found", "unclear", NULL */

struct jm_search_result {
	enum jm_choice choice;
	struct jm_tune_setting best; /* that is held, or the best so far */
	/* of the best other setting relative to the setting found, from the last comparison of
	 * both; NAN: there was none */
	struct jm_tune_gain objective, energy, time;
	int searches, drifts, outliers;
	double search_s, hold_s;
};

struct jm_search;

/* JM_ERANGE: the knob has no range, or less than JM_TUNE_SETTINGS values in it. */
int jm_search_new(
	const struct jm_search_options *options, struct jm_search **ret, struct jm_err *err);
void jm_search_free(struct jm_search *s); /* takes NULL */
struct jm_tune_setting jm_search_next(const struct jm_search *s);
enum jm_stage jm_search_stage(const struct jm_search *s);
/* A visit of jm_search_next. JM_ERANGE: it has no objective (items, seconds or joules are not
 * positive numbers), and is ignored. */
int jm_search_add(struct jm_search *s, const struct jm_visit *visit, struct jm_err *err);
void jm_search_result(const struct jm_search *s, struct jm_search_result *ret);
/* Those of searches; visits of the setting that is held are counted in the result alone. */
int jm_search_visits(const struct jm_search *s);
const struct jm_visit *jm_search_visit(const struct jm_search *s, int i);
/* Does it differ so much from others of its setting that it counts for nothing? */
bool jm_search_visit_aside(const struct jm_search *s, int i);
/* The objective of a visit relative to the visits of the setting found in the same search; NAN:
 * there are none. */
struct jm_tune_gain jm_search_visit_cost(const struct jm_search *s, int visit);

#endif
