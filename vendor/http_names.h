/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names under which a server answers. A page of another site whose name is made to lead to this
 * address could read the metrics in a visitor's browser, because to a browser they then come from
 * that site; the request names it.
 */
#ifndef JM_VENDOR_HTTP_NAMES_H
#define JM_VENDOR_HTTP_NAMES_H

#include "joulemark.h"

#include <stdbool.h>
#include <sys/socket.h>

#define JM_HTTP_NAMES	  16
#define JM_HTTP_NAME_SIZE 256

struct jm_http_names {
	char name[JM_HTTP_NAMES][JM_HTTP_NAME_SIZE];
	int n;
};

/* more: names with commas between them, or NULL. is_any: the server answers on all addresses, so
 * also by the machine's names. */
void jm_http_names_init(struct jm_http_names *names, const char *more, bool is_any);
/* host: the header of a request, with or without a port; NULL = without the header, so of no
 * browser. fd: at which it arrived. Addresses count where they are loopback's or that of fd; names
 * where they are localhost or in the table. */
bool jm_http_names_know(const struct jm_http_names *names, const char *host, int fd);

/* The socket address of an IPv4 or IPv6 address as text. JM_EUSAGE: it is none. */
int jm_http_address(const char *text, int port, struct sockaddr_storage *ret, struct jm_err *err);
/* Says why, by errno, a server cannot listen there. JM_EPERM, JM_EIO. */
int jm_http_cannot_listen(const char *address, int port, struct jm_err *err);
/* Is it that of all addresses of the machine? */
bool jm_http_address_is_any(const struct sockaddr_storage *address);

#endif
