/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP server for pages that are made when they are asked for, by libmicrohttpd, opened
 * when it is needed. */
#ifndef JM_VENDOR_HTTP_SERVER_H
#define JM_VENDOR_HTTP_SERVER_H

#include <stddef.h>

#include "joulemark.h"

struct jm_http_server;

struct jm_http_page {
	char *text; /* of malloc; NULL = there is no such page */
	size_t n;
	const char *type; /* of its content; static */
};

/* From a thread of the server, one call at a time. accept: the formats that the client takes; "" =
 * any. */
typedef struct jm_http_page jm_http_page_fn(void *arg, const char *path, const char *accept);

/* Is there a libmicrohttpd? */
int jm_http_server_try(struct jm_err *err);
/*
 * address: an IPv4 or IPv6 address of this machine. port 0 = a free one, which *ret_port then is.
 * hosts: further names that requests may give this server (http_names.h), with commas between them,
 * or NULL.
 */
int jm_http_server_start(const char *address, int port, const char *hosts, jm_http_page_fn *page,
	void *arg, struct jm_http_server **ret, int *ret_port, struct jm_err *err);
void jm_http_server_stop(struct jm_http_server *s); /* takes NULL */

#endif
