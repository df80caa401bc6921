/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd's thread: connections, questions while they come, and the bytes of answers. */
#include "answer_connections.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)16384) /* of an answer */

/* ---- exchanges ------------------------------------------------------------------------------- */

/* All with the lock held. */

/* Room for `wanted` bytes, of `most` at most. */
bool jm__answer_hold(
	struct jm_answer_server *s, char **at, size_t *room, size_t wanted, size_t most)
{
	size_t size = 2 * wanted < most ? 2 * wanted : most, others = s->held - *room;
	char *more;

	if (wanted <= *room)
		return true;
	if (others + size > JM_ANSWER_HELD)
		size = wanted;
	if (wanted > most || others + size > JM_ANSWER_HELD)
		return false;
	more = realloc(*at, size);
	if (!more)
		return false;
	s->held += size - *room;
	*at = more;
	*room = size;
	return true;
}

void jm__answer_let_go(struct jm_answer_server *s, char **at, size_t *room)
{
	free(*at);
	s->held -= *room;
	*at = NULL;
	*room = 0;
}

void jm__exchange_free_if_over(struct jm__exchange *e)
{
	if (!e->is_ended || !e->is_gone)
		return;
	jm__answer_let_go(e->server, &e->body, &e->room);
	jm__answer_let_go(e->server, &e->out, &e->room_out);
	free(e->method);
	free(e->path);
	free(e);
}

void jm__exchange_resume(struct jm__exchange *e)
{
	if (!e->is_suspended || e->is_gone)
		return;
	e->is_suspended = false;
	e->server->call.MHD_resume_connection(e->client);
}

static void put_under_way(
	struct jm_answer_server *s, struct jm__exchange *old, struct jm__exchange *e)
{
	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->under_way[i] == old) {
			s->under_way[i] = e;
			break;
		}
}

/* ---- libmicrohttpd's thread ------------------------------------------------------------------ */

static int fd_of(const struct jm_answer_server *s, struct MHD_Connection *client)
{
	const union MHD_ConnectionInfo *info =
		s->call.MHD_get_connection_info(client, MHD_CONNECTION_INFO_CONNECTION_FD);

	return info ? info->connect_fd : -1;
}

void jm__answer_set_client(struct jm_answer_server *s, int old, int fd, int64_t since_ns)
{
	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->client[i].fd == old) {
			s->client[i] = (struct jm__answer_client){fd, since_ns};
			break;
		}
}

/* libmicrohttpd closes a socket only after the call at its end. */
void jm__answer_on_connection(void *arg, struct MHD_Connection *client, void **context,
	enum MHD_ConnectionNotificationCode code)
{
	struct jm_answer_server *s = arg;
	int fd = fd_of(s, client);

	(void)context;
	pthread_mutex_lock(&s->lock);
	if (fd >= 0 && code == MHD_CONNECTION_NOTIFY_STARTED)
		jm__answer_set_client(s, -1, fd, jm__answer_now_ns());
	else if (fd >= 0)
		jm__answer_set_client(s, fd, -1, 0);
	pthread_mutex_unlock(&s->lock);
}

void jm__answer_on_completed(void *arg, struct MHD_Connection *client, void **state,
	enum MHD_RequestTerminationCode code)
{
	struct jm_answer_server *s = arg;
	struct jm__exchange *e = *state;
	int fd = fd_of(s, client);

