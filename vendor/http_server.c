/* SPDX-License-Identifier: Apache-2.0 */
#include "http_server.h"
#include "library.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <microhttpd.h>

#define MAX_CLIENTS 64
#define IDLE_S	    10		    /* a client that says nothing for so long is dropped */
#define BYTES	    ((size_t)16384) /* of memory per client, its request's headers included */

#define CALLS(X)                                                                                   \
	X(MHD_start_daemon)                                                                        \
	X(MHD_stop_daemon)                                                                         \
	X(MHD_get_daemon_info)                                                                     \
	X(MHD_lookup_connection_value)                                                             \
	X(MHD_create_response_from_buffer)                                                         \
	X(MHD_add_response_header)                                                                 \
	X(MHD_queue_response)                                                                      \
	X(MHD_destroy_response)

struct calls {
#define X(name) __typeof__(&name) name;
	CALLS(X)
#undef X
};

struct jm_http_server {
	struct calls call;
	struct MHD_Daemon *daemon;
	jm_http_page_fn *page;
	void *arg;
};

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct calls, name)},
	CALLS(X)
#undef X
};

static const struct jm_library library = {
	.title = "libmicrohttpd",
	.variable = "JM_MICROHTTPD_LIB",
	.names = {"libmicrohttpd.so.12", "libmicrohttpd.so"},
	.mend = "install libmicrohttpd (Debian: libmicrohttpd12) or name the file in "
		"JM_MICROHTTPD_LIB",
	.symbols = symbols,
	.n_symbols = sizeof(symbols) / sizeof(symbols[0]),
};

static enum MHD_Result answer(struct jm_http_server *s, struct MHD_Connection *client, int status,
	const struct jm_http_page *page)
{
	struct MHD_Response *response =
		s->call.MHD_create_response_from_buffer(page->n, page->text, MHD_RESPMEM_MUST_FREE);
	enum MHD_Result result;

	if (!response) {
		free(page->text);
		return MHD_NO;
	}
	s->call.MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, page->type);
	result = s->call.MHD_queue_response(client, (unsigned int)status, response);
	s->call.MHD_destroy_response(response);
	return result;
}

static enum MHD_Result refuse(
	struct jm_http_server *s, struct MHD_Connection *client, int status, const char *why)
{
	struct jm_http_page page = {strdup(why), strlen(why), "text/plain; charset=utf-8"};

	return page.text ? answer(s, client, status, &page) : MHD_NO;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *client, const char *url,
	const char *method, const char *version, const char *upload, size_t *n_upload, void **state)
{
	struct jm_http_server *s = arg;
	const char *accept;
	struct jm_http_page page;

	(void)version;
	(void)upload;
	(void)state;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
		*n_upload = 0;
		return refuse(s, client, MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET is answered.\n");
	}
	accept = s->call.MHD_lookup_connection_value(client, MHD_HEADER_KIND, "Accept");
	page = s->page(s->arg, url, accept ? accept : "");
	return page.text ? answer(s, client, MHD_HTTP_OK, &page)
			 : refuse(s, client, MHD_HTTP_NOT_FOUND, "There is no such page.\n");
}

static bool parse(const char *text, int port, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

	*out = (struct sockaddr_storage){0};
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		return true;
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	return inet_pton(AF_INET6, text, &v6->sin6_addr) == 1;
}

static int listen_on(struct jm_http_server *s, const char *address, int port, struct jm_err *err)
{
	struct sockaddr_storage where;
	unsigned int flags = MHD_USE_INTERNAL_POLLING_THREAD;

	if (!parse(address, port, &where))
		return jm_err_set(err, JM_EUSAGE,
			"'%s' is no IPv4 or IPv6 address; 127.0.0.1 is this machine alone, 0.0.0.0 "
			"all of its addresses.",
			address);
	if (where.ss_family == AF_INET6)
		flags |= MHD_USE_IPv6;
	errno = 0;
	s->daemon = s->call.MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, on_request, s,
		MHD_OPTION_SOCK_ADDR, &where, MHD_OPTION_CONNECTION_LIMIT, MAX_CLIENTS,
		MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, BYTES,
		MHD_OPTION_END);
	if (s->daemon)
		return 0;
	return jm_err_set(err, errno == EACCES ? JM_EPERM : JM_EIO,
		"Cannot listen on %s port %d: %s.", address, port,
		errno ? strerror(errno) : "libmicrohttpd gives no reason");
}

int jm_http_server_try(struct jm_err *err)
{
	struct calls calls;

	return jm_library_open(&library, &calls, err);
}

int jm_http_server_start(const char *address, int port, jm_http_page_fn *page, void *arg,
	struct jm_http_server **ret, int *ret_port, struct jm_err *err)
{
	struct jm_http_server *s = calloc(1, sizeof(*s));
	const union MHD_DaemonInfo *bound;
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a server.");
	s->page = page;
	s->arg = arg;
	rc = jm_library_open(&library, &s->call, err);
	if (!rc)
		rc = listen_on(s, address, port, err);
	if (rc) {
		jm_http_server_stop(s);
		return rc;
	}
	bound = s->call.MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
	*ret_port = bound ? bound->port : port;
	*ret = s;
	return 0;
}

void jm_http_server_stop(struct jm_http_server *s)
{
	if (s && s->daemon)
		s->call.MHD_stop_daemon(s->daemon);
	free(s);
}
