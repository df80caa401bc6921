/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `measure --repeat` and `--until`: a command runs again and again until its sensors' refreshes are spanned. Runs follow
 * each other in groups of ten refreshes or more; before each group there is a pause of another part of a refresh, so
 * that no group begins at the same point of the sensor's period (Yang et al., SC'24).
 */
#ifndef JM_MEASURE_REPEAT_H
#define JM_MEASURE_REPEAT_H

#include "cli/frame/cli.h"
#include "measure/command/launch.h"

struct jm_measure_repeat {
	long runs_wanted;      /* 0 = by time */
	double seconds_wanted; /* 0 = by number; before opening NAN */
	int64_t refresh_ns;    /* of the slowest sensor that counts */
	int64_t start_ns, end_ns;
	long runs;
	double seconds;	   /* in groups */
	int groups, phase; /* phase: of all of it */
	struct jm_repeat_group {
		int phase;
		long runs;
	} * group;
};

/* runs_wanted, seconds_wanted: from the command line; asked = false: neither is given. */
int jm_measure_repeat_open(struct jm_measure_repeat *r, struct jm_cli *cli, bool *ret_asked);
/* Runs the command by `once` until there is enough, or one run fails; *outcome is of the whole. */
int jm_measure_repeat_run(struct jm_measure_repeat *r, struct jm_cli *cli, struct jm_session *s,
	int (*once)(void *arg, int *shared_phase, struct jm_outcome *outcome), void *arg,
	struct jm_outcome *outcome);
/* After the session's stop: the record's `repeats`. */
json_t *jm_measure_repeat_json(
	const struct jm_measure_repeat *r, struct jm_session *s, struct jm_err *err);
void jm_measure_repeat_close(struct jm_measure_repeat *r);

#endif
