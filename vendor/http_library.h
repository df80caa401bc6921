/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd, of which each server opens the functions that it calls. */
#ifndef JM_VENDOR_HTTP_LIBRARY_H
#define JM_VENDOR_HTTP_LIBRARY_H

#include "library.h"

#include <microhttpd.h>

/* A jm_library, by its table of symbols. */
#define JM_MICROHTTPD(table)                                                                       \
	{                                                                                          \
		.title = "libmicrohttpd", .variable = "JM_MICROHTTPD_LIB",                         \
		.names = {"libmicrohttpd.so.12", "libmicrohttpd.so"},                              \
		.mend = "install libmicrohttpd (Debian: libmicrohttpd12) or name the file in "     \
			"JM_MICROHTTPD_LIB",                                                       \
		.symbols = (table), .n_symbols = sizeof(table) / sizeof((table)[0])                \
	}

#endif
