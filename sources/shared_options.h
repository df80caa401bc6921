/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of options that several sources have, each bound to a field of the source's struct. */
#ifndef JM_SHARED_OPTIONS_H
#define JM_SHARED_OPTIONS_H

#include "base/option.h"

/* FIELD: const char *. WHAT: "the meter's name or address" */
#define JM_HOST_OPTION(STRUCT, FIELD, WHAT)                                                        \
	{                                                                                          \
		.name = "host", JM_BIND(JM_TEXT, STRUCT, FIELD), .argument = "NAME", .help = WHAT  \
	}
/* FIELD: double. WHAT: "watts per unit of that register" */
#define JM_SCALE_OPTION(STRUCT, FIELD, WHAT)                                                       \
	{                                                                                          \
		.name = "scale", JM_BIND(JM_REAL, STRUCT, FIELD), .min = 1e-9, .max = 1e9,         \
		.fallback = "1", .argument = "X", .help = WHAT                                     \
	}
/* FIELD: int. VALUE: the default, "502"; PROTOCOL: "TCP" */
#define JM_PORT_OPTION(STRUCT, FIELD, VALUE, PROTOCOL)                                             \
	{                                                                                          \
		.name = "port", JM_BIND(JM_INT, STRUCT, FIELD), .min = 1, .max = 65535,            \
		.fallback = VALUE, .argument = "N", .help = PROTOCOL " port"                       \
	}
/* FIELD: double in seconds, or int64_t in nanoseconds. MOST: seconds; VALUE: "2s"; MORE: the end of
 * the help */
#define JM_TIMEOUT_OPTION(STRUCT, FIELD, MOST, VALUE, MORE)                                        \
	{                                                                                          \
		.name = "timeout", JM_BIND(JM_DURATION, STRUCT, FIELD), .unit = "s", .min = 0.01,  \
		.max = MOST, .fallback = VALUE, .argument = "TIME",                                \
		.help = "time limit for an answer" MORE                                            \
	}
/* FIELD: const char *. WHAT: "what it measures: / (the node), psu/0..." */
#define JM_COVERS_OPTION(STRUCT, FIELD, WHAT)                                                      \
	{                                                                                          \
		.name = "covers", JM_BIND(JM_TEXT, STRUCT, FIELD), .fallback = "/",                \
		.argument = "PATHS", .help = WHAT                                                  \
	}

#endif
