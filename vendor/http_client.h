/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many requests to one HTTP server at once, whose answers are taken while they come, by libcurl's
 * multi interface. libcurl is opened when it is needed. One thread.
 */
#ifndef JM_VENDOR_HTTP_CLIENT_H
#define JM_VENDOR_HTTP_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "joulemark.h"

struct jm_http_client;

enum jm_http_end {
	JM_HTTP_WHOLE,	 /* the answer is complete, whatever its status */
	JM_HTTP_REFUSED, /* there was no connection */
	JM_HTTP_BROKEN,	 /* the connection broke before the answer was complete */
	JM_HTTP_STALLED, /* no byte came for as long as is waited, or no end */
};

struct jm_http_client_options {
	const char *url;      /* "http://127.0.0.1:8000", what is before /v1/... */
	const char *key_file; /* its first line goes along as a bearer token; NULL = none */
	double silence_s;     /* for how long no byte may come */
	double answer_s;      /* for how long a posted request may be under way; 0 = for ever */
	/* Bytes of an answer with status 200; false: the request is given up, and `end` is called
	 * with JM_HTTP_BROKEN. */
	bool (*bytes)(void *arg, int number, const char *bytes, size_t n);
	/* The end of a request; status: of HTTP, 0 = none came; text: of an answer with another
	 * status than 200, its first bytes, or why it broke. */
	void (*end)(void *arg, int number, enum jm_http_end end, long status, const char *text);
	void *arg;
};

/*
 * Asks nothing yet. JM_EUSAGE: no URL of HTTP or HTTPS, a very long one, or a key that would go
 * over plain HTTP to another machine than this one. Freed by jm_http_client_free.
 */
int jm_http_client_new(
	const struct jm_http_client_options *o, struct jm_http_client **ret, struct jm_err *err);
void jm_http_client_free(
	struct jm_http_client *c); /* takes NULL; requests under way end without a call */
/* Is the URL's host this machine, by its name or number? */
bool jm_http_client_is_local(const char *url);
/* Sends the text to that path of the URL. number: of the caller's choice. It is on its way when
 * jm_http_client_poll is called. */
int jm_http_client_post(struct jm_http_client *c, const char *path, const char *body, int number,
	struct jm_err *err);
/* Waits until something comes or the time is over, or a hundredth of a second; calls bytes and end.
 */
int jm_http_client_poll(struct jm_http_client *c, int64_t most_ns, struct jm_err *err);
/* The text at that path, of 4 MiB at most; waits for it, at most 10 s, or silence_s if that is
 * less. The caller frees it; NULL = none, with the reason. */
char *jm_http_client_get_text(struct jm_http_client *c, const char *path, struct jm_err *err);
/* The JSON object at that path; waits for it. The caller owns it; NULL = none, with the reason.
 * JM_ENOENT: nothing answers; JM_EPERM: it wants a key, or another one. */
json_t *jm_http_client_get_json(struct jm_http_client *c, const char *path, struct jm_err *err);

#endif
