/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's thread. */
#include "answer_server.h"
#include "answer_connections.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define IDLE_S	    10		       /* a client that says nothing for so long is dropped */
#define BYTES	    ((size_t)32768)    /* of memory per client, its headers included */
#define MOST_UNSENT ((size_t)16 << 20) /* bytes that a client may leave unread */
#define LOOK_NS	    (JM_SECOND / 10)   /* between two looks for clients that have left */
#define LAST_NS	    JM_SECOND	       /* that clients have at the end */

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct jm__answer_calls, name)},
	JM__ANSWER_CALLS(X)
#undef X
};

#define N_SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

/* ---- the caller's thread --------------------------------------------------------------------- */

/* libmicrohttpd's own limit is for silence: a client that sends a byte now and then would keep its
 * place. */
static void drop_slow(struct jm_answer_server *s)
{
	int64_t since = jm__answer_now_ns() - JM_ANSWER_SECONDS * JM_SECOND;

	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->client[i].fd >= 0 && s->client[i].since_ns && s->client[i].since_ns < since)
			shutdown(s->client[i].fd, SHUT_RDWR);
}

/* libmicrohttpd does not look at connections that are suspended. With the lock held, under which no
 * fd of an exchange that is under way is closed. */
static void find_left(struct jm_answer_server *s)
{
	struct pollfd look[JM_ANSWER_CLIENTS];
	struct jm__exchange *whose[JM_ANSWER_CLIENTS];
	nfds_t n = 0;

	if (jm__answer_now_ns() < s->look_ns)
		return;
	s->look_ns = jm__answer_now_ns() + LOOK_NS;
	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->under_way[i] && s->under_way[i]->is_queued) {
			look[n] = (struct pollfd){.fd = s->under_way[i]->fd, .events = POLLRDHUP};
			whose[n++] = s->under_way[i];
		}
	if (!n || poll(look, n, 0) <= 0)
		return;
	for (nfds_t i = 0; i < n; i++)
		whose[i]->has_left = whose[i]->has_left || look[i].revents;
}

struct jm_asked *jm_answer_server_next(struct jm_answer_server *s, int64_t t_ns)
{
	struct timespec until = {.tv_sec = t_ns / JM_SECOND, .tv_nsec = t_ns % JM_SECOND};
	struct jm__exchange *e;

	pthread_mutex_lock(&s->lock);
	drop_slow(s);
	find_left(s);
	while (!s->first && jm__answer_now_ns() < t_ns)
		if (pthread_cond_timedwait(&s->asked, &s->lock, &until) == ETIMEDOUT)
			break;
	e = s->first;
	if (e)
		s->first = e->next;
	if (!s->first)
		s->last = &s->first;
	pthread_mutex_unlock(&s->lock);
	return e ? &e->asked : NULL;
}

void jm_answer_server_notify(struct jm_answer_server *s, void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&s->lock);
	s->notify = fn;
	s->notify_arg = arg;
	pthread_mutex_unlock(&s->lock);
}

static struct jm__exchange *exchange_of(const struct jm_asked *asked)
{
	return (struct jm__exchange *)(uintptr_t)asked;
}

void jm_asked_begin(struct jm_asked *asked, int status, const char *type)
{
	struct jm__exchange *e = exchange_of(asked);

	pthread_mutex_lock(&e->server->lock);
	e->status = status;
	e->type = type;
	jm__exchange_resume(e);
	pthread_mutex_unlock(&e->server->lock);
}

void jm_asked_drop_body(struct jm_asked *asked)
{
	struct jm__exchange *e = exchange_of(asked);

	pthread_mutex_lock(&e->server->lock);
	asked->body = "";
	asked->n = 0;
	jm__answer_let_go(e->server, &e->body, &e->room);
	pthread_mutex_unlock(&e->server->lock);
}

bool jm_asked_write(struct jm_asked *asked, const char *text, size_t n)
{
	struct jm__exchange *e = exchange_of(asked);
	bool good;

	pthread_mutex_lock(&e->server->lock);
	good = !e->is_gone && !e->is_cut &&
	       jm__answer_hold(e->server, &e->out, &e->room_out, e->n_out + n, MOST_UNSENT);
	if (good) {
		memcpy(e->out + e->n_out, text, n);
		e->n_out += n;
		jm__exchange_resume(e);
	}
	e->is_cut = !good;
	pthread_mutex_unlock(&e->server->lock);
	return good;
}

bool jm_asked_is_gone(const struct jm_asked *asked)
{
	struct jm__exchange *e = exchange_of(asked);
	bool gone;

	pthread_mutex_lock(&e->server->lock);
	gone = e->is_gone || e->has_left;
	pthread_mutex_unlock(&e->server->lock);
	return gone;
}

void jm_asked_break(struct jm_asked *asked)
{
	struct jm__exchange *e = exchange_of(asked);

	pthread_mutex_lock(&e->server->lock);
	e->is_cut = true;
	pthread_mutex_unlock(&e->server->lock);
}