	(void)code;
	pthread_mutex_lock(&s->lock);
	if (fd >= 0)
		jm__answer_set_client(s, fd, fd, jm__answer_now_ns()); /* its next question */
	if (e) {
		e->is_gone = true;
		put_under_way(s, e, NULL);
		pthread_cond_signal(&s->over);
		if (!e->is_queued)
			e->is_ended = true; /* the caller never sees it */
		jm__exchange_free_if_over(e);
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

/* Bytes of the body as the client announces them; 0 = it does not. */
static unsigned long long announced(const struct jm_answer_server *s, struct MHD_Connection *client)
{
	const char *n = s->call.MHD_lookup_connection_value(
		client, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

	return n ? strtoull(n, NULL, 10) : 0;
}

static bool has_room_for(struct jm_answer_server *s, unsigned long long bytes)
{
	bool has;

	pthread_mutex_lock(&s->lock);
	has = s->held + bytes <= JM_ANSWER_HELD;
	pthread_mutex_unlock(&s->lock);
	return has;
}

static enum MHD_Result refuse_for_memory(struct jm_answer_server *s, struct MHD_Connection *client)
{
	return refuse(s, client, MHD_HTTP_SERVICE_UNAVAILABLE,
		"{\"error\":{\"message\":\"Other questions fill the server's memory; ask again "
		"later.\"}}\n");
}

/* The rest of the body is read and forgotten; libmicrohttpd takes an answer only after it. */
static void forget_body(struct jm__exchange *e)
{
	pthread_mutex_lock(&e->server->lock);
	e->is_cut = true;
	jm__answer_let_go(e->server, &e->body, &e->room);
	pthread_mutex_unlock(&e->server->lock);
}

/* Takes bytes of the body; false: there is no memory. */
static bool take_body(struct jm__exchange *e, const char *bytes, size_t n)
{
	bool has;

	pthread_mutex_lock(&e->server->lock);
	has = jm__answer_hold(e->server, &e->body, &e->room, e->asked.n + n + 1, JM_ANSWER_BODY);
	pthread_mutex_unlock(&e->server->lock);
	if (!has)
		return false;
	memcpy(e->body + e->asked.n, bytes, n);
	e->asked.n += n;
	e->body[e->asked.n] = '\0';
	return true;
}

/* The next bytes of an answer, from libmicrohttpd's thread. */
static ssize_t read_answer(void *arg, uint64_t at, char *to, size_t most)
{
	struct jm__exchange *e = arg;
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
		n = e->is_cut ? MHD_CONTENT_READER_END_WITH_ERROR
			      : MHD_CONTENT_READER_END_OF_STREAM;
	} else {
		e->is_suspended = true;
		s->call.MHD_suspend_connection(e->client);
	}
	pthread_mutex_unlock(&s->lock);
	return n;
}

static enum MHD_Result begin_answer(struct jm_answer_server *s, struct jm__exchange *e)
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
static void hand_over(struct jm_answer_server *s, struct jm__exchange *e)
{
	e->asked = (struct jm_asked){
		e->method, e->path, e->body ? e->body : "", e->asked.n, jm__answer_now_ns()};
	e->is_queued = true;
	e->is_suspended = true;
	jm__answer_set_client(s, fd_of(s, e->client), fd_of(s, e->client), 0);
	s->call.MHD_suspend_connection(e->client);
	*s->last = e;
	s->last = &e->next;
	pthread_cond_signal(&s->asked);
	if (s->notify)
		s->notify(s->notify_arg);
}

static struct jm__exchange *new_exchange(struct jm_answer_server *s, struct MHD_Connection *client,
	const char *method, const char *url)
{
	struct jm__exchange *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	*e = (struct jm__exchange){.server = s,
		.client = client,
		.fd = fd_of(s, client),
		.method = strdup(method),
		.path = strdup(url)};
	if (e->method && e->path)
		return e;
	free(e->method);
	free(e->path);
	free(e);
	return NULL;
}

/* Called when the body has come, and once more when the caller has begun the answer. libmicrohttpd
 * locks a response while it reads from it, so none is made with the lock held. */
static enum MHD_Result body_is_complete(struct jm_answer_server *s, struct jm__exchange *e)
{
	bool begins, is_over;

	if (!e->is_queued && e->is_cut)
		return refuse_for_memory(s, e->client);
	pthread_mutex_lock(&s->lock);
	begins = e->status != 0;
	is_over = (s->is_ending || e->is_ended) && !begins;
	if (!is_over && !e->is_queued)
		hand_over(s, e);
	pthread_mutex_unlock(&s->lock);
	if (is_over)
		return MHD_NO;
	return begins ? begin_answer(s, e) : MHD_YES;
}

/* Called when the headers have come. */
static enum MHD_Result begin_question(struct jm_answer_server *s, struct MHD_Connection *client,
	const char *method, const char *url, void **state)
{
	unsigned long long bytes = announced(s, client);
	struct jm__exchange *e;

	if (bytes >= JM_ANSWER_BODY)
		return refuse(s, client, MHD_HTTP_CONTENT_TOO_LARGE,
			"{\"error\":{\"message\":\"The question is too long.\"}}\n");
	if (!is_for_us(s, client))
		return refuse(s, client, 421,
			"{\"error\":{\"message\":\"Use the address of this server.\"}}\n");
	if (!has_room_for(s, bytes))
		return refuse_for_memory(s, client);
	*state = e = new_exchange(s, client, method, url);
	pthread_mutex_lock(&s->lock);
	if (e)
		put_under_way(s, NULL, e);
	pthread_mutex_unlock(&s->lock);
	return e ? MHD_YES : MHD_NO;
}

enum MHD_Result jm__answer_on_request(void *arg, struct MHD_Connection *client, const char *url,
	const char *method, const char *version, const char *upload, size_t *n_upload, void **state)
{
	struct jm_answer_server *s = arg;
	struct jm__exchange *e = *state;

	(void)version;
	if (!e)
		return begin_question(s, client, method, url, state);
	if (*n_upload) {
		if (e->asked.n + *n_upload >= JM_ANSWER_BODY)
			return MHD_NO; /* the connection is closed */
		if (!e->is_cut && !take_body(e, upload, *n_upload))
			forget_body(e);
		*n_upload = 0;
		return MHD_YES;
	}
	return body_is_complete(s, e);
}
