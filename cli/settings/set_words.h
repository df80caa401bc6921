/* SPDX-License-Identifier: Apache-2.0 */
/* The words of `set` as settings, and `set --dry-run`. */
#ifndef JM_SET_WORDS_H
#define JM_SET_WORDS_H

#include "cli/frame/cli.h"
#include "guard/setting.h"

/* One value of one knob. by: the command or option that takes it, for the error. */
int jm_set_parse_one(const char *text, const char *by, const struct jm_knobs *knobs,
	struct jm_setting *ret, struct jm_err *err);
/* The words of the command line; a sweep is not for `set`. settings: room for each. */
int jm_set_parse(struct jm_cli *cli, const struct jm_knobs *knobs, struct jm_setting *settings);
/* Prints what `set` would write. controls: as of jm_guard_start. */
int jm_set_dry_run(struct jm_cli *cli, const char *controls);

#endif
