/* SPDX-License-Identifier: Apache-2.0 */
/* The words of `set` as settings. */
#ifndef JM_SET_WORDS_H
#define JM_SET_WORDS_H

#include "cli/frame/cli.h"
#include "guard/setting.h"

#include <jansson.h>

/* One value of one knob, for the caller to end with jm_axis_done. by: the command or option that
 * takes it, for the error. */
int jm_set_parse_axis(const char *text, const char *by, const struct jm_knobs *knobs,
	struct jm_axis *ret, struct jm_err *err);
/* As in the request of a plan: {knob, selector, phase, unit, values}. phase: "" = none. */
json_t *jm_set_axis_json(const struct jm_axis *axis, const char *phase);
/* The words of the command line; a sweep is not for `set`. settings: room for each. */
int jm_set_parse(struct jm_cli *cli, const struct jm_knobs *knobs, struct jm_setting *settings);

#endif
