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
	if (k->kind == JM_KNOB_CHOICE ? !*k->choices
				      : !isfinite(k->min) || !isfinite(k->max) || k->min >= k->max)
		fail_msg("%s of %s: range %g to %g, choices '%s'", k->name, k->device, k->min,
			k->max, k->choices);
	if (k->step < 0 || !(k->settle_s >= 0))
		fail_msg("%s of %s: step %g, settles in %g s", k->name, k->device, k->step,
			k->settle_s);
	if (jm_knob_value_known(&k->fallback) && jm_knob_check(k, &k->fallback, NULL))
		fail_msg("%s of %s: its default is outside its range", k->name, k->device);
	for (int j = 0; j < i; j++)
		if (!strcmp(set->knob[j].name, k->name) && !strcmp(set->knob[j].device, k->device))
			fail_msg("%s of %s is there twice", k->name, k->device);
}

static void check_get(const struct jm_control *control, void *state, const struct jm_knob *k, int i)
{
	const struct jm_knob_value none = jm_knob_value_of(1e300);
	struct jm_knob_value requested = none, enforced = none;
	struct jm_err err = JM_ERR_INIT;

	assert_ok(control->get(state, i, &requested, &enforced, &err), err);
	if (requested.high == 1e300 || enforced.high == 1e300 || !jm_knob_value_sound(&requested) ||
		!jm_knob_value_sound(&enforced))
		fail_msg("%s of %s: a value is missing", k->name, k->device);
	if (requested.high == 0 || enforced.high == 0)
		fail_msg("%s of %s: 0 stands for 'unknown'; that is NAN", k->name, k->device);
	if (k->unreadable != !jm_knob_value_known(&requested))
		fail_msg("%s of %s: it cannot be read, or is said not to be", k->name, k->device);
}

/* One value in the middle, and those that are outside. */
static struct jm_knob_value middle(const struct jm_knob *k)
{
	double half = k->step > 0 ? k->min + k->step * floor((k->max - k->min) / k->step / 2)
				  : (k->min + k->max) / 2;

	return k->kind == JM_KNOB_CHOICE  ? jm_knob_value_word("performance")
	       : k->kind == JM_KNOB_RANGE ? jm_knob_value_between(k->min, half)
					  : jm_knob_value_of(half);
}

static void refuses(const struct jm_control *control, void *state, const struct jm_knob *k, int i,
	struct jm_knob_value outside)
{
	struct jm_err refusal = JM_ERR_INIT;

	if (jm_knob_check(k, &outside, NULL) == 0)
		fail_msg("%s of %s takes a value that is outside", k->name, k->device);
	contract_error(k->name, control->set(state, i, &outside, &refusal), &refusal);
}

/* Only where nothing real is at stake: set, read, refuse, put back. */
static void check_set(const struct jm_control *control, void *state, const struct jm_knob *k, int i)
{
	struct jm_knob_value found, now, enforced, value = middle(k);
	const struct jm_knob_value outside[] = {jm_knob_value_of(k->min - 1 - fabs(k->min)),
		jm_knob_value_of(NAN), jm_knob_value_of(INFINITY), jm_knob_value_word("nonsense")};
	struct jm_err err = JM_ERR_INIT;

	assert_ok(control->get(state, i, &found, &enforced, &err), err);
	assert_ok(control->set(state, i, &value, &err), err);
	for (size_t n = 0; n < sizeof(outside) / sizeof(outside[0]); n++)
		refuses(control, state, k, i, outside[n]);
	assert_ok(control->get(state, i, &now, &enforced, &err), err);
	assert_true(k->unreadable || jm_knob_value_same(&now, &value));
	if (k->unreadable)
		found = jm_knob_value_word(JM_UNLOCKED);
	assert_ok(control->set(state, i, &found, &err), err);
	assert_ok(control->get(state, i, &now, &enforced, &err), err);
	assert_true(k->unreadable || jm_knob_value_same(&now, &found));
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
	bool harmless = control->origin == JM_SIMULATED ||
			getenv(strcmp(control->name, "nvml") ? "JM_ROOT" : "JM_NVML_LIB");
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