void jm_asked_end(struct jm_asked *asked)
{
	struct jm__exchange *e = exchange_of(asked);
	struct jm_answer_server *s = e->server;

	pthread_mutex_lock(&s->lock);
	e->is_ended = true;
	if (!e->is_gone)
		jm__answer_set_client(s, e->fd, e->fd, jm__answer_now_ns());
	jm__exchange_resume(e);
	jm__exchange_free_if_over(e);
	pthread_mutex_unlock(&s->lock);
}

/* ---- start and stop -------------------------------------------------------------------------- */

/* The other half of the files is for what this process does besides: sensors, the record. */
static unsigned int most_connections(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur / 2 > JM_ANSWER_CLIENTS)
		return JM_ANSWER_CLIENTS;
	return (unsigned int)files.rlim_cur / 2;
}

static int listen_on(struct jm_answer_server *s, const char *address, int port, struct jm_err *err)
{
	struct sockaddr_storage where;
	unsigned int flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;

	if (jm_http_address(address, port, &where, err))
		return err->code;
	if (where.ss_family == AF_INET6)
		flags |= MHD_USE_IPv6;
	jm_http_names_init(&s->names, NULL, jm_http_address_is_any(&where));
	errno = 0;
	s->daemon = s->call.MHD_start_daemon(flags, (uint16_t)port, NULL, NULL,
		jm__answer_on_request, s, MHD_OPTION_SOCK_ADDR, &where, MHD_OPTION_CONNECTION_LIMIT,
		most_connections(), MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)IDLE_S,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, BYTES, MHD_OPTION_NOTIFY_CONNECTION,
		jm__answer_on_connection, s, MHD_OPTION_NOTIFY_COMPLETED, jm__answer_on_completed,
		s, MHD_OPTION_END);
	return s->daemon ? 0 : jm_http_cannot_listen(address, port, err);
}

static struct jm_answer_server *new_server(void)
{
	struct jm_answer_server *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;

	if (!s)
		return NULL;
	s->under_way = calloc(JM_ANSWER_CLIENTS, sizeof(*s->under_way));
	s->client = calloc(JM_ANSWER_CLIENTS, sizeof(*s->client));
	for (int i = 0; s->client && i < JM_ANSWER_CLIENTS; i++)
		s->client[i].fd = -1;
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->asked, &attr);
	pthread_cond_init(&s->over, &attr);
	pthread_condattr_destroy(&attr);
	return s;
}

int jm_answer_server_start(const char *address, int port, struct jm_answer_server **ret,
	int *ret_port, struct jm_err *err)
{
	struct jm_answer_server *s = new_server();
	const union MHD_DaemonInfo *bound;
	int rc;

	if (!s || !s->under_way || !s->client)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for a server.");
	else
		rc = jm_microhttpd_open(symbols, N_SYMBOLS, &s->call, err);
	if (!rc)
		rc = listen_on(s, address, port, err);
	if (rc) {
		jm_answer_server_stop(s);
		return rc;
	}
	bound = s->call.MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
	*ret_port = bound ? bound->port : port;
	*ret = s;
	return 0;
}

/* Is an answer under way, whose client has not read all of it? */
static bool has_unread(const struct jm_answer_server *s)
{
	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->under_way[i] && s->under_way[i]->status)
			return true;
	return false;
}

/* With the lock held. */
static void await_clients(struct jm_answer_server *s)
{
	int64_t t_ns = jm__answer_now_ns() + LAST_NS;
	const struct timespec until = {.tv_sec = t_ns / JM_SECOND, .tv_nsec = t_ns % JM_SECOND};

	while (has_unread(s) && jm__answer_now_ns() < t_ns)
		pthread_cond_timedwait(&s->over, &s->lock, &until);
}

/* libmicrohttpd cannot end while a connection is suspended. */
static void end_all(struct jm_answer_server *s)
{
	pthread_mutex_lock(&s->lock);
	s->is_ending = true;
	for (struct jm__exchange *e = s->first, *next; e; e = next) { /* that nobody has taken */
		next = e->next;
		e->is_ended = true;
		jm__exchange_free_if_over(e);
	}
	s->first = NULL;
	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->under_way[i]) {
			s->under_way[i]->is_ended = true;
			jm__exchange_resume(s->under_way[i]);
		}
	await_clients(s);
	pthread_mutex_unlock(&s->lock);
}

void jm_answer_server_stop(struct jm_answer_server *s)
{
	if (!s)
		return;
	if (s->daemon) {
		end_all(s);
		s->call.MHD_stop_daemon(s->daemon);
	}
	pthread_cond_destroy(&s->asked);
	pthread_cond_destroy(&s->over);
	pthread_mutex_destroy(&s->lock);
	free(s->under_way);
	free(s->client);
	free(s);
}
