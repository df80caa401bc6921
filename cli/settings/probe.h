/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --found KNOB=probe: finds out whether a clock that cannot be read back is unlocked. It is where
 * its GPU has the lowest clock when it is idle, and the highest under a small load; else it stays
 * unknown, and the knob is not set.
 */
#ifndef JM_PROBE_H
#define JM_PROBE_H

#include "cli/frame/cli.h"
#include "guard/guard.h"

#define JM_PROBE_LOAD_ROW                                                                          \
	.name = "probe-load", .argument = "'CMD'", .needs = "found",                               \
	.help = "with --found KNOB=probe: the command that makes each GPU busy, the only one in "  \
		"its CUDA_VISIBLE_DEVICES, until it is ended; without it 'joulemark run stream'"

/* As jm_guard_state, and probes what the texts say is to be probed. load: the command of
 * --probe-load; NULL = joulemark's own. */
int jm_probe_state(struct jm_cli *cli, struct jm_guard *guard, char *const *texts, const char *load,
	struct jm_err *err);

#endif
