/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JM_PLAN_FILE_OPTIONS_H
#define JM_PLAN_FILE_OPTIONS_H

#include "base/option.h"

/* Of a plan file; NULL = not given. */
struct jm_plan_selection {
	const char *platform, *tag;
};

/* The rows of options that change what a plan file says, bound to a struct jm_plan_selection;
 * title, or NULL, stands above them in the help, prefix in each. */
#define JM_PLAN_FILE_OPTIONS(STRUCT, FIELD, title, prefix)                                         \
	{.name = "platform",                                                                       \
		.heading = title,                                                                  \
		.use = JM_OPTION_OF_CALL,                                                          \
		JM_BIND(JM_TEXT, STRUCT, FIELD.platform),                                          \
		.argument = "FILE",                                                                \
		.help = prefix "the platform file, in place of the one that the plan names"},      \
	{                                                                                          \
		.name = "tag", .use = JM_OPTION_OF_CALL, JM_BIND(JM_TEXT, STRUCT, FIELD.tag),      \
		.argument = "TAG,...", .help = prefix "only the runs that have one of these tags"  \
	}

#endif
