/* SPDX-License-Identifier: Apache-2.0 */
/* A control: its knobs are described completely; a value that is set is read back; impossible
 * values are refused. */
#include "contract.h"
#include "base/ctx.h"

static void check_knob(const struct jm_control *control, const struct jm_knobs *set, int i)
{
	const struct jm_knob *k = &set->knob[i];

	if (!strchr(k->name, '.') || !k->device[0] || !k->label[0])
		fail_msg("%s: knob '%s' has no good name, device or label", control->name, k->name);
	if (!isfinite(k->min) || !isfinite(k->max) || k->min >= k->max || k->step < 0)
		fail_msg("%s of %s: range %g to %g, step %g", k->name, k->device, k->min, k->max,
			k->step);
	if (!isnan(k->fallback) && (k->fallback < k->min || k->fallback > k->max))
		fail_msg("%s of %s: its default is outside its range", k->name, k->device);
	for (int j = 0; j < i; j++)
		if (!strcmp(set->knob[j].name, k->name) && !strcmp(set->knob[j].device, k->device))
			fail_msg("%s of %s is there twice", k->name, k->device);
}

static void check_get(const struct jm_control *control, void *state, const struct jm_knob *k, int i)
{
	double requested = 1e300, enforced = 1e300;
	struct jm_err err = JM_ERR_INIT;

	assert_ok(control->get(state, i, &requested, &enforced, &err), err);
	if (requested == 1e300 || enforced == 1e300 || isinf(requested) || isinf(enforced))
		fail_msg("%s of %s: a value is missing", k->name, k->device);
	if (requested == 0 || enforced == 0)
		fail_msg("%s of %s: 0 stands for 'unknown'; that is NAN", k->name, k->device);
}

/* Only where nothing real is at stake: set, read, refuse, put back. */
static void check_set(const struct jm_control *control, void *state, const struct jm_knob *k, int i)
{
	const double outside[] = {k->min - 1 - fabs(k->min), k->max * 2 + 1, NAN, INFINITY};
	double found, value, now, enforced;
	struct jm_err err = JM_ERR_INIT;

	assert_ok(control->get(state, i, &found, &enforced, &err), err);
	value = k->step > 0 ? k->min + k->step * floor((k->max - k->min) / k->step / 2)
			    : (k->min + k->max) / 2;
	assert_ok(control->set(state, i, value, &err), err);
	assert_ok(control->get(state, i, &now, &enforced, &err), err);
	assert_near(now, value, 1e-6 * value);
	for (size_t n = 0; n < sizeof(outside) / sizeof(outside[0]); n++) {
		struct jm_err refusal = JM_ERR_INIT;

		contract_error(k->name, control->set(state, i, outside[n], &refusal), &refusal);
		assert_ok(control->get(state, i, &now, &enforced, &err), err);
		assert_near(now, value, 1e-6 * value);
	}
	if (!isnan(found))
		assert_ok(control->set(state, i, found, &err), err);
}

static void check_again(const struct jm_control *control, struct jm_ctx *ctx, const char *arg,
	const struct jm_knobs *first)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_knobs set = {0};
	void *state = NULL;

	assert_ok(control->open(ctx, arg, &set, &state, &err), err);
	assert_int_equal(set.n, first->n);
	for (int i = 0; i < set.n; i++) {
		assert_string_equal(set.knob[i].name, first->knob[i].name);
		assert_string_equal(set.knob[i].device, first->knob[i].device);
	}
	control->close(state);
	jm_knobs_done(&set);
}

static void check_control(const struct jm_control *control)
{
	const char *arg = contract_argument(control->name);
	bool harmless = control->origin == JM_SIMULATED || getenv("JM_NVML_LIB");
	struct jm_err err = JM_ERR_INIT;
	struct jm_knobs set = {0};
	struct jm_ctx ctx;
	void *state = NULL;
	int rc;

	assert_ok(jm_ctx_init(&ctx, &err), err);
	rc = control->open(&ctx, arg, &set, &state, &err);
	if (rc < 0) {
		contract_error(control->name, rc, &err);
		print_message("           %s: not here: %s\n", control->name, err.text);
		jm_knobs_done(&set);
		return;
	}
	for (int i = 0; i < set.n; i++) {
		check_knob(control, &set, i);
		check_get(control, state, &set.knob[i], i);
		if (harmless)
			check_set(control, state, &set.knob[i], i);
	}
	check_again(control, &ctx, arg, &set);
	control->close(state);
	print_message("           %s: %d knobs\n", control->name, set.n);
	jm_knobs_done(&set);
}

void contract_controls(void **unused)
{
	(void)unused;
	for (int i = 0; jm_controls[i]; i++) {
		contract_name("control", jm_controls[i]->name, jm_controls[i]->summary);
		assert_true(jm_controls[i]->open && jm_controls[i]->get && jm_controls[i]->set &&
			    jm_controls[i]->close);
		jm_controls[i]->close(NULL);
		check_control(jm_controls[i]);
	}
}
