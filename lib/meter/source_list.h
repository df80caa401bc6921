/* SPDX-License-Identifier: Apache-2.0 */
/* Names of sources with commas between them, as one list. */
#ifndef JM_SOURCE_LIST_H
#define JM_SOURCE_LIST_H

#include "base/option.h"

/* The row of --source. */
#define JM_SOURCE_OPTION(STRUCT, FIELD)                                                            \
	{                                                                                          \
		.name = "source", JM_BIND(JM_TEXT, STRUCT, FIELD), .argument = "SOURCE,...",       \
		.repeat = true,                                                                    \
		.help = "what to read: nvml, rapl, estimate, sim:NODE, ...; without it all "       \
			"sources that measure here"                                                \
	}

struct jm_source_list {
	char **name; /* NULL-terminated; NULL = none was given */
	int n;
};

/* "nvml,rapl"; empty names are left out. */
int jm_source_list_add(struct jm_source_list *list, const char *text, struct jm_err *err);
/* texts: the values of --source, each as above; NULL = none */
int jm_source_list_take(struct jm_source_list *list, char *const *texts, struct jm_err *err);
void jm_source_list_done(struct jm_source_list *list); /* one that failed, too */

#endif
