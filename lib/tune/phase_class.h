/* SPDX-License-Identifier: Apache-2.0 */
/* What bounds a phase of the work: by its name, else by the activity of the device in it. Of
 * phase_search.h. */
#ifndef JM_PHASE_CLASS_H
#define JM_PHASE_CLASS_H

#include "joulemark.h"

enum jm_phase_class { JM_COMPUTE_BOUND, JM_MEMORY_BOUND, JM_LINK_BOUND, JM_MIXED, JM_CLASSES };
extern const char
	*const jm_phase_class_names[]; /* "compute", "memory", "link", "mixed", NULL: of the enum */

/* How a class became known. */
enum jm_class_origin { JM_CLASS_STATED, JM_CLASS_BY_NAME, JM_CLASS_BY_ACTIVITY, JM_CLASS_UNKNOWN };
extern const char *const jm_class_origin_names[]; /* "stated", "name", "activity", "unknown" */

/* Of a phase that is named after an operation: "prefill", "gemm", "decode", "stream", "all-gather",
 * "allgather_2". JM_MIXED: the name says nothing. */
enum jm_phase_class jm_phase_class_by_name(const char *phase);

/* Means over a phase and its devices; NAN = no source reports it. */
struct jm_phase_activity {
	double tensor, sm, dram; /* shares of the time, of the bandwidth */
	double link;		 /* B/s sent by NVLink */
};
/*
 * memory: half of the bandwidth or more is used, and the tensor cores work for less than half of
 * the time; compute: less bandwidth, and the multiprocessors or the tensor cores work for half of
 * the time or more; link: neither, and data move between devices; mixed: all else.
 * These limits are a rule, not a measurement: near them, a class should be stated.
 */
enum jm_phase_class jm_phase_class_by_activity(const struct jm_phase_activity *a);

/* "NAME=CLASS". The name is a part of text and has *ret_length characters. JM_EUSAGE */
int jm_phase_class_parse(
	const char *text, int *ret_length, enum jm_phase_class *ret, struct jm_err *err);

#endif
