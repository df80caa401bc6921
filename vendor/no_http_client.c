/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of http_client.c, in a build without libcurl's headers. */
#include "http_client.h"

int jm_http_client_new(
	const struct jm_http_client_options *o, struct jm_http_client **ret, struct jm_err *err)
{
	(void)ret;
	return jm_err_set(err, JM_ENOENT,
		"This build of joulemark cannot ask %.200s: it was made without libcurl. Install "
		"libcurl4-openssl-dev and build joulemark again.",
		o->url);
}

void jm_http_client_free(struct jm_http_client *c)
{
	(void)c;
}

char *jm_http_client_get_text(struct jm_http_client *c, const char *path, struct jm_err *err)
{
	(void)c;
	(void)path;
	jm_err_set(err, JM_EBUG, "There is no client of HTTP.");
	return NULL;
}
