/* SPDX-License-Identifier: Apache-2.0 */
#include "https.h"
#include "secret.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct jm_https, call.name)},
	JM_CURL_CALLS(X)
#undef X
};

#define N_SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

static int set_password(struct jm_https *h, const struct jm_https_peer *peer, struct jm_err *err)
{
	char secret[JM_SECRET_MAX] = "";
	int rc = peer->password_file ? jm_secret_read(peer->password_file, secret, err) : 0;

	if (rc)
		return rc;
	h->call.curl_easy_setopt(h->line, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
	h->call.curl_easy_setopt(h->line, CURLOPT_USERNAME, peer->user);
	h->call.curl_easy_setopt(h->line, CURLOPT_PASSWORD, secret);
	explicit_bzero(secret, sizeof(secret));
	return 0;
}

int jm_https_open(struct jm_https *h, const struct jm_https_peer *peer, struct jm_err *err)
{
	int rc = jm_curl_open(symbols, N_SYMBOLS, h, err);

	if (rc)
		return rc;
	h->call.curl_global_init(CURL_GLOBAL_DEFAULT);
	h->line = h->call.curl_easy_init();
	if (!h->line)
		return jm_err_set(err, JM_ENOMEM, "libcurl does not start; memory may be short.");
	snprintf(h->host, sizeof(h->host), "%s", peer->host);
	h->port = peer->port;
	h->call.curl_easy_setopt(h->line, CURLOPT_NOSIGNAL, 1L);
	h->call.curl_easy_setopt(h->line, CURLOPT_PROTOCOLS_STR, "https");
	h->call.curl_easy_setopt(h->line, CURLOPT_FOLLOWLOCATION, 0L);
	h->call.curl_easy_setopt(h->line, CURLOPT_PROXY, "");
	h->timeout_ns = (int64_t)(peer->timeout * 1e9);
	h->call.curl_easy_setopt(h->line, CURLOPT_ERRORBUFFER, h->error);
	h->call.curl_easy_setopt(h->line, CURLOPT_WRITEFUNCTION, jm_curl_take);
	if (peer->ca_file)
		h->call.curl_easy_setopt(h->line, CURLOPT_CAINFO, peer->ca_file);
	return peer->user ? set_password(h, peer, err) : 0;
}

void jm_https_close(struct jm_https *h)
{
	if (h->line)
		h->call.curl_easy_cleanup(h->line);
	h->line = NULL;
}

/* What libcurl, or the server's status, says of a question that failed. */
static void failed(struct jm_https *h, CURLcode rc, long status, struct jm_err *err)
{
	const char *why = *h->error ? h->error : h->call.curl_easy_strerror(rc);

	if (rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE)
		jm_err_set(err, JM_EPERM,
			"The certificate of %s is not trusted (%s); name it or its authority with "
			"ca-file=FILE.",
			h->host, why);
	else if (rc)
		jm_err_set(
			err, JM_ENOENT, "%s, port %d, does not answer: %s.", h->host, h->port, why);
	else if (status == 401 || status == 403)
		jm_err_set(err, JM_EPERM,
			"%s refuses this user (status %ld); check user= and password-file=.",
			h->host, status);
	else
		jm_err_set(err, JM_EIO, "%s answers with status %ld.", h->host, status);
}

static int64_t now_ns(void)
{
	return jm_clock_now(jm_clock_real());
}

void jm_https_limit(struct jm_https *h)
{
	h->until_ns = now_ns() + h->timeout_ns;
	h->late = false;
}

/* CURLE_OPERATION_TIMEDOUT also when there was no time left to ask. */
static CURLcode ask(struct jm_https *h, const char *path, struct jm_curl_answer *a)
{
	int64_t left = h->until_ns ? h->until_ns - now_ns() : h->timeout_ns;
	char url[512];
	CURLcode rc;

	h->error[0] = '\0';
	h->late = h->late || left <= 0;
	if (h->late)
		return CURLE_OPERATION_TIMEDOUT;
	snprintf(url, sizeof(url), strchr(h->host, ':') ? "https://[%s]:%d%s" : "https://%s:%d%s",
		h->host, h->port, path);
	h->call.curl_easy_setopt(h->line, CURLOPT_URL, url);
	h->call.curl_easy_setopt(h->line, CURLOPT_WRITEDATA, a);
	h->call.curl_easy_setopt(h->line, CURLOPT_TIMEOUT_MS, (long)(left / 1000000) + 1);
	rc = h->call.curl_easy_perform(h->line);
	h->late = rc == CURLE_OPERATION_TIMEDOUT;
	return rc;
}

json_t *jm_https_get_json(struct jm_https *h, const char *path, struct jm_err *err)
{
	struct jm_curl_answer a = {0};
	json_t *json = NULL;
	long status = 0;
	CURLcode rc = ask(h, path, &a);

	h->call.curl_easy_getinfo(h->line, CURLINFO_RESPONSE_CODE, &status);
	if (rc || status != 200) {
		failed(h, rc, status, err);
	} else {
		json = jm_curl_object(&a);
		if (!json)
			jm_err_set(err, JM_EFORMAT, "%s answers with what is no JSON object.",
				h->host);
	}
	free(a.text);
	return json;
}
