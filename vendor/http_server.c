/* SPDX-License-Identifier: Apache-2.0 */
#include "http_server.h"
#include "base/clock.h"
#include "http_names.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "microhttpd_library.h"

#define MAX_CLIENTS 64
#define PER_ADDRESS 32		    /* of these: one address shuts out no other */
#define IDLE_S	    10		    /* a client that says nothing for so long is dropped */
#define REQUEST_S   20		    /* one whose request or answer takes so long, too */
#define BYTES	    ((size_t)16384) /* of memory per client, its request's headers included */

#define CALLS(X)                                                                                   \
	X(MHD_start_daemon)                                                                        \
	X(MHD_stop_daemon)                                                                         \
	X(MHD_get_daemon_info)                                                                     \
	X(MHD_get_connection_info)                                                                 \
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

struct client {
	int fd; /* -1 = free */
	int64_t since_ns;
};

struct jm_http_server {
	struct calls call;
	struct MHD_Daemon *daemon;
	jm_http_page_fn *page;
	void *arg;
	struct jm_http_names names;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t ended;
	pthread_t watch;
	bool is_watching, is_ending;
	struct client client[MAX_CLIENTS];
};

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct calls, name)},
	CALLS(X)
#undef X
};

#define N_SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

/* ---- clients that take too long ---- */

static int64_t now_ns(void)
{
	return jm_clock_now(jm_clock_real());
}

/* The client with that fd (-1: a free place) is fd's from now on; libmicrohttpd closes a socket
 * only after the call with -1. */
static void set_client(struct jm_http_server *s, int old, int fd)
{
	pthread_mutex_lock(&s->lock);
	for (int i = 0; i < MAX_CLIENTS; i++)
		if (s->client[i].fd == old) {
			s->client[i] = (struct client){fd, now_ns()};
			break;
		}
	pthread_mutex_unlock(&s->lock);
}

static int fd_of(const struct jm_http_server *s, struct MHD_Connection *client)
{
	const union MHD_ConnectionInfo *info =
		s->call.MHD_get_connection_info(client, MHD_CONNECTION_INFO_CONNECTION_FD);

	return info ? info->connect_fd : -1;
}

static void on_connection(void *arg, struct MHD_Connection *client, void **context,
	enum MHD_ConnectionNotificationCode code)
{
	int fd = fd_of(arg, client);

	(void)context;
	if (fd >= 0 && code == MHD_CONNECTION_NOTIFY_STARTED)
		set_client(arg, -1, fd);
	else if (fd >= 0)
		set_client(arg, fd, -1);
}

static void on_completed(void *arg, struct MHD_Connection *client, void **state,
	enum MHD_RequestTerminationCode code)
{
	int fd = fd_of(arg, client);

	(void)state;
	(void)code;
	if (fd >= 0)
		set_client(arg, fd, fd);
}

/* libmicrohttpd's own limit is for silence: a client that sends a byte now and then would keep its
 * place. The machine's wall clock may be set meanwhile. */
static void *watch(void *arg)
{
	struct jm_http_server *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->is_ending) {
		struct timespec until = jm_clock_from_now(JM_SECOND);

		pthread_cond_clockwait(&s->ended, &s->lock, CLOCK_MONOTONIC, &until);
		for (int i = 0; i < MAX_CLIENTS; i++)
			if (s->client[i].fd >= 0 &&
				now_ns() - s->client[i].since_ns > REQUEST_S * JM_SECOND)
				shutdown(s->client[i].fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- requests ---- */

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

static bool is_for_us(const struct jm_http_server *s, struct MHD_Connection *client)
{
	const char *host = s->call.MHD_lookup_connection_value(client, MHD_HEADER_KIND, "Host");

	return jm_http_names_know(&s->names, host, fd_of(s, client));
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
	if (!is_for_us(s, client))
		return refuse(s, client, 421,
			"The metrics are not known by this host name; name it with joulemark "
			"export "
			"--host NAME.\n");
	accept = s->call.MHD_lookup_connection_value(client, MHD_HEADER_KIND, "Accept");
	page = s->page(s->arg, url, accept ? accept : "");
	return page.text ? answer(s, client, MHD_HTTP_OK, &page)
			 : refuse(s, client, MHD_HTTP_NOT_FOUND, "There is no such page.\n");
}

static int listen_on(struct jm_http_server *s, const char *address, int port, const char *hosts,
	struct jm_err *err)
{
	struct sockaddr_storage where;
	unsigned int flags = MHD_USE_INTERNAL_POLLING_THREAD;

	if (jm_http_address(address, port, &where, err))
		return err->code;
	if (where.ss_family == AF_INET6)
		flags |= MHD_USE_IPv6;
	jm_http_names_init(&s->names, hosts, jm_http_address_is_any(&where));
	errno = 0;
	s->daemon = s->call.MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, on_request, s,
		MHD_OPTION_SOCK_ADDR, &where, MHD_OPTION_CONNECTION_LIMIT, MAX_CLIENTS,
		MHD_OPTION_PER_IP_CONNECTION_LIMIT, PER_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT,
		IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, BYTES, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, s, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_END);
	return s->daemon ? 0 : jm_http_cannot_listen(address, port, err);
}

int jm_http_server_try(struct jm_err *err)
{
	struct calls calls;

	return jm_microhttpd_open(symbols, N_SYMBOLS, &calls, err);
}

static struct jm_http_server *new_server(jm_http_page_fn *page, void *arg)
{
	struct jm_http_server *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->page = page;
	s->arg = arg;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->ended, NULL);
	for (int i = 0; i < MAX_CLIENTS; i++)
		s->client[i].fd = -1;
	return s;
}

static int start_watch(struct jm_http_server *s, struct jm_err *err)
{
	s->is_watching = !pthread_create(&s->watch, NULL, watch, s);
	return s->is_watching ? 0 : jm_err_set(err, JM_ENOMEM, "Cannot start a thread.");
}

int jm_http_server_start(const char *address, int port, const char *hosts, jm_http_page_fn *page,
	void *arg, struct jm_http_server **ret, int *ret_port, struct jm_err *err)
{
	struct jm_http_server *s = new_server(page, arg);
	const union MHD_DaemonInfo *bound;
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a server.");
	rc = jm_microhttpd_open(symbols, N_SYMBOLS, &s->call, err);
	if (!rc)
		rc = start_watch(s, err);
	if (!rc)
		rc = listen_on(s, address, port, hosts, err);
	if (rc) {
		jm_http_server_stop(s);
		return rc;
	}
	bound = s->call.MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
	*ret_port = bound ? bound->port : port;
	*ret = s;
	return 0;
}

static void end_watch(struct jm_http_server *s)
{
	pthread_mutex_lock(&s->lock);
	s->is_ending = true;
	pthread_cond_signal(&s->ended);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->watch, NULL);
}

void jm_http_server_stop(struct jm_http_server *s)
{
	if (!s)
		return;
	if (s->daemon)
		s->call.MHD_stop_daemon(s->daemon);
	if (s->is_watching)
		end_watch(s);
	pthread_cond_destroy(&s->ended);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
