/* SPDX-License-Identifier: Apache-2.0 */
/* Root's policy of joulemarkd: a rule that is accepted is whole, and allows nothing that is no
 * value or outside its range. */
#include "fuzz.h"
#include "daemon/policy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_rule(const struct jm_policy *policy, const struct jm_rule *r)
{
	const gid_t group[] = {r->id};
	const struct jm_caller caller = {.uid = r->id, .group = group, .n_groups = 1};
	struct jm_knob knob = {.kind = JM_KNOB_RANGE};
	const double bad[] = {NAN, INFINITY, -INFINITY, -1, 1e308};
	double seconds = 0;

	assert(r->seconds > 0 && isfinite(r->seconds) && r->leases > 0);
	assert(*r->words || jm_knob_value_known(&r->range));
	assert(jm_knob_value_sound(&r->range) && jm_knob_value_sound(&r->found));
	assert(!jm_knob_value_known(&r->range) ||
		(r->range.low >= 0 && r->range.low <= r->range.high));
	assert(r->id == JM_RULE_NOBODY || jm_policy_leases(policy, &caller) >= r->leases);
	memcpy(knob.name, r->target.knob, sizeof(knob.name));
	memcpy(knob.device, r->target.selector, sizeof(knob.device));
	memcpy(knob.unit, r->unit, sizeof(knob.unit));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct jm_knob_value v = jm_knob_value_of(bad[i]);
		struct jm_err why = JM_ERR_INIT;
		int rc = jm_policy_allow(policy, &caller, &knob, &v, &seconds, &why);

		assert(rc || (isfinite(bad[i]) && bad[i] >= 0));
		if (rc)
			fuzz_check(rc, &why);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jm_policy policy = {0};
	struct jm_err err = JM_ERR_INIT;
	int rc = jm_policy_parse((const char *)data, size, &policy, &err);

	fuzz_check(rc, &err);
	for (int i = 0; i < policy.n && !rc; i++)
		check_rule(&policy, &policy.rule[i]);
	jm_policy_done(&policy);
	return 0;
}
