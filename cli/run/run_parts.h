/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the command `run`: from options to a request, and the progress that is printed. */
#ifndef JM_CLI_RUN_H
#define JM_CLI_RUN_H

#include "base/ctx.h"
#include "cli/frame/cli.h"
#include "measure/command/work_status.h"
#include "run/sweep/run_plan.h"

#include <stdio.h>

/* ---- run_options.c ---- */

extern const struct jm_option jm_run_options[];

/* ---- run_request.c ---- */

/* Is the word a command that can be executed, and neither a workload nor a model? */
bool jm_run_begins_command(const struct jm_cli *cli, const char *word);
/* The request's "what" without its settings, and "how"; see plan.h. The caller owns it. */
json_t *jm_run_request(struct jm_cli *cli);
/* --resume takes the plan from the store: is nothing given that would change it? */
int jm_run_check_resume(struct jm_cli *cli);
/* Adds the protocol to the request's "how": repeats, order, pauses, retries. */
int jm_run_protocol(struct jm_cli *cli, json_t *how);
/* Puts "settings" in place of "set", the --set texts, checked against the guard's knobs. */
int jm_run_request_settings(struct jm_cli *cli, const struct jm_knobs *knobs, json_t *request);
/* Knobs that take whatever the request's settings say, where those of the machine are not known; the caller frees
 * them with jm_knobs_done. */
int jm_run_assume_knobs(const json_t *request, struct jm_knobs *ret, struct jm_err *err);
/* Has a part of the request such a list ("set", "settings")? */
bool jm_run_request_sets(const json_t *request, const char *key);
/* The guard's controls: --control, else the devices where they are simulated nodes, written to out; NULL = the
 * machine's. */
const char *jm_run_controls(
	const struct jm_cli *cli, const json_t *request, char *out, size_t size);

/* ---- run_show.c ---- */

struct jm_run_show {
	const struct jm_plan *plan;
	json_t *varying; /* as of jm_run_varying */
	bool terminal;	 /* stderr is one: a live line with a bar and the time left */
	bool colour, quiet;
	int width;	    /* columns of stderr */
	const char *origin; /* of the energy on the line before; "" = measured */
	int done, failed;   /* in this call */
	int64_t start_ns;   /* machine's clock */
	char note[256];	    /* of the records, printed already */
	/* for `joulemark status` in another terminal */
	struct jm_work_writer *writer;
	const char *store; /* NULL = none */
};

/* width: 0 = the terminal's. */
void jm_run_show_init(struct jm_run_show *show, const struct jm_plan *plan, int width, bool quiet);
void jm_run_show_event(void *arg, const struct jm_run_event *event);
void jm_run_show_done(struct jm_run_show *show);

/* Names that are not the same in all cases of the plan, {"parameters": {device: true}, "options": {batch: true}}; the
 * caller owns it. NULL = memory ran out. */
json_t *jm_run_varying(const struct jm_plan *plan);
/* What distinguishes this case from the others of its plan: settings, and what varies. */
void jm_run_case_label(const json_t *varying, const struct jm_plan_case *c, char *out, size_t size);

/* ---- run_status.c ---- */

/* Publishes the event to other processes. label: of the case; left_s: until the end of the plan,
 * NAN = unknown. */
void jm_run_status_put(const struct jm_run_show *show, const struct jm_run_event *e,
	const char *label, double left_s);

/* ---- run_profile.c ---- */

/* Of each record that has one. */
void jm_run_print_profiles(FILE *out, const json_t *records, int width);

#endif
