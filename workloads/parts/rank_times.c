/* SPDX-License-Identifier: Apache-2.0 */
#include "rank_times.h"
#include "base/text/json.h"

#include <math.h>

static double known(double seconds)
{
	return isnan(seconds) ? 0 : seconds;
}

static double waits_of(const struct jm_rank_time *t)
{
	return known(t->exposed) + known(t->exposed_tp);
}

/* NAN = unknown. Waits and steps are of the same time; what a device rounds may exceed it. */
static double computed(const struct jm_rank_time *t)
{
	double rest = t->step - waits_of(t) - known(t->stage);

	return rest >= 0 ? rest : NAN;
}

/* The shortest waits of `n` ranks from `first` on. */
static double least_of(const struct jm_rank_time *time, int first, int n)
{
	double least = INFINITY;

	for (int r = first; r < first + n; r++)
		least = fmin(least, waits_of(&time[r]));
	return least;
}

/* Transfers went on while the rank computed. */
static double overlapped(const struct jm_account_time *t)
{
	return fmax(0, t->busy - t->exposed);
}

static double overlapped_sum(const struct jm_rank_time *t)
{
	double sum = 0;

	for (int k = 0; k < JM_ACCOUNT_KINDS_N; k++)
		sum += known(overlapped(&t->kind[k]));
	return sum;
}

static void add_kind(json_t *list, const char *name, const struct jm_account_time *t)
{
	json_t *one = json_object();

	jm_json_set_text(&one, "kind", name);
	jm_json_set_number(&one, "busy_s", t->busy);
	jm_json_set_number(&one, "exposed_s", t->exposed);
	jm_json_set_number(&one, "overlapped_s", overlapped(t));
	json_array_append_new(list, one);
}

/* Of what the rank exchanges; with other stages nothing is computed beside it. */
static json_t *kinds_json(const struct jm_rank_time *t)
{
	json_t *list = json_array();

	for (int k = 0; k < JM_ACCOUNT_KINDS_N; k++)
		if (!isnan(t->kind[k].busy))
			add_kind(list, jm_account_name((enum jm_account_kind)k), &t->kind[k]);
	if (!isnan(t->stage))
		add_kind(list, "stage", &(struct jm_account_time){t->stage, t->stage});
	return list;
}

json_t *jm_rank_times_json(const struct jm_rank_time *time, int world, int each)
{
	json_t *list = json_array();

	for (int r = 0; r < world; r++) {
		const struct jm_rank_time *t = &time[r];
		json_t *one = json_object();

		jm_json_set_number(&one, "step_s", t->step);
		jm_json_set_number(&one, "compute_s", computed(t));
		jm_json_set_number(&one, "exposed_s", t->exposed);
		jm_json_set_number(&one, "tp_exposed_s", t->exposed_tp);
		if (!isnan(t->stage))
			jm_json_set_number(&one, "stage_s", t->stage);
		jm_json_set_number(&one, "late_ranks_s",
			isnan(t->step) ? NAN : waits_of(t) - least_of(time, r - r % each, each));
		jm_json_set_number(&one, "overlapped_s", isnan(t->step) ? NAN : overlapped_sum(t));
		jm_json_set(&one, "kinds", kinds_json(t));
		json_array_append_new(list, one);
	}
	return list;
}

double jm_rank_times_concurrent(const struct jm_rank_time *time, int world)
{
	double sum = 0;

	for (int r = 0; r < world; r++)
		sum += overlapped_sum(&time[r]) / time[r].step;
	return sum / world;
}
