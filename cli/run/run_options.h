/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `run`, besides those of the workload. */
#ifndef JM_RUN_OPTIONS_H
#define JM_RUN_OPTIONS_H

#include "cli/measure/measure_store.h"
#include "plan_file_options.h"
#include "run_parts.h"

/* ---- run_options.c ---- */

/* What the command line of `run`, or a point of a plan file, gives: NULL, NAN or 0 is not given.
 * The texts are those of the values. */
struct jm_run_given {
	/* of the call */
	const char *store, *json, *columns, *shard, *launcher, *job,
		*probe_load; /* see jm_probe_state */
	bool resume, dry_run, show_output;
	struct jm_run_options sweep; /* retry, only_failed, rerun, fail_fast */
	/* of the request */
	const char *device, *precision; /* lists */
	const char *warmup, *control, *order, *retries, *until_interval;
	struct jm_item_options items;
	char *const *set, *const *env, *const *source;
	bool fast, real_time, idle_gpus;
	int repeat, max_repeat;
	int64_t seed, steps, epochs, epoch_steps;
	double seconds, interval, timeout, selftest, steady, cooldown; /* s */
	double add_watts;
	struct jm_plan_selection plan;
	/* in place of the default */
	bool precision_given, repeat_given, max_repeat_given, order_given, seed_given;
};

/* Bound to a struct jm_run_given. */
extern const struct jm_option jm_run_options[];
/* For a workload: an option that is of outside commands only is an error. */
int jm_run_refuse_of_command(struct jm_cli *cli);

#endif
