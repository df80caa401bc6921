/* SPDX-License-Identifier: Apache-2.0 */
/* The members that were built in, and those that were not, with the reason. */
#ifndef JM_REGISTRY_H
#define JM_REGISTRY_H

#include "guard/control.h"
#include "meter/source.h"
#include "run/workload.h"
#include "engine/model.h"

struct jm_absent {
	const char *kind, *name, *reason;
};
extern const struct jm_absent jm_absent_sources[], jm_absent_controls[], jm_absent_workloads[],
	jm_absent_models[];

#endif
