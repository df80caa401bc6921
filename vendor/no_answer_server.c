/* SPDX-License-Identifier: Apache-2.0 */
/* In place of answer_server.c where the headers of libmicrohttpd were missing: there is no server,
 * so no question. */
#include "answer_server.h"

int jm_answer_server_start(const char *address, int port, struct jm_answer_server **ret,
	int *ret_port, struct jm_err *err)
{
	(void)address;
	(void)port;
	(void)ret;
	(void)ret_port;
	return jm_err_set(err, JM_ENOSUP,
		"This joulemark was built without the headers of libmicrohttpd and cannot answer "
		"over HTTP; build it again with Debian's libmicrohttpd-dev installed.");
}

void jm_answer_server_stop(struct jm_answer_server *s)
{
	(void)s;
}

void jm_answer_server_notify(struct jm_answer_server *s, void (*fn)(void *arg), void *arg)
{
	(void)s;
	(void)fn;
	(void)arg;
}

struct jm_asked *jm_answer_server_next(struct jm_answer_server *s, int64_t t_ns)
{
	(void)s;
	(void)t_ns;
	return NULL;
}

void jm_asked_begin(struct jm_asked *asked, int status, const char *type)
{
	(void)asked;
	(void)status;
	(void)type;
}

void jm_asked_drop_body(struct jm_asked *asked)
{
	(void)asked;
}

bool jm_asked_write(struct jm_asked *asked, const char *text, size_t n)
{
	(void)asked;
	(void)text;
	(void)n;
	return false;
}

bool jm_asked_is_gone(const struct jm_asked *asked)
{
	(void)asked;
	return true;
}

void jm_asked_break(struct jm_asked *asked)
{
	(void)asked;
}

void jm_asked_end(struct jm_asked *asked)
{
	(void)asked;
}
