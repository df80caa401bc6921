/* SPDX-License-Identifier: Apache-2.0 */
/* What a report says about soft controls, without which a reader would take it for work at full
 * speed, or under a cap. */
#include "soft_control.h"
#include "base/text/json.h"
#include "series_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NO_LIMIT   "; this is a soft control, no limit that a driver enforces"
#define HOLDS_MOST 8 /* values of --hold-power that are listed */

enum state { HELD, MISSED, NOT_REACHED, UNKNOWN, STATES };

static const char *const words[STATES] = {"held", "missed", "not reached", "unknown"};

/* The runs that were to hold these watts. */
struct hold {
	double wanted;
	int point; /* the first that has such a run */
	int runs[STATES];
	double missed; /* watts of the run that missed them by most */
};

/* Of a run that succeeded and is a row of the series; NULL: none. */
static const json_t *soft_of(const struct jm_group_series *s, const struct jm_group_case *c)
{
	int row = c->point - s->first_point;

	return c->ok && row >= 0 && row < s->n_points ? json_object_get(c->record, "soft") : NULL;
}

static enum state state_of(const json_t *soft)
{
	const char *word = jm_json_text(soft, "state");
	enum state state = HELD;

	while (state < UNKNOWN && strcmp(word, words[state]) != 0)
		state++;
	return state;
}

static void count(struct hold *h, const json_t *soft, int point)
{
	double watts = jm_json_real(json_object_get(soft, "watts"));
	enum state state = state_of(soft);

	h->point = point < h->point ? point : h->point;
	h->runs[state]++;
	if (state == MISSED && !(fabs(watts - h->wanted) <= fabs(h->missed - h->wanted)))
		h->missed = watts;
}

static int by_point(const void *a, const void *b)
{
	const struct hold *x = a, *y = b;

	return (x->point > y->point) - (x->point < y->point);
}

/* For the caller to free, in the order of the rows; NULL: there are none. */
static struct hold *find_holds(
	const struct jm_grouping *g, const struct jm_group_series *s, int *ret_n)
{
	struct hold *hold = NULL, *grown;
	int n = 0, k;

	for (int i = 0; i < g->n_cases; i++) {
		const json_t *soft = soft_of(s, &g->c[i]);
		double wanted = jm_json_real(json_object_get(soft, "hold_watts"));

		if (!(wanted > 0))
			continue;
		for (k = 0; k < n && hold[k].wanted != wanted; k++)
			;
		if (k == n) {
			grown = reallocarray(hold, (size_t)n + 1, sizeof(*hold));
			if (!grown)
				continue;
			hold = grown;
			hold[n++] = (struct hold){
				.wanted = wanted, .point = g->c[i].point, .missed = NAN};
		}
		count(&hold[k], soft, g->c[i].point);
	}
	if (n)
		qsort(hold, (size_t)n, sizeof(*hold), by_point);
	*ret_n = n;
	return hold;
}

/* "300 W held", "50 W missed by +41 % (70.5 W)", "400 W held in 8 and not reached in 2 of 10
 * runs". */
static size_t write_hold(const struct hold *h, char *out, size_t size)
{
	size_t used = (size_t)snprintf(out, size, "%.4g W", h->wanted);
	int kinds = 0, runs = 0;

	for (int i = 0; i < STATES; i++) {
		kinds += h->runs[i] > 0;
		runs += h->runs[i];
	}
	for (int i = 0, shown = 0; i < STATES && used < size; i++) {
		if (!h->runs[i])
			continue;
		used += (size_t)snprintf(out + used, size - used, "%s %s", shown++ ? " and" : "",
			i == UNKNOWN ? "with unknown power" : words[i]);
		if (i == MISSED && !isnan(h->missed) && used < size)
			used += (size_t)snprintf(out + used, size - used, " by %s%+.3g %% (%.4g W)",
				h->runs[i] > 1 ? "up to " : "", 100 * (h->missed / h->wanted - 1),
				h->missed);
		if (kinds > 1 && used < size)
			used += (size_t)snprintf(out + used, size - used, " in %d", h->runs[i]);
	}
	if (kinds > 1 && used < size)
		used += (size_t)snprintf(out + used, size - used, " of %d runs", runs);
	return used;
}

bool jm_text_held(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	int n, shown;
	struct hold *hold = find_holds(g, s, &n);
	size_t used = (size_t)snprintf(out, size,
		"--hold-power: pauses between steps lower the mean power to the value asked for");

	for (shown = 0; shown < n && shown < HOLDS_MOST && used < size; shown++) {
		used += (size_t)snprintf(out + used, size - used, "%s ", shown ? "," : ":");
		if (used < size)
			used += write_hold(&hold[shown], out + used, size - used);
	}
	if (n > shown && used < size)
		used += (size_t)snprintf(out + used, size - used, ", and %d more", n - shown);
	if (used < size)
		snprintf(out + used, size - used, NO_LIMIT);
	free(hold);
	return n > 0;
}

const char *jm_text_share(const struct jm_grouping *g, const struct jm_group_series *s)
{
	for (int i = 0; i < g->n_cases; i++)
		if (json_object_get(soft_of(s, &g->c[i]), "units"))
			return "--sm-share: the work ran on a part of the "
			       "multiprocessors" NO_LIMIT;
	return NULL;
}

json_t *jm_soft_json(const struct jm_grouping *g, const struct jm_group_series *s)
{
	const char *share = jm_text_share(g, s);
	json_t *out = json_array();
	char text[900];

	if (jm_text_held(g, s, text, sizeof(text)))
		json_array_append_new(out, json_string(text));
	if (share)
		json_array_append_new(out, json_string(share));
	return out;
}
