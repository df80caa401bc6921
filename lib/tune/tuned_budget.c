/* SPDX-License-Identifier: Apache-2.0 */
#include "tuned_budget.h"
#include "guard/guard_requests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int jm_tuned_budget_open(struct jm_tuned_budget *t, const struct jm_ctx *ctx,
	struct jm_tuned_knob *knob, double watts, enum jm_share share, struct jm_err *err)
{
	const struct jm_knobs *knobs = jm_guard_knobs(knob->guard);
	struct jm_budget_options o = {.watts = watts, .share = share, .n = knob->n};
	bool changed;
	int rc;

	if (strcmp(knob->knob->unit, "W") != 0 || isnan(knob->found_sum))
		return jm_err_set(err, JM_EUSAGE,
			"--budget shares a power among limits, and %s is none; give --knob "
			"gpu.power or package.power.",
			knob->name);
	for (int i = 0; i < knob->n && i < JM_BUDGET_MOST; i++) {
		const struct jm_knob *k = &knobs->knob[knob->index[i]];

		o.device[i] = (struct jm_budget_device){
			fmax(k->min, knob->low), fmin(k->max, knob->high), k->step};
	}
	rc = jm_budget_new(&o, &t->budget, err);
	t->ctx = ctx;
	t->n = knob->n;
	t->most = watts;
	return rc ? rc : jm_tuned_budget_apply(t, knob, &changed, err);
}

void jm_tuned_budget_close(struct jm_tuned_budget *t)
{
	jm_budget_free(t->budget);
	t->budget = NULL;
	free(t->change);
	t->change = NULL;
}

/* What all devices enforce from now on. */
static int note(struct jm_tuned_budget *t, const double *now, struct jm_err *err)
{
	struct jm_budget_change *grown =
		reallocarray(t->change, (size_t)t->n_changes + 1, sizeof(*grown));
	double sum = 0;

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "There is no memory for the limits.");
	t->change = grown;
	grown += t->n_changes++;
	grown->t_ns = jm_ctx_now(t->ctx);
	for (int i = 0; i < t->n; i++) {
		grown->watts[i] = now[i];
		sum += now[i];
	}
	t->sum_most = fmax(t->sum_most, sum);
	return 0;
}

int jm_tuned_budget_set(struct jm_tuned_budget *t, struct jm_tuned_knob *knob, struct jm_err *err)
{
	double now[JM_BUDGET_MOST];
	int rc = jm_tuned_knob_lower(knob, t->limit, now, err);

	if (!rc)
		rc = note(t, now, err);
	if (!rc)
		rc = jm_tuned_knob_raise(knob, t->limit, t->most, now, err);
	return rc ? rc : note(t, now, err);
}

int jm_tuned_budget_apply(struct jm_tuned_budget *t, struct jm_tuned_knob *knob, bool *ret_changed,
	struct jm_err *err)
{
	const double *next = jm_budget_next(t->budget);
	size_t n = (size_t)knob->n;

	*ret_changed = false;
	for (size_t i = 0; i < n; i++)
		*ret_changed = *ret_changed || next[i] != t->limit[i];
	if (!*ret_changed)
		return 0;
	memcpy(t->limit, next, n * sizeof(*next));
	return jm_tuned_budget_set(t, knob, err);
}

/* Joules of the meter of a whole device; NAN = there is none, or it is unknown. */
static double joules_of(
	struct jm_session *session, const char *device, int64_t t0_ns, int64_t t1_ns)
{
	const struct jm_meters *set = jm_session_meters(session);

	for (int i = 0; i < set->n; i++) {
		const struct jm_meter *m = &set->meter[i];
		struct jm_energy e = jm_energy_unknown;

		if (strcmp(m->device, device) != 0 || jm_meter_energy_signal(set, i) < 0 ||
			(m->covered_by >= 0 && !strcmp(set->meter[m->covered_by].device, device)))
			continue;
		jm_session_energy_now(session, i, t0_ns, t1_ns, &e, NULL);
		return e.joules;
	}
	return NAN;
}

int jm_tuned_budget_add(struct jm_tuned_budget *t, const struct jm_tuned_knob *knob,
	struct jm_session *session, int64_t t0_ns, int64_t t1_ns, double items)
{
	const struct jm_knobs *knobs = jm_guard_knobs(knob->guard);
	struct jm_budget_visit v = {.seconds = (double)(t1_ns - t0_ns) * 1e-9, .items = items};

	for (int i = 0; i < knob->n; i++)
		v.watts[i] = joules_of(session, knobs->knob[knob->index[i]].device, t0_ns, t1_ns) /
			     v.seconds;
	memcpy(t->watts, v.watts, sizeof(t->watts));
	return jm_budget_add(t->budget, &v, NULL);
}
