/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/control_doctor.h"

#include <stdio.h>
#include <string.h>

static void say_refusal(
	const struct jm_control *control, const struct jm_err *err, jm_finding_fn *say, void *arg)
{
	char first[64];
	const struct jm_finding f = {.what = first,
		.why = err->text,
		.mend = "",
		.absent = err->code == JM_ENOENT || err->code == JM_ENOSUP};

	snprintf(first, sizeof(first), "%.*s", (int)strcspn(control->knobs, " "), control->knobs);
	say(arg, &f);
}

static void say_plainly(const struct jm_knob *knob, jm_finding_fn *say, void *arg)
{
	const struct jm_finding f = {
		.ok = true, .what = knob->label, .why = knob->name, .mend = ""};

	say(arg, &f);
}

void jm_control_doctor(
	const struct jm_control *control, struct jm_ctx *ctx, jm_finding_fn *say, void *arg)
{
	struct jm_knobs set = {0};
	struct jm_err err = JM_ERR_INIT;
	void *state = NULL;

	if (control->doctor) {
		control->doctor(ctx, say, arg);
		return;
	}
	if (control->open(ctx, "", &set, &state, &err))
		say_refusal(control, &err, say, arg);
	else
		for (int i = 0; i < set.n; i++)
			if (control->say_knob)
				control->say_knob(state, i, &set.knob[i], say, arg);
			else
				say_plainly(&set.knob[i], say, arg);
	control->close(state);
	jm_knobs_done(&set);
}
