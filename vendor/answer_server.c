/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads: libmicrohttpd's and the caller's. A question whose body is complete is suspended until the caller has begun its
 * answer, and again whenever the answer has no bytes to send. All of it is guarded by the server's lock.
 */
#include "answer_server.h"
#include "http_names.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http_library.h"

#define IDLE_S	    10		       /* a client that says nothing for so long is dropped */
#define BYTES	    ((size_t)32768)    /* of memory per client, its headers included */
#define BLOCK	    ((size_t)16384)    /* of an answer */
#define MOST_UNSENT ((size_t)16 << 20) /* bytes that a client may leave unread */

#define CALLS(X)                                                                                   \
	X(MHD_start_daemon)                                                                        \
	X(MHD_stop_daemon)                                                                         \
	X(MHD_get_daemon_info)                                                                     \
	X(MHD_get_connection_info)                                                                 \
	X(MHD_lookup_connection_value)                                                             \
	X(MHD_create_response_from_buffer)                                                         \
	X(MHD_create_response_from_callback)                                                       \
	X(MHD_add_response_header)                                                                 \
	X(MHD_queue_response)                                                                      \
	X(MHD_destroy_response)                                                                    \
	X(MHD_suspend_connection)                                                                  \
	X(MHD_resume_connection)

struct calls {
#define X(name) __typeof__(&name) name;
	CALLS(X)
#undef X
};

/* A question and its answer; freed when both threads are done with it. */
struct exchange {
	struct jm_asked asked; /* first, so that one is the other */
	struct jm_answer_server *server;
	struct exchange *next; /* in the queue of those that wait for the caller */
	struct MHD_Connection *client;
	char *method, *path, *body;
	size_t room;
	bool is_queued, is_suspended;
	bool is_ended, is_gone; /* done with it: the caller, libmicrohttpd */
	int status;		/* 0 = the answer has not begun */
	const char *type;
	char *out;
	size_t n_out, room_out;
};

/* A connection, with or without a question under way. */
struct client {
	int fd;		  /* -1 = free */
	int64_t since_ns; /* when the question that is not complete began; 0 = none is waited for */
};

struct jm_answer_server {
	struct calls call;
	struct MHD_Daemon *daemon;
	struct jm_http_names names;
	pthread_mutex_t lock; /* of all that follows and of exchanges */
	pthread_cond_t asked;
	struct exchange *first, **last; /* questions that the caller has not taken */
	struct exchange **under_way;	/* [JM_ANSWER_CLIENTS]; NULL = free */
	struct client *client;		/* [JM_ANSWER_CLIENTS] */
	bool is_ending;
};

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct calls, name)},
	CALLS(X)
#undef X
};

#define N_SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

static int64_t now_ns(void)
{
	return jm_clock_now(jm_clock_real());
}

/* ---- exchanges ------------------------------------------------------------------------------------------ */

/* Both with the lock held. */
static void free_if_over(struct exchange *e)
{
	if (!e->is_ended || !e->is_gone)
		return;
	free(e->method);
	free(e->path);
	free(e->body);
	free(e->out);
	free(e);
}

static void resume(struct exchange *e)
{
	if (!e->is_suspended || e->is_gone)
		return;
	e->is_suspended = false;
	e->server->call.MHD_resume_connection(e->client);
}

static void put_under_way(struct jm_answer_server *s, struct exchange *old, struct exchange *e)
{
	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->under_way[i] == old) {
			s->under_way[i] = e;
			break;
		}
}

/* ---- libmicrohttpd's thread ----------------------------------------------------------------------------- */

static int fd_of(const struct jm_answer_server *s, struct MHD_Connection *client)
{
	const union MHD_ConnectionInfo *info =
		s->call.MHD_get_connection_info(client, MHD_CONNECTION_INFO_CONNECTION_FD);

	return info ? info->connect_fd : -1;
}

/* The client with that fd (-1: a free place) becomes fd; since_ns as in struct client. With the lock held. */
static void set_client(struct jm_answer_server *s, int old, int fd, int64_t since_ns)
{
	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->client[i].fd == old) {
			s->client[i] = (struct client){fd, since_ns};
			break;
		}
}

/* libmicrohttpd closes a socket only after the call at its end. */
static void on_connection(void *arg, struct MHD_Connection *client, void **context,
	enum MHD_ConnectionNotificationCode code)
{
	struct jm_answer_server *s = arg;
	int fd = fd_of(s, client);

	(void)context;
	pthread_mutex_lock(&s->lock);
	if (fd >= 0 && code == MHD_CONNECTION_NOTIFY_STARTED)
		set_client(s, -1, fd, now_ns());
	else if (fd >= 0)
		set_client(s, fd, -1, 0);
	pthread_mutex_unlock(&s->lock);
}

static void on_completed(void *arg, struct MHD_Connection *client, void **state,
	enum MHD_RequestTerminationCode code)
{
	struct jm_answer_server *s = arg;
	struct exchange *e = *state;
	int fd = fd_of(s, client);

