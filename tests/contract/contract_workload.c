/* SPDX-License-Identifier: Apache-2.0 */
/* A workload: its options are complete rows with valid defaults; an unknown device is refused. */
#include "contract.h"
#include "base/ctx.h"

void contract_option(const char *owner, const struct jm_option *o)
{
	size_t n = o->help ? strlen(o->help) : 0;

	if (n < 3 || o->help[n - 1] == '.')
		fail_msg("%s --%s: the help is a phrase without a full stop", owner, o->name);
	if (o->type == JM_CHOICE && !(o->choices && o->choices[0]))
		fail_msg("%s --%s: a choice without choices", owner, o->name);
	if (o->type == JM_DURATION && !(o->unit && !strcmp(o->unit, "s")))
		fail_msg("%s --%s: a duration is in s", owner, o->name);
	if (strspn(o->name, "abcdefghijklmnopqrstuvwxyz0123456789-") < strlen(o->name))
		fail_msg("%s --%s: small letters, digits, dashes", owner, o->name);
}

static void check_bad_device(const struct jm_workload *w, const struct jm_values *values)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_sleeper sleeper;
	struct jm_ctx ctx;
	struct jm_work work = {
		.ctx = &ctx,
		.sleeper = &sleeper,
		.options = values,
		.device = "no-such-device",
		.precision = "f32",
	};
	void *state = NULL;
	int rc;

	assert_ok(jm_ctx_init(&ctx, &err), err);
	jm_sleeper_init(&sleeper, ctx.clock);
	rc = w->setup(&work, &state, &err);
	if (rc < 0)
		contract_error(w->name, rc, &err);
	w->teardown(state);
	if (rc >= 0 && strcmp(w->name, "null"))
		fail_msg("%s runs on a device that nobody has", w->name);
	jm_sleeper_done(&sleeper);
}

void contract_workloads(void **unused)
{
	(void)unused;
	for (int i = 0; jm_workloads[i]; i++) {
		const struct jm_workload *w = jm_workloads[i];
		struct jm_err err = JM_ERR_INIT;
		struct jm_values values;

		contract_name("workload", w->name, w->summary);
		assert_true(w->setup && w->step && w->verify && w->teardown);
		assert_true(w->unit && *w->unit);
		for (const struct jm_option *o = w->options; o && o->name; o++)
			contract_option(w->name, o);
		assert_int_equal(!w->chooser, !w->chosen_options);
		assert_true(!w->chooser || jm_option_find(w->options, w->chooser));
		w->teardown(NULL);
		assert_ok(jm_values_init(&values, w->options, &err), err);
		check_bad_device(w, &values);
		jm_values_done(&values);
	}
}
