/* SPDX-License-Identifier: Apache-2.0 */
#include "tuned_knob.h"
#include "guard/guard_requests.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the knob of a tuner.");
}

/* ---- which devices, which values ---- */

/* The devices that are meant, and the range that all of them have. */
static int pick(struct jm_tuned_knob *k, const struct jm_setting *target, struct jm_err *err)
{
	const struct jm_knobs *knobs = jm_guard_knobs(k->guard);

	k->index = calloc((size_t)knobs->n + 1, sizeof(*k->index));
	k->now = calloc((size_t)knobs->n + 1, sizeof(*k->now));
	k->of_found = calloc((size_t)knobs->n + 1, sizeof(*k->of_found));
	k->ordered = calloc((size_t)knobs->n + 1, sizeof(*k->ordered));
	if (!k->index || !k->now || !k->of_found || !k->ordered)
		return no_memory(err);
	k->min = -INFINITY;
	k->max = INFINITY;
	for (int i = 0; i < knobs->n; i++) {
		const struct jm_knob *knob = &knobs->knob[i];

		if (!jm_setting_matches(target, knob))
			continue;
		k->index[k->n++] = i;
		k->min = fmax(k->min, knob->min);
		k->max = fmin(k->max, knob->max);
		k->step = fmax(k->step, knob->step);
		k->settle_s = fmax(k->settle_s, knob->settle_s);
	}
	k->knob = &knobs->knob[k->index[0]];
	if (k->knob->kind == JM_KNOB_CHOICE)
		return jm_err_set(err, JM_ENOSUP,
			"The values of %s are words, between which there is no search; 'joulemark "
			"run --set %s=...' compares them.",
			k->name, k->name);
	return 0;
}

/* Values between which is searched: they bound the range, and an even distance between them is the
 * step. */
static int narrow(struct jm_tuned_knob *k, const char *text, struct jm_err *err)
{
	struct jm_axis axis;
	double min = INFINITY, max = -INFINITY, step = 0;
	int rc = jm_axis_parse(text, jm_guard_knobs(k->guard), &axis, err);

	if (rc)
		return rc;
	for (int i = 0; i < axis.n; i++) {
		double value = jm_knob_value_number(&axis.value[i]);
		double last = i ? jm_knob_value_number(&axis.value[i - 1]) : NAN;

		min = fmin(min, value);
		max = fmax(max, value);
		step = i ? fmax(step, fabs(value - last)) : step;
		if (isnan(value))
			rc = jm_err_set(err, JM_EUSAGE,
				"--knob %s: a search needs numbers, as in %s=200:700+25W.", text,
				k->name);
	}
	if (!rc && axis.n < JM_TUNE_SETTINGS)
		rc = jm_err_set(err, JM_EUSAGE,
			"--knob %s names %d values; a search needs at least %d, as in "
			"%s=200:700+25W, or the name of the knob alone.",
			text, axis.n, JM_TUNE_SETTINGS, k->name);
	jm_axis_done(&axis);
	if (rc)
		return rc;
	k->min = k->low = min;
	k->max = k->high = max;
	k->step = step;
	return 0;
}

static int take_found(struct jm_tuned_knob *k, struct jm_err *err)
{
	const struct jm_knobs *knobs = jm_guard_knobs(k->guard);
	int rc = jm_guard_get(k->guard, k->now, err);

	k->found = -INFINITY;
	for (int i = 0; !rc && i < k->n; i++) {
		const struct jm_applied *now = &k->now[k->index[i]];
		struct jm_setting *s = &k->of_found[i];
		double number = jm_knob_value_number(&now->accepted);

		if (*now->why)
			return jm_err_set(err, JM_EIO, "%s", now->why);
		*s = (struct jm_setting){.value = now->accepted};
		memcpy(s->knob, k->name, sizeof(s->knob));
		memcpy(s->selector, knobs->knob[k->index[i]].device, sizeof(s->selector));
		k->found = isnan(number) || isnan(k->found) ? NAN : fmax(k->found, number);
		k->found_sum += number;
	}
	return rc;
}

int jm_tuned_knob_open(
	struct jm_tuned_knob *k, struct jm_guard *guard, const char *text, struct jm_err *err)
{
	size_t n = strcspn(text, "=");
	struct jm_setting target;
	char name[sizeof(k->name) + JM_ID_MAX];
	int rc;

	*k = (struct jm_tuned_knob){.guard = guard, .low = -INFINITY, .high = INFINITY};
	snprintf(name, sizeof(name), "%.*s", (int)n, text);
	rc = jm_target_parse(name, jm_guard_knobs(guard), &target, err);
	if (rc)
		return rc;
	memcpy(k->name, target.knob, sizeof(k->name));
	memcpy(k->selector, target.selector, sizeof(k->selector));
	rc = pick(k, &target, err);
	if (!rc && text[n])
		rc = narrow(k, text, err);
	if (!rc)
		rc = take_found(k, err);
	if (rc)
		jm_tuned_knob_close(k);
	return rc;
}

