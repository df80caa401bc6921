/* SPDX-License-Identifier: Apache-2.0 */
#include "https.h"
#include "secret.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct jm_https, call.name)},
	JM_CURL_CALLS(X) JM_CURL_HEADERS(X)
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

/* CURLOPT_HEADERFUNCTION whose CURLOPT_HEADERDATA is the jm_https: one line of the answer's head.
 * An ETag that does not fit is none. */
static size_t take_header(const char *line, size_t size, size_t n, void *arg)
{
	static const char name[] = "ETag:";
	struct jm_https *h = arg;
	size_t begin = sizeof(name) - 1, end = size * n;

	if (end <= begin || strncasecmp(line, name, begin) != 0)
		return size * n;
	while (begin < end && line[begin] == ' ')
		begin++;
	while (end > begin && strchr("\r\n ", line[end - 1]))
		end--;
	if (end - begin < sizeof(h->etag))
		snprintf(h->etag, sizeof(h->etag), "%.*s", (int)(end - begin), line + begin);
	return size * n;
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
	h->call.curl_easy_setopt(h->line, CURLOPT_HEADERFUNCTION, take_header);
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
	else if (rc == CURLE_URL_MALFORMAT)
		jm_err_set(err, JM_EFORMAT, "%s is not asked: %s.", h->host, why);
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

/* False: with this path, which may be from an answer, it would not be a resource of the host. */
static bool make_url(struct jm_https *h, const char *path, char *url, size_t size)
{
	int n = snprintf(url, size, strchr(h->host, ':') ? "https://[%s]:%d%s" : "https://%s:%d%s",
		h->host, h->port, path);

	if (*path == '/' && n > 0 && (size_t)n < size)
		return true;
	snprintf(h->error, sizeof(h->error),
		"the path of a resource does not begin with '/' or is too long");
	return false;
}

/* CURLE_OPERATION_TIMEDOUT also when there was no time left to ask. */
static CURLcode ask(struct jm_https *h, const char *path, struct jm_curl_answer *a)
{
	int64_t left = h->until_ns ? h->until_ns - now_ns() : h->timeout_ns;
	char url[512];
	CURLcode rc;

	h->error[0] = '\0';
	h->etag[0] = '\0';
	h->late = h->late || left <= 0;
	if (h->late)
		return CURLE_OPERATION_TIMEDOUT;
	if (!make_url(h, path, url, sizeof(url)))
		return CURLE_URL_MALFORMAT;
	h->call.curl_easy_setopt(h->line, CURLOPT_URL, url);
	h->call.curl_easy_setopt(h->line, CURLOPT_WRITEDATA, a);
	h->call.curl_easy_setopt(h->line, CURLOPT_HEADERDATA, h);
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

/* ---- changes --------------------------------------------------------------------------------- */

/* The first words of the server on why it refuses (Redfish: @Message.ExtendedInfo); "" = none. */
static void server_words(const struct jm_curl_answer *a, char *out, size_t size)
{
	json_t *json = jm_curl_object(a);
	const json_t *all =
		json_object_get(json_object_get(json, "error"), "@Message.ExtendedInfo");
	const char *text = json_string_value(json_object_get(json_array_get(all, 0), "Message"));

	snprintf(out, size, "%s%.200s", text ? " and says: " : "", text ? text : "");
	out[strcspn(out, "\r\n")] = '\0';
	json_decref(json);
}

static int refused(
	struct jm_https *h, long status, const struct jm_curl_answer *a, struct jm_err *err)
{
	char words[240];

	server_words(a, words, sizeof(words));
	if (status == 412)
		return jm_err_set(err, JM_EBUSY,
			"%s refuses the change (status 412): another program changed the resource "
			"at the same time.",
			h->host);
	return jm_err_set(err, status == 401 || status == 403 ? JM_EPERM : JM_EIO,
		"%s refuses the change (status %ld%s).", h->host, status, words);
}

static CURLcode send_patch(struct jm_https *h, const char *path, const char *body, const char *etag,
	struct jm_curl_answer *a)
{
	char condition[JM_ETAG + 12];
	struct curl_slist *head = h->call.curl_slist_append(NULL, "Content-Type: application/json");
	struct curl_slist *more = NULL;
	CURLcode rc = CURLE_OUT_OF_MEMORY;

	snprintf(condition, sizeof(condition), "If-Match: %s", etag);
	if (head && *etag)
		more = h->call.curl_slist_append(head, condition);
	h->call.curl_easy_setopt(h->line, CURLOPT_CUSTOMREQUEST, "PATCH");
	h->call.curl_easy_setopt(h->line, CURLOPT_POSTFIELDS, body);
	h->call.curl_easy_setopt(h->line, CURLOPT_HTTPHEADER, head);
	if (head && (more || !*etag))
		rc = ask(h, path, a);
	h->call.curl_easy_setopt(h->line, CURLOPT_HTTPHEADER, NULL);
	h->call.curl_easy_setopt(h->line, CURLOPT_CUSTOMREQUEST, NULL);
	h->call.curl_easy_setopt(h->line, CURLOPT_HTTPGET, 1L);
	h->call.curl_slist_free_all(head);
	return rc;
}

int jm_https_patch(struct jm_https *h, const char *path, const json_t *members, const char *etag,
	struct jm_err *err)
{
	struct jm_curl_answer a = {0};
	char *body = json_dumps(members, JSON_COMPACT);
	long status = 0;
	CURLcode rc;
	int ret = 0;

	if (!body)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a change of %s.", h->host);
	rc = send_patch(h, path, body, etag, &a);
	h->call.curl_easy_getinfo(h->line, CURLINFO_RESPONSE_CODE, &status);
	if (rc)
		failed(h, rc, status, err);
	else if (status == 202)
		ret = jm_err_set(err, JM_ENOENT,
			"%s makes the change later (status 202), so it is unknown when it holds.",
			h->host);
	else if (status < 200 || status > 299)
		ret = refused(h, status, &a, err);
	free(body);
	free(a.text);
	return rc ? JM_ENOENT : ret;
}
