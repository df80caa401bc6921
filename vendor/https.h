/* SPDX-License-Identifier: Apache-2.0 */
/* JSON from a server over HTTPS, by libcurl, which is opened when it is needed. */
#ifndef JM_VENDOR_HTTPS_H
#define JM_VENDOR_HTTPS_H

#include "curl_library.h"

#define JM_ETAG 160

struct jm_https {
	struct {
#define X(name) __typeof__(&(name)) name;
		JM_CURL_CALLS(X)
		JM_CURL_HEADERS(X)
#undef X
	} call;
	CURL *line;
	char host[128];
	int port;
	char error[CURL_ERROR_SIZE];
	char etag[JM_ETAG]; /* of the last answer; "" = it had none */
	int64_t timeout_ns,
		until_ns; /* until_ns: of jm_https_limit; 0 = each question has its own limit */
	bool late; /* an answer did not come in time: no more questions until jm_https_limit */
};

struct jm_https_peer {
	const char *host;
	int port;
	double timeout;	     /* s, of a whole answer */
	const char *ca_file; /* NULL = what the system trusts */
	/* Basic authentication; the password is the file's first line. NULL = none. */
	const char *user, *password_file;
};

/* Loads the library; asks nothing. */
int jm_https_open(struct jm_https *https, const struct jm_https_peer *peer, struct jm_err *err);
void jm_https_close(struct jm_https *https); /* takes a zeroed one */
/* One time limit, the timeout from now on, for all questions until the next jm_https_limit. */
void jm_https_limit(struct jm_https *https);
/* The object at that path; the caller owns it. NULL = none, with the reason. The connection is
 * kept. */
json_t *jm_https_get_json(struct jm_https *https, const char *path, struct jm_err *err);
/* Changes these members of the resource, provided that it still has this ETag ("*": whichever it
 * has; "": unconditionally). JM_EBUSY: it was changed since (status 412). JM_EPERM, JM_EIO: the
 * server refuses it, with its own words; JM_ENOENT: no answer, or the server makes the change later
 * (status 202), so it is unknown whether it was done. */
int jm_https_patch(struct jm_https *https, const char *path, const json_t *members,
	const char *etag, struct jm_err *err);

#endif
