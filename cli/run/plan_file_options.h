/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JM_PLAN_FILE_OPTIONS_H
#define JM_PLAN_FILE_OPTIONS_H

#include "base/option.h"

/* The rows of options that change what a plan file says; title, or NULL, stands above them in the
 * help, prefix in each. */
#define JM_PLAN_FILE_OPTIONS(title, prefix)                                                        \
	{.name = "platform",                                                                       \
		.heading = title,                                                                  \
		.use = JM_OPTION_OF_CALL,                                                          \
		.type = JM_TEXT,                                                                   \
		.argument = "FILE",                                                                \
		.help = prefix "the platform file, in place of the one that the plan names"},      \
	{                                                                                          \
		.name = "tag", .use = JM_OPTION_OF_CALL, .type = JM_TEXT, .argument = "TAG,...",   \
		.help = prefix "only the runs that have one of these tags"                         \
	}

#endif
