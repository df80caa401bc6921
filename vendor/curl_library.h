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

#define JM_CURL_HEADERS(X)                                                                         \
	X(curl_slist_append)                                                                       \
	X(curl_slist_free_all)

/* As jm_library_open, with these symbols. */
int jm_curl_open(const struct jm_symbol *symbols, size_t n, void *calls, struct jm_err *err);

/* Zeroed at first; the owner frees `text`, which ends with a 0 byte behind its n bytes. */
struct jm_curl_answer {
	char *text;
	size_t n;
};

/* CURLOPT_WRITEFUNCTION whose CURLOPT_WRITEDATA is a jm_curl_answer; ends an answer above 4 MiB. */
size_t jm_curl_take(char *bytes, size_t size, size_t n, void *answer);
/* The JSON object that the answer is; NULL = it is none. The caller owns it. */
json_t *jm_curl_object(const struct jm_curl_answer *answer);

#endif
