/* SPDX-License-Identifier: Apache-2.0 */
#include "energy/sensor_fault.h"

static const char *const fault_names[] = {
#define X(name, text) text,
	JM_FAULTS(X)
#undef X
};

enum jm_fault_kind jm_fault_kind(const struct jm_fault *fault)
{
	if (!fault->kind && fault->power_zero_s > 0)
		return JM_FAULT_POWER_ZERO;
	return fault->kind;
}

const char *jm_fault_name(enum jm_fault_kind kind)
{
	return fault_names[kind];
}
