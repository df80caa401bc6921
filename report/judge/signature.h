/* SPDX-License-Identifier: Apache-2.0 */
/* Where the power of a GPU goes under each kernel and each transfer between ranks. */
#ifndef JM_REPORT_SIGNATURE_H
#define JM_REPORT_SIGNATURE_H

#include <jansson.h>

#include "report/model/grouping.h"

/* Parts of a GPU: the key in a row's "watts" and its title. */
#define JM_SIGNATURE_PARTS(X)                                                                      \
	X(CORE, "core")                                                                            \
	X(IO, "io")                                                                                \
	X(MEMORY, "memory")                                                                        \
	X(REST, "rest")
enum jm_signature_part {
#define X(name, text) JM_SIGNATURE_##name,
	JM_SIGNATURE_PARTS(X)
#undef X
		JM_SIGNATURE_PARTS_N
};
const char *jm_signature_part_name(enum jm_signature_part part);

/*
 * {rows, correlations}. A row is a setting of a workload that runs one kernel or one transfer; of
 * `overlap`, each of its three turns:
 *	kernel, state (enum jm_group_state), runs
 *	setting		of knobs; host, GPU and precision, too, where rows differ in one of them
 *	origin		of all meters and runs, or "mixed"
 *	watts		{total, core, io, memory, rest} of one GPU, means over GPUs and runs; rest
 *			is what no meter of a part covers
 *	normalised	the same, divided by the power of the cores in the first row of this
 *			workload and system; where that is unknown, by that of the rest, or of all
 *	activity	{sm, tensor, dram} 0 to 1, {nvlink} B/s received
 *	intensity	{theoretical, measured} FLOPs per byte: of operands and results, each moved
 *			once; and of the bytes that the memory moved by its activity
 * What is not known is null. correlations: {setting, intensity, part, r, kernels} over the kernels
 * of one setting, of 3 and more, without rows whose cap was violated. NULL: the records have no
 * such workload with a part or an activity that is known.
 */
json_t *jm_signatures(const struct jm_grouping *g);

#endif
