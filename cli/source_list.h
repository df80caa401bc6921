/* SPDX-License-Identifier: Apache-2.0 */
/* The values of --source, each a list of sources, as one list. */
#ifndef JM_SOURCE_LIST_H
#define JM_SOURCE_LIST_H

#include "base/option.h"

/* The row of --source. */
#define JM_SOURCE_OPTION                                                                           \
	{                                                                                          \
		.name = "source", .type = JM_TEXT, .argument = "S,...", .repeat = true,            \
		.help = "what to read: nvml, rapl, estimate, sim:NODE, ...; without it all "       \
			"sources that measure here"                                                \
	}

struct jm_source_list {
	char **name; /* NULL-terminated; NULL = none was given */
	int n;
};

int jm_source_list_take(
	struct jm_source_list *list, const struct jm_value *given, struct jm_err *err);
void jm_source_list_done(struct jm_source_list *list);

#endif