	(void)code;
	pthread_mutex_lock(&s->lock);
	if (fd >= 0)
		set_client(s, fd, fd, now_ns()); /* its next question */
	if (e) {
		e->is_gone = true;
		put_under_way(s, e, NULL);
		if (!e->is_queued)
			e->is_ended = true; /* the caller never sees it */
		free_if_over(e);
	}
	*state = NULL;
	pthread_mutex_unlock(&s->lock);
}

static enum MHD_Result refuse(
	struct jm_answer_server *s, struct MHD_Connection *client, int status, const char *why)
{
	struct MHD_Response *response = s->call.MHD_create_response_from_buffer(
		strlen(why), (char *)(uintptr_t)why, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	s->call.MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
	s->call.MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	result = s->call.MHD_queue_response(client, (unsigned int)status, response);
	s->call.MHD_destroy_response(response);
	return result;
}

static bool is_for_us(const struct jm_answer_server *s, struct MHD_Connection *client)
{
	const char *host = s->call.MHD_lookup_connection_value(client, MHD_HEADER_KIND, "Host");

	return jm_http_names_know(&s->names, host, fd_of(s, client));
}

static bool is_too_long(const struct jm_answer_server *s, struct MHD_Connection *client)
{
	const char *n = s->call.MHD_lookup_connection_value(
		client, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

	return n && strtoull(n, NULL, 10) >= JM_ANSWER_BODY;
}

/* Takes bytes of the body; false: too many, or memory ran out. */
static bool take_body(struct exchange *e, const char *bytes, size_t n)
{
	size_t wanted = e->asked.n + n + 1;
	char *more = e->body;

	if (wanted > JM_ANSWER_BODY)
		return false;
	if (wanted > e->room)
		more = realloc(e->body, 2 * wanted);
	if (!more)
		return false;
	e->room = wanted > e->room ? 2 * wanted : e->room;
	e->body = more;
	memcpy(e->body + e->asked.n, bytes, n);
	e->asked.n += n;
	e->body[e->asked.n] = '\0';
	return true;
}

/* The next bytes of an answer, from libmicrohttpd's thread. */
static ssize_t read_answer(void *arg, uint64_t at, char *to, size_t most)
{
	struct exchange *e = arg;
	struct jm_answer_server *s = e->server;
	ssize_t n = 0;

	(void)at;
	pthread_mutex_lock(&s->lock);
	if (e->n_out) {
		n = (ssize_t)(e->n_out < most ? e->n_out : most);
		memcpy(to, e->out, (size_t)n);
		e->n_out -= (size_t)n;
		memmove(e->out, e->out + n, e->n_out);
	} else if (e->is_ended) {
		n = MHD_CONTENT_READER_END_OF_STREAM;
	} else {
		e->is_suspended = true;
		s->call.MHD_suspend_connection(e->client);
	}
	pthread_mutex_unlock(&s->lock);
	return n;
}

static enum MHD_Result begin_answer(struct jm_answer_server *s, struct exchange *e)
{
	struct MHD_Response *response = s->call.MHD_create_response_from_callback(
		MHD_SIZE_UNKNOWN, BLOCK, read_answer, e, NULL);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	s->call.MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, e->type);
	result = s->call.MHD_queue_response(e->client, (unsigned int)e->status, response);
	s->call.MHD_destroy_response(response);
	return result;
}

/* The body is complete: the caller's turn. With the lock held. */
static void hand_over(struct jm_answer_server *s, struct exchange *e)
{
	e->asked = (struct jm_asked){e->method, e->path, e->body ? e->body : "", e->asked.n};
	e->is_queued = true;
	e->is_suspended = true;
	set_client(s, fd_of(s, e->client), fd_of(s, e->client), 0);
	s->call.MHD_suspend_connection(e->client);
	*s->last = e;
	s->last = &e->next;
	pthread_cond_signal(&s->asked);
}

static struct exchange *new_exchange(struct jm_answer_server *s, struct MHD_Connection *client,
	const char *method, const char *url)
{
	struct exchange *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	*e = (struct exchange){
		.server = s, .client = client, .method = strdup(method), .path = strdup(url)};
	if (e->method && e->path)
		return e;
	e->is_ended = e->is_gone = true;
	free_if_over(e);
	return NULL;
}

/* Called when the body has come, and once more when the caller has begun the answer. libmicrohttpd locks a response while it
 * reads from it, so none is made with the lock held. */
static enum MHD_Result body_is_complete(struct jm_answer_server *s, struct exchange *e)
{
	bool begins, is_over;

