/* SPDX-License-Identifier: Apache-2.0 */
#include "phase_class.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define BUSY 0.5 /* share from which on a part of the device bounds the work */
#define FLOW 1e9 /* B/s over the links that are more than messages */

const char *const jm_phase_class_names[] = {"compute", "memory", "link", "mixed", NULL};
const char *const jm_class_origin_names[] = {"stated", "name", "activity", "unknown", NULL};

/* Operations, as names of phases begin without '-' and '_'. */
static const struct {
	const char *begin;
	enum jm_phase_class class;
} operations[] = {
	{"prefill", JM_COMPUTE_BOUND},
	{"gemm", JM_COMPUTE_BOUND},
	{"product", JM_COMPUTE_BOUND},
	{"matmul", JM_COMPUTE_BOUND},
	{"forward", JM_COMPUTE_BOUND},
	{"backward", JM_COMPUTE_BOUND},
	{"decode", JM_MEMORY_BOUND},
	{"stream", JM_MEMORY_BOUND},
	{"copy", JM_MEMORY_BOUND},
	{"optimizer", JM_MEMORY_BOUND},
	{"allgather", JM_LINK_BOUND},
	{"allreduce", JM_LINK_BOUND},
	{"alltoall", JM_LINK_BOUND},
	{"reducescatter", JM_LINK_BOUND},
	{"broadcast", JM_LINK_BOUND},
	{"p2p", JM_LINK_BOUND},
};

enum jm_phase_class jm_phase_class_by_name(const char *phase)
{
	char plain[64];
	size_t n = 0;

	for (; *phase && n + 1 < sizeof(plain); phase++)
		if (*phase != '-' && *phase != '_')
			plain[n++] = (char)tolower((unsigned char)*phase);
	plain[n] = 0;
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		if (!strncmp(plain, operations[i].begin, strlen(operations[i].begin)))
			return operations[i].class;
	return JM_MIXED;
}

enum jm_phase_class jm_phase_class_by_activity(const struct jm_phase_activity *a)
{
	/* a comparison with NAN is false */
	bool memory = a->dram >= BUSY, compute = a->tensor >= BUSY || a->sm >= BUSY;

	if (memory && a->tensor >= BUSY)
		return JM_MIXED;
	if (memory)
		return JM_MEMORY_BOUND;
	if (compute)
		return JM_COMPUTE_BOUND;
	return a->link >= FLOW ? JM_LINK_BOUND : JM_MIXED;
}

int jm_phase_class_parse(
	const char *text, int *ret_length, enum jm_phase_class *ret, struct jm_err *err)
{
	const char *equals = strrchr(text, '=');

	for (int i = 0; equals && equals > text && i < JM_CLASSES; i++) {
		if (strcmp(equals + 1, jm_phase_class_names[i]) != 0)
			continue;
		*ret_length = (int)(equals - text);
		*ret = (enum jm_phase_class)i;
		return 0;
	}
	return jm_err_set(err, JM_EUSAGE,
		"--class '%.60s' is not PHASE=CLASS with one of the classes compute, memory, link "
		"and mixed, as in --class train=compute.",
		text);
}
