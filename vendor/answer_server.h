/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP server whose answers are written bit by bit by the thread that asks for questions,
 * by libmicrohttpd, which is opened when it is needed and has a thread of its own.
 */
#ifndef JM_VENDOR_ANSWER_SERVER_H
#define JM_VENDOR_ANSWER_SERVER_H

#include "http_question.h"

struct jm_answer_server;

/*
 * address: an IPv4 or IPv6 address of this machine. port 0 = a free one, which *ret_port then is.
 * Questions that name the server by another host name than its addresses or localhost are refused
 * (http_names.h).
 */
int jm_answer_server_start(const char *address, int port, struct jm_answer_server **ret,
	int *ret_port, struct jm_err *err);
/* Ends answers that are under way, after clients have read what was written, which they have a
 * second for. Takes NULL. */
void jm_answer_server_stop(struct jm_answer_server *s);
/* From now on fn(arg) is called when a question has come, by the server's thread; it may not call
 * the server. */
void jm_answer_server_notify(struct jm_answer_server *s, void (*fn)(void *arg), void *arg);
/* The next question; waits for it until t_ns of the real clock. NULL: none came. Valid until
 * jm_asked_end. */
struct jm_asked *jm_answer_server_next(struct jm_answer_server *s, int64_t t_ns);
/* Status and type (static) of the answer; before anything is written. */
void jm_asked_begin(struct jm_asked *asked, int status, const char *type);
/* Frees the body, which becomes "". */
void jm_asked_drop_body(struct jm_asked *asked);
/* Adds to the answer. False: the client is gone, or there is no room; then nothing more is added,
 * and at jm_asked_end the connection breaks, so that the client knows that the answer is not
 * whole. */
bool jm_asked_write(struct jm_asked *asked, const char *text, size_t n);
/* Has the client closed its connection, or its side of it? jm_answer_server_next looks for that ten
 * times a second. */
bool jm_asked_is_gone(const struct jm_asked *asked);
/* The answer will not be whole: at jm_asked_end the connection breaks, behind what was written. */
void jm_asked_break(struct jm_asked *asked);
/* The answer is complete. `asked` is freed. */
void jm_asked_end(struct jm_asked *asked);

#endif