	pthread_mutex_lock(&s->lock);
	begins = e->status != 0;
	is_over = s->is_ending || (e->is_ended && !begins);
	if (!is_over && !e->is_queued)
		hand_over(s, e);
	pthread_mutex_unlock(&s->lock);
	if (is_over)
		return MHD_NO;
	return begins ? begin_answer(s, e) : MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *client, const char *url,
	const char *method, const char *version, const char *upload, size_t *n_upload, void **state)
{
	struct jm_answer_server *s = arg;
	struct exchange *e = *state;

	(void)version;
	if (!e) {
		if (is_too_long(s, client))
			return refuse(s, client, MHD_HTTP_CONTENT_TOO_LARGE,
				"{\"error\":{\"message\":\"The question is too long.\"}}\n");
		if (!is_for_us(s, client))
			return refuse(s, client, 421,
				"{\"error\":{\"message\":\"Use the address of this server.\"}}\n");
		*state = e = new_exchange(s, client, method, url);
		pthread_mutex_lock(&s->lock);
		if (e)
			put_under_way(s, NULL, e);
		pthread_mutex_unlock(&s->lock);
		return e ? MHD_YES : MHD_NO;
	}
	if (*n_upload) {
		if (!take_body(e, upload, *n_upload))
			return MHD_NO; /* the connection is closed */
		*n_upload = 0;
		return MHD_YES;
	}
	return body_is_complete(s, e);
}

/* ---- the caller's thread -------------------------------------------------------------------------------- */

/* libmicrohttpd's own limit is for silence: a client that sends a byte now and then would keep its place. */
static void drop_slow(struct jm_answer_server *s)
{
	int64_t since = now_ns() - JM_ANSWER_SECONDS * JM_SECOND;

	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->client[i].fd >= 0 && s->client[i].since_ns && s->client[i].since_ns < since)
			shutdown(s->client[i].fd, SHUT_RDWR);
}

struct jm_asked *jm_answer_server_next(struct jm_answer_server *s, int64_t t_ns)
{
	struct timespec until = {.tv_sec = t_ns / JM_SECOND, .tv_nsec = t_ns % JM_SECOND};
	struct exchange *e;

	pthread_mutex_lock(&s->lock);
	drop_slow(s);
	while (!s->first && now_ns() < t_ns)
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

static struct exchange *exchange_of(const struct jm_asked *asked)
{
	return (struct exchange *)(uintptr_t)asked;
}

void jm_asked_begin(struct jm_asked *asked, int status, const char *type)
{
	struct exchange *e = exchange_of(asked);

	pthread_mutex_lock(&e->server->lock);
	e->status = status;
	e->type = type;
	resume(e);
	pthread_mutex_unlock(&e->server->lock);
}

/* Room for n bytes more; with the lock held. */
static bool make_room(struct exchange *e, size_t n)
{
	size_t wanted = e->n_out + n;
	char *more;

	if (wanted > MOST_UNSENT)
		return false;
	if (wanted <= e->room_out)
		return true;
	more = realloc(e->out, 2 * wanted);
	if (!more)
		return false;
	e->out = more;
	e->room_out = 2 * wanted;
	return true;
}

bool jm_asked_write(struct jm_asked *asked, const char *text, size_t n)
{
	struct exchange *e = exchange_of(asked);
	bool good;

	pthread_mutex_lock(&e->server->lock);
	good = !e->is_gone && make_room(e, n);
	if (good) {
		memcpy(e->out + e->n_out, text, n);
		e->n_out += n;
		resume(e);
	}
	pthread_mutex_unlock(&e->server->lock);
	return good;
}

bool jm_asked_is_gone(const struct jm_asked *asked)
{
	struct exchange *e = exchange_of(asked);
	bool gone;

	pthread_mutex_lock(&e->server->lock);
	gone = e->is_gone;
	pthread_mutex_unlock(&e->server->lock);
	return gone;
}

void jm_asked_end(struct jm_asked *asked)
{
	struct exchange *e = exchange_of(asked);
	struct jm_answer_server *s = e->server;

	pthread_mutex_lock(&s->lock);
	e->is_ended = true;
	resume(e);
	free_if_over(e);
	pthread_mutex_unlock(&s->lock);
}

/* ---- start and stop ------------------------------------------------------------------------------------- */

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
	s->daemon = s->call.MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, on_request, s,
		MHD_OPTION_SOCK_ADDR, &where, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned int)JM_ANSWER_CLIENTS, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned int)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, BYTES,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, s, MHD_OPTION_END);
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

/* libmicrohttpd cannot end while a connection is suspended. */
static void end_all(struct jm_answer_server *s)
{
	pthread_mutex_lock(&s->lock);
	s->is_ending = true;
	for (struct exchange *e = s->first, *next; e; e = next) { /* that nobody has taken */
		next = e->next;
		e->is_ended = true;
		free_if_over(e);
	}
	s->first = NULL;
	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->under_way[i]) {
			s->under_way[i]->is_ended = true;
			resume(s->under_way[i]);
		}
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
	pthread_mutex_destroy(&s->lock);
	free(s->under_way);
	free(s->client);
	free(s);
}
