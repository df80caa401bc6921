/* SPDX-License-Identifier: Apache-2.0 */
/* Tests every built-in member; a new member is tested without further changes. */
#include "contract.h"

void contract_absent(void **unused)
{
	const struct jm_absent *const lists[] = {
		jm_absent_sources, jm_absent_controls, jm_absent_workloads, jm_absent_models};

	(void)unused;
	for (int k = 0; k < 4; k++)
		for (const struct jm_absent *a = lists[k]; a->name; a++)
			if (!a->reason || strlen(a->reason) < 10)
				fail_msg("%s %s is absent without a reason", a->kind, a->name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contract_sources),
		cmocka_unit_test(contract_source_arguments),
		cmocka_unit_test(contract_doctor),
		cmocka_unit_test(contract_controls),
		cmocka_unit_test(contract_workloads),
		cmocka_unit_test(contract_models),
		cmocka_unit_test(contract_absent),
	};

	return cmocka_run_group_tests_name("contract", tests, NULL, NULL);
}