void jm_tuned_knob_close(struct jm_tuned_knob *k)
{
	free(k->index);
	free(k->now);
	free(k->of_found);
	free(k->ordered);
	k->index = NULL;
	k->now = NULL;
	k->of_found = NULL;
	k->ordered = NULL;
}

/* ---- setting ---- */

static bool found_is_known(const struct jm_tuned_knob *k)
{
	bool known = true;

	for (int i = 0; i < k->n; i++)
		known = known && jm_knob_value_known(&k->of_found[i].value);
	return known;
}

/* What the devices accepted; of those that were not set nothing new is known. */
static void note(struct jm_tuned_knob *k, int n_applied)
{
	for (int i = 0; i < k->n; i++) {
		if (!n_applied)
			k->ordered[i] = jm_knob_value_of(NAN);
		for (int a = 0; a < n_applied; a++)
			if (k->now[a].knob == k->index[i])
				k->ordered[i] = k->now[a].accepted;
	}
}

int jm_tuned_knob_set_found(struct jm_tuned_knob *k, struct jm_err *err)
{
	int n = 0, rc;

	if (!found_is_known(k)) {
		note(k, 0);
		return jm_guard_restore(k->guard, err);
	}
	rc = jm_guard_set(k->guard, k->of_found, k->n, k->now, &n, err);
	if (!rc)
		note(k, n);
	return rc;
}

int jm_tuned_knob_set(struct jm_tuned_knob *k, double value, struct jm_err *err)
{
	struct jm_setting s = {.value = k->knob->kind == JM_KNOB_RANGE
						? jm_knob_value_between(k->knob->min, value)
						: jm_knob_value_of(value)};
	int n = 0, rc;

	memcpy(s.knob, k->name, sizeof(s.knob));
	memcpy(s.selector, k->selector, sizeof(s.selector));
	rc = jm_guard_set(k->guard, &s, 1, k->now, &n, err);
	if (!rc)
		note(k, n);
	return rc;
}

/* What each device holds, by what it enforces where it says that. */
static int read_each(struct jm_tuned_knob *k, double *ret, double *ret_sum, struct jm_err *err)
{
	int rc = jm_guard_get(k->guard, k->now, err);

	*ret_sum = 0;
	for (int i = 0; !rc && i < k->n; i++) {
		const struct jm_applied *now = &k->now[k->index[i]];
		double enforced = jm_knob_value_number(&now->enforced);

		ret[i] = isnan(enforced) ? jm_knob_value_number(&now->accepted) : enforced;
		*ret_sum += ret[i];
	}
	return rc;
}

/* Sets the devices whose number is to fall, or those whose number is to rise, by `less` less
 * each. */
static int set_some(struct jm_tuned_knob *k, const double *now, const double *number, bool falls,
	double less, struct jm_err *err)
{
	struct jm_setting *some = calloc((size_t)k->n + 1, sizeof(*some));
	int n = 0, n_applied = 0, rc = some ? 0 : no_memory(err);

	for (int i = 0; !rc && i < k->n; i++) {
		double to = number[i] > now[i] ? fmax(now[i], number[i] - less) : number[i];

		if (falls ? !(to < now[i]) : !(to > now[i]))
			continue;
		some[n] = k->of_found[i];
		some[n++].value = jm_knob_value_of(to);
	}
	if (!rc && n)
		rc = jm_guard_set(k->guard, some, n, k->now, &n_applied, err);
	if (!rc && n)
		note(k, n_applied);
	free(some);
	return rc;
}

int jm_tuned_knob_lower(
	struct jm_tuned_knob *k, const double *number, double *ret_now, struct jm_err *err)
{
	double sum;
	int rc = read_each(k, ret_now, &sum, err);

	if (!rc)
		rc = set_some(k, ret_now, number, true, 0, err);
	return rc ? rc : read_each(k, ret_now, &sum, err);
}

int jm_tuned_knob_raise(
	struct jm_tuned_knob *k, const double *number, double most, double *now, struct jm_err *err)
{
	double over = -most, sum;
	int rc;

	for (int i = 0; i < k->n; i++)
		over += fmax(now[i], number[i]);
	rc = set_some(k, now, number, false, ceil(fmax(over, 0)), err);
	if (!rc)
		rc = read_each(k, now, &sum, err);
	if (!rc && sum > most + 1e-6 * most)
		rc = jm_err_set(err, JM_ERANGE,
			"The devices enforce %g %s together, which is more than %g.", sum,
			k->knob->unit, most);
	return rc;
}

int jm_tuned_knob_moved(struct jm_tuned_knob *k, bool *ret, struct jm_err *err)
{
	int rc = jm_guard_get(k->guard, k->now, err);

	*ret = false;
	for (int i = 0; !rc && i < k->n; i++) {
		const struct jm_knob_value *now = &k->now[k->index[i]].accepted;

		*ret = *ret || (jm_knob_value_known(now) && jm_knob_value_known(&k->ordered[i]) &&
				       !jm_knob_value_same(now, &k->ordered[i]));
	}
	return rc;
}
