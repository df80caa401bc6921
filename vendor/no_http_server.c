/* SPDX-License-Identifier: Apache-2.0 */
/* In place of http_server.c where the headers of libmicrohttpd were missing. */
#include "http_server.h"

int jm_http_server_try(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"This joulemark was built without the headers of libmicrohttpd and cannot answer "
		"over HTTP; build it again with Debian's libmicrohttpd-dev installed.");
}

int jm_http_server_start(const char *address, int port, const char *hosts, jm_http_page_fn *page,
	void *arg, struct jm_http_server **ret, int *ret_port, struct jm_err *err)
{
	(void)address;
	(void)port;
	(void)hosts;
	(void)page;
	(void)arg;
	(void)ret;
	(void)ret_port;
	return jm_http_server_try(err);
}

void jm_http_server_stop(struct jm_http_server *s)
{
	(void)s;
}
