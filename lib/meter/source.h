/* SPDX-License-Identifier: Apache-2.0 */
/* Contract of a source: one file = one kind of power sensor. See sources/null.c for the smallest one. */
#ifndef JM_SOURCE_H
#define JM_SOURCE_H

#include "meter/meter.h"

/* What `doctor` says of one thing: ok, or why not and how to mend it. */
struct jm_finding {
	bool ok;
	const char *what; /* "GPU 0 NVIDIA H200", "/sys/class/powercap/intel-rapl:0/energy_uj" */
	const char *why;  /* what can be had, or why not */
	const char *mend; /* "" when ok */
};
typedef void jm_finding_fn(void *arg, const struct jm_finding *finding);

enum jm_edge { JM_EDGE_BEGINS, JM_EDGE_ON, JM_EDGE_OVER };

struct jm_source {
	const char *name;
	const char *summary;  /* one line for `list` and the man page */
	const char *argument; /* what may follow "name:", as "FILE" or "NODE"; NULL = nothing */
	enum jm_origin origin;
	/*
	 * Finds the sensors and adds their meters and signals to the set. arg is what the user wrote
	 * behind "name:" or "". Nothing to measure is an error (JM_ENOENT, JM_EPERM...) that says what
	 * is missing and how to mend it. Files are opened here and stay open: rights may be dropped after.
	 */
	int (*open)(struct jm_ctx *ctx, const char *arg, struct jm_meters *set, void **ret_state,
		struct jm_err *err);
	/*
	 * One reading per signal added, in that order. A sensor that fails now gives NAN and the rest
	 * go on; an error is returned only when nothing more can come from this source.
	 */
	int (*read)(void *state, struct jm_reading *out, struct jm_err *err);
	void (*close)(void *state); /* takes NULL */
	/* Optional, of a source that reads its counters when it likes (see read_budget.h): an edge begins (told
	 * before the first reading after it), goes on, or is over. True while the edge must be watched on
	 * because a counter has not stepped since it began. */
	bool (*edge)(void *state, enum jm_edge edge);
	/* Optional: when it would like to be read next, of itself; JM_FOREVER = never. */
	int64_t (*due)(void *state);
	/* Optional; without it `doctor` opens the source and reports what came of it. */
	void (*doctor)(struct jm_ctx *ctx, jm_finding_fn *say, void *arg);
};

extern const struct jm_source
	*const jm_sources[]; /* NULL-terminated, generated from the build rows */

/* By name, with a 'did you mean' in the error. */
const struct jm_source *jm_source_find(const char *name, struct jm_err *err);
/* Length of the first source of a list. "nvml,estimate:5,20" is two: what begins with a digit belongs to
 * the one before. */
size_t jm_source_length(const char *list);

#endif
