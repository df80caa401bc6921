/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of items that a command prints: is each the amount since the one before, or the total so
 * far?
 *
 * The rule takes numbers for totals where they count up. They do where a run of them, which ends
 * where a number is smaller than the one before,
 * - rises by equal steps from 0 or from that step: 1, 2, 3 or 0, 1, 2 or 100, 200, 300. After three
 *   steps the last one may
 *   be smaller or be printed again (32, 64, 96, 100, 100); where the step is 1, each number may be
 *   printed again;
 * - rises by equal steps from elsewhere, in five numbers or more, and no number is smaller than the
 *   one before: the count of
 *   an earlier run goes on, and its first number stands for one step (5001 ... 5005 are 5 items);
 * - has eight numbers or more, which only rise, at a steady pace from 0: the 2nd, 4th, 8th, 16th
 *   ... number is at least 1 / 0.7
 *   of the 1st, 2nd, 4th, 8th ..., and from the 8th on at most 1 / 0.3.
 * A count that begins again counts from 0; each of its runs but the last has three numbers or more.
 * All other numbers are amounts: 40, 20 and 64, 64, 64 and 100, 101, 105.
 */
#ifndef JM_ITEM_KIND_H
#define JM_ITEM_KIND_H

#include "measure/session/progress.h"

enum jm_item_kind { JM_ITEMS_BY_RULE, JM_ITEMS_AMOUNT, JM_ITEMS_TOTAL };
extern const char
	*const jm_item_kind_names[]; /* "amount", "total", NULL: of the two that are no rule */
/* NULL: by rule. */
enum jm_item_kind jm_item_kind_of(const char *name);

struct jm_item_run {
	long n, steps;	    /* numbers; full steps, the one from 0 included */
	double first, step; /* step: 0 = there is no rise yet */
	double octave;	    /* the number at the last power of two */
	bool even, paced;   /* nothing contradicts equal steps, a steady pace */
	bool early,
		repeated; /* a number was printed again: the first one before any rise, any one */
	bool ending;	  /* no full step may follow */
};

/* What has been seen of the numbers; zeroed before the first. */
struct jm_item_rule {
	struct jm_item_run run;	   /* the current one */
	struct jm_item_run before; /* the run before it */
	double begin[3], last;
	long n, falls, rises;
	bool no_count; /* a run that ended was no count */
};

/* AMOUNT or TOTAL, by the numbers so far. */
enum jm_item_kind jm_item_rule_kind(const struct jm_item_rule *r);
/* Could a reader take them for either? They never fall and rise at least once. */
bool jm_item_rule_doubtful(const struct jm_item_rule *r);

/* Both sums of the numbers, of the command and of each phase of its session, until the kind is
 * known. */
struct jm_item_sum {
	double amount, total; /* NAN = none was credited */
};
struct jm_item_sums {
	enum jm_item_kind given;
	struct jm_item_rule rule;
	struct jm_tally amount, total;
	struct jm_item_sum *phase; /* by its index in the session */
	int n_phases, first[2];	   /* first: the phases of the first number; -1 = none */
	bool lost;		   /* memory ran out: the sums are unknown */
};
void jm_item_sums_init(struct jm_item_sums *s, enum jm_item_kind given);
/* phases: the two that the items are credited to; -1 = none. */
void jm_item_sums_add(struct jm_item_sums *s, const struct jm_mark *mark, const int phases[2]);
enum jm_item_kind jm_item_sums_kind(const struct jm_item_sums *s);
/* Of the kind that is taken for the numbers so far. */
struct jm_tally jm_item_sums_tally(const struct jm_item_sums *s);
double jm_item_sums_phase(const struct jm_item_sums *s, int phase); /* NAN = none */
void jm_item_sums_done(struct jm_item_sums *s);

#endif
