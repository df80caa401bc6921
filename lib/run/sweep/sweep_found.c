/* SPDX-License-Identifier: Apache-2.0 */
/* The knobs of a plan as they were found. */
#include "sweep_found.h"
#include "guard/guard_requests.h"
#include "sweep.h"
#include "guard/guard_recover.h"
#include "guard/setting.h"
#include "run/plan/case_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Does the plan set the knob, on whatever device (device NULL) or on this one? */
static bool spoken_of(const json_t *what, const char *knob, const char *device)
{
	const json_t *axis, *part;
	size_t i;

	for (size_t k = 0; (part = jm_plan_part(what, k)); k++)
		json_array_foreach(json_object_get(part, "settings"), i, axis)
		{
			const char *selector = jm_json_text(axis, "selector");

			if (!strcmp(jm_json_text(axis, "knob"), knob) &&
				(!device || jm_selector_means(selector, device)))
				return true;
		}
	return false;
}

/* The value that a guard which is at work, or was killed, will restore counts, and not the value
 * that it has set. */
static const struct jm_knob_value *value_found(const struct jm_knob *knob,
	const struct jm_knob_value *now, const struct jm_hold *hold, int n)
{
	for (int i = 0; i < n; i++)
		if (hold[i].held != JM_HELD_KEPT && !strcmp(hold[i].knob, knob->name) &&
			!strcmp(hold[i].device, knob->device))
			return &hold[i].found;
	return now;
}

int jm_run_found(struct jm_ctx *ctx, struct jm_guard *guard, const json_t *what, json_t **ret_found,
	struct jm_err *err)
{
	const struct jm_knobs *knobs = jm_guard_knobs(guard);
	struct jm_applied *now = calloc((size_t)knobs->n + 1, sizeof(*now));
	struct jm_hold *hold = NULL;
	json_t *found = json_array();
	int n_hold = 0, rc = JM_ENOMEM;

	if (now && found)
		rc = jm_guard_holds(ctx, &hold, &n_hold, err);
	if (!rc)
		rc = jm_guard_get(guard, now, err);
	for (int i = 0; i < knobs->n && !rc; i++) {
		const struct jm_knob *knob = &knobs->knob[i];

		/* the guard restores the accepted value */
		const struct jm_knob_value *value =
			jm_knob_value_known(&now[i].accepted) ? &now[i].accepted : &now[i].enforced;

		if (!spoken_of(what, knob->name, NULL))
			continue;
		value = value_found(knob, value, hold, n_hold);
		json_array_append_new(found, jm_case_found(knob, value));
		if ((knob->unreadable || jm_knob_value_known(value)) &&
			spoken_of(what, knob->name, knob->device))
			rc = jm_knob_check_found(knob, value, err);
	}
	free(now);
	free(hold);
	if (rc)
		json_decref(found);
	else
		*ret_found = found;
	return rc == JM_ENOMEM ? jm_err_set(err, rc, "Out of memory for the knobs.") : rc;
}
