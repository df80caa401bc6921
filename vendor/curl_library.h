/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl, of which each client opens the functions that it calls, and an answer that is kept. */
#ifndef JM_VENDOR_CURL_LIBRARY_H
#define JM_VENDOR_CURL_LIBRARY_H

#include "library.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <jansson.h>

/* What one question after the other takes. */
#define JM_CURL_CALLS(X)                                                                           \
	X(curl_global_init)                                                                        \
	X(curl_easy_init)                                                                          \
	X(curl_easy_setopt)                                                                        \
	X(curl_easy_perform)                                                                       \
	X(curl_easy_getinfo)                                                                       \
	X(curl_easy_cleanup)                                                                       \
	X(curl_easy_strerror)

/* A jm_library, by its table of symbols. */
#define JM_CURL(table)                                                                             \
	{                                                                                          \
		.title = "libcurl", .variable = "JM_CURL_LIB",                                     \
		.names = {"libcurl.so.4", "libcurl-gnutls.so.4"},                                  \
		.mend = "install libcurl (Debian: libcurl4) or name the file in JM_CURL_LIB",      \
		.symbols = (table), .n_symbols = sizeof(table) / sizeof((table)[0])                \
	}

/* Zeroed at first; the owner frees `text`. */
struct jm_curl_answer {
	char *text;
	size_t n;
};

/* CURLOPT_WRITEFUNCTION whose CURLOPT_WRITEDATA is a jm_curl_answer; ends an answer above 4 MiB. */
size_t jm_curl_take(char *bytes, size_t size, size_t n, void *answer);
/* The JSON object that the answer is; NULL = it is none. The caller owns it. */
json_t *jm_curl_object(const struct jm_curl_answer *answer);

#endif
