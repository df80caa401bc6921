/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `measure --repeat`, `--until` and `--until-interval`: a command, or several, run again and again.
 *
 * One command that is neither prepared nor stored run by run: runs follow each other in groups of
 * ten refreshes or more; before each group there is a pause of another part of a refresh, so that
 * no group begins at the same point of the sensor's period (Yang et al., SC'24). Else each run is a
 * group of its own. Several commands run in blocks, each block with every command once, in an order
 * drawn from the seed and the block.
 */
#ifndef JM_MEASURE_REPEAT_H
#define JM_MEASURE_REPEAT_H

#include "cli/frame/cli.h"
#include "measure/command/launch.h"

#define JM_REPEAT_COMMANDS 26 /* they are shown as A to Z */

struct jm_repeat_run {
	int command, group;  /* indices */
	int block, position; /* from 1 */
	struct jm_outcome outcome;
	bool cut_short; /* by a signal to joulemark: it is in no figure */
	/* for its energy, once: for a stored record, --until-interval, or the figures */
	bool asked;
	/* if asked: of the first origin that is known; NAN = unknown, or shorter than a refresh */
	double joules;
};

struct jm_repeat_options {
	long runs;			 /* of each command; 0 = by time, or by interval */
	double seconds;			 /* of all runs together; NAN = by number */
	long warmups, most;		 /* most: of --until-interval */
	const char *interval;		 /* of --until-interval; NULL = none */
	const char *prepare;		 /* NULL = none */
	char *const *compare;		 /* NULL = none */
	bool ignore_failure, most_given; /* most_given: and not its default */
	long seed;
};

struct jm_measure_repeat {
	struct jm_repeat_options options;
	bool alone;			    /* each run is a group */
	double share;			    /* of --until-interval; 0 = none */
	char **command[JM_REPEAT_COMMANDS]; /* 0: of the command line, which the caller owns */
	int n_commands;
	char **prepare;
	int64_t refresh_ns; /* of the slowest sensor that counts */
	int64_t start_ns, end_ns;
	struct jm_repeat_run *run;
	int runs, blocks; /* blocks: that are whole */
	int asked; /* of the runs, from the first on: --until-interval asked for their joules */
	double seconds;	   /* in groups */
	int groups, phase; /* phase: of all of it */
	struct jm_repeat_group {
		int phase;
		int command; /* index */
		long runs;
	} * group;
};

/* What is to run: an argv, in a phase of that name (see launch.h). counted: its items are looked
 * for. */
struct jm_repeat_once {
	char *const *argv;
	const char *phase_name;
	int *phase;
	bool counted;
};
struct jm_repeat_calls {
	/* Runs it once. */
	int (*once)(void *arg, const struct jm_repeat_once *what, struct jm_outcome *outcome);
	/* The newest run is over, and its last readings have come; NULL = nothing is to be done
	 * then. Each run is a group. */
	void (*ended)(void *arg);
	void *arg;
};

/* options: from the command line; stored: each run is one record. asked = false: the command runs
 * once. */
int jm_measure_repeat_open(
	struct jm_measure_repeat *r, struct jm_cli *cli, bool stored, bool *ret_asked);
/* Runs the commands until there is enough, or one run fails; *outcome is of the whole. */
int jm_measure_repeat_run(struct jm_measure_repeat *r, struct jm_cli *cli, struct jm_session *s,
	const struct jm_repeat_calls *calls, struct jm_outcome *outcome);
void jm_measure_repeat_close(struct jm_measure_repeat *r);

/*
 * Joules of a run: of the topmost meters of the first of jm_origin_order that the session has. They
 * are computed at the first call, also while the session runs.
 */
double jm_repeat_joules(
	const struct jm_measure_repeat *r, struct jm_repeat_run *run, struct jm_session *s);
/* The same from the run's record, which was made first. */
void jm_repeat_take_joules(const struct jm_measure_repeat *r, struct jm_repeat_run *run,
	const struct jm_session *s, const struct json_t *record);
/* Whether a run is in mean and spread: it succeeded, or none did, or failures are ignored. */
bool jm_repeat_counts(const struct jm_measure_repeat *r, const struct jm_repeat_run *run);

/* "2%" or "0.02" of --until-interval as 0.02; JM_EUSAGE. */
int jm_measure_share(const char *text, double *ret, struct jm_err *err);

#endif
