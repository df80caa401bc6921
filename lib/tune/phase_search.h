/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for one value of a knob per class of phases, from visits that somebody else makes: no
 * clock, no sensor, no knob.
 *
 *	jm_phase_search_next	the value for the phase that begins
 *	jm_phase_search_add	what came of it
 *
 * Each phase goes through all values there and back, so that a steady drift falls out of every
 * difference. Then, of all choices of one value per class, the one is taken whose sums of energy
 * and time over the phases have the lowest objective: the objective is that of the whole work, so
 * that a phase may be slower if another one is faster. The choice is compared with the setting
 * found in visits made for it, in turns, from which alone the gain is known, and is held if it is
 * better.
 */
#ifndef JM_PHASE_SEARCH_H
#define JM_PHASE_SEARCH_H

#include "phase_class.h"
#include "search.h"

#define JM_PHASES_MAX	    32	 /* names that are told apart */
#define JM_PHASE_VALUES_MAX 9	 /* of the knob; the first one stands for the setting found */
#define JM_PHASE_SHORT	    3	 /* latencies: shorter phases are not switched */
#define JM_PHASE_FOUND	    0	 /* the value of the setting found */
#define JM_PHASE_KEEP	    (-1) /* a phase that is not switched */

/* Of visits; per unit: item, or where there are none, occurrence. */
struct jm_phase_sum {
	int n;
	double joules, seconds;			/* sums over the visits, each per unit */
	double joules_squared, seconds_squared; /* of these */
};

struct jm_phase_seen {
	char name[64];
	enum jm_phase_class class;
	enum jm_class_origin class_origin;
	bool has_items;
	struct jm_phase_sum value[JM_PHASE_VALUES_MAX]; /* visits of the grid */
	struct jm_phase_sum chosen, found;		/* of the comparison */
	int occurrences, kept; /* kept: not switched, because they were too short */
	double seconds;	       /* of all occurrences */
	int switched;	       /* occurrences whose energy is known and that were not kept */
	double switched_units, switched_joules, switched_s;
	/* all its values were seen, and two visits of either side of the comparison when that has
	 * ended: takes part in the choice; else the setting found is held in it */
	bool counts;
};

struct jm_phase_search_options {
	struct jm_objective objective;
	int n_values;
	double limit_watts; /* as of search.h */
	double within_s;    /* for all values, and again for the comparison */
};

enum jm_phase_stage { JM_PHASE_GRID, JM_PHASE_CONFIRM, JM_PHASE_HOLD };

struct jm_phase_search_result {
	enum jm_choice choice;
	int value[JM_CLASSES]; /* that was chosen; JM_PHASE_FOUND where nothing is known */
	int one;	       /* the best value for all phases alike */
	bool held;	       /* these values are, and not the setting found */
	struct jm_tune_gain objective, energy, time;
	double search_s, saved, saved_half; /* J */
	int kept;			    /* phases that were too short */
};

struct jm_phase_search;

int jm_phase_search_new(const struct jm_phase_search_options *options, struct jm_phase_search **ret,
	struct jm_err *err);
void jm_phase_search_free(struct jm_phase_search *s); /* takes NULL */
/* The phase of that name, made where there is none; -1: there are too many. */
int jm_phase_search_phase(struct jm_phase_search *s, const char *name);
void jm_phase_search_classify(struct jm_phase_search *s, int phase, enum jm_phase_class class,
	enum jm_class_origin origin);
/* latency_s: from the begin of a phase until a new value is in force. */
int jm_phase_search_next(const struct jm_phase_search *s, int phase, double latency_s);
/* items, joules: NAN = unknown. value: that was in force; JM_PHASE_KEEP: the phase was not
 * switched, because it is too short. */
void jm_phase_search_add(struct jm_phase_search *s, int phase, int value, double seconds,
	double items, double joules);
enum jm_phase_stage jm_phase_search_stage(const struct jm_phase_search *s);
int jm_phase_search_phases(const struct jm_phase_search *s);
const struct jm_phase_seen *jm_phase_search_at(const struct jm_phase_search *s, int phase);
void jm_phase_search_result(const struct jm_phase_search *s, struct jm_phase_search_result *ret);

#endif
