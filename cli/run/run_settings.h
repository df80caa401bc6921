/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a request: what --set says, read with the knobs that there are. */
#ifndef JM_RUN_SETTINGS_H
#define JM_RUN_SETTINGS_H

#include "run_parts.h"

/* Puts "settings" in place of "set", the --set texts, checked against the guard's knobs. */
int jm_run_request_settings(struct jm_cli *cli, const struct jm_knobs *knobs, json_t *request);
/* Knobs that take whatever the request's settings say, where those of the machine are not known;
 * the caller frees them with jm_knobs_done. */
int jm_run_assume_knobs(const json_t *request, struct jm_knobs *ret, struct jm_err *err);
/* Has a part of the request such a list ("set", "settings")? */
bool jm_run_request_sets(const json_t *request, const char *key);
/* The guard's controls: the value of --control, else the devices where they are simulated nodes,
 * written to out; NULL = the machine's. */
const char *jm_run_controls(const char *control, const json_t *request, char *out, size_t size);

#endif
