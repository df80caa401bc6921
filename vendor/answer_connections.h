/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of an answer server (answer_server.h). Threads: libmicrohttpd's
 * (answer_connections.c), the caller's, and others to which it gives questions (answer_server.c).
 * A question whose body is complete is suspended until the caller has begun its answer, and again
 * whenever the answer has no bytes to send. All of it is guarded by the server's lock.
 */
#ifndef JM_VENDOR_ANSWER_CONNECTIONS_H
#define JM_VENDOR_ANSWER_CONNECTIONS_H

#include "http_question.h"
#include "http_names.h"
#include "base/clock.h"

#include <pthread.h>

#include "microhttpd_library.h"

#define JM__ANSWER_CALLS(X)                                                                        \
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

struct jm__answer_calls {
#define X(name) __typeof__(&name) name;
	JM__ANSWER_CALLS(X)
#undef X
};

/* A question and its answer; freed when the caller and libmicrohttpd are done with it. */
struct jm__exchange {
	struct jm_asked asked; /* first, so that one is the other */
	struct jm_answer_server *server;
	struct jm__exchange *next; /* in the queue of those that wait for the caller */
	struct MHD_Connection *client;
	int fd; /* of the client, while it is not gone */
	char *method, *path, *body;
	size_t room;
	bool is_queued, is_suspended;
	bool is_ended, is_gone; /* done with it: the caller, libmicrohttpd */
	bool has_left;		/* the client has closed its side */
	int status;		/* 0 = the answer has not begun */
	const char *type;
	char *out;
	size_t n_out, room_out;
	/* there was no room for a part of the question or of the answer, or the caller broke the
	 * answer off */
	bool is_cut;
};

/* A connection, with or without a question under way. */
struct jm__answer_client {
	int fd; /* -1 = free */
	/* when the question that is not complete began, or an answer was complete that the client
	 * has not read; 0 = it is not waited for */
	int64_t since_ns;
};

struct jm_answer_server {
	struct jm__answer_calls call;
	struct MHD_Daemon *daemon;
	struct jm_http_names names;
	pthread_mutex_t lock; /* of all that follows and of exchanges */
	pthread_cond_t asked;
	pthread_cond_t over;	   /* an exchange is no longer under way */
	void (*notify)(void *arg); /* a question has come; NULL = nobody is told */
	void *notify_arg;
	struct jm__exchange *first, **last; /* questions that the caller has not taken */
	struct jm__exchange **under_way;    /* [JM_ANSWER_CLIENTS]; NULL = free */
	struct jm__answer_client *client;   /* [JM_ANSWER_CLIENTS] */
	size_t held;			    /* bytes of questions and of answers */
	int64_t look_ns;		    /* when clients that have left are looked for again */
	bool is_ending;
};

static inline int64_t jm__answer_now_ns(void)
{
	return jm_clock_now(jm_clock_real());
}

/* All with the lock held. */

/* Room for `wanted` bytes, of `most` at most; false: there is none. */
bool jm__answer_hold(
	struct jm_answer_server *s, char **at, size_t *room, size_t wanted, size_t most);
void jm__answer_let_go(struct jm_answer_server *s, char **at, size_t *room);
void jm__exchange_free_if_over(struct jm__exchange *e);
void jm__exchange_resume(struct jm__exchange *e);
/* The client with that fd (-1: a free place) becomes fd. */
void jm__answer_set_client(struct jm_answer_server *s, int old, int fd, int64_t since_ns);

/* What libmicrohttpd calls; arg: the server. */
void jm__answer_on_connection(void *arg, struct MHD_Connection *client, void **context,
	enum MHD_ConnectionNotificationCode code);
void jm__answer_on_completed(void *arg, struct MHD_Connection *client, void **state,
	enum MHD_RequestTerminationCode code);
enum MHD_Result jm__answer_on_request(void *arg, struct MHD_Connection *client, const char *url,
	const char *method, const char *version, const char *upload, size_t *n_upload,
	void **state);

#endif
