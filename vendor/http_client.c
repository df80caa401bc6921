/* SPDX-License-Identifier: Apache-2.0 */
#include "http_client.h"
#include "curl_library.h"
#include "secret.h"
#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define TEXT_MAX      200  /* bytes of a text of the server in a message */
#define URL_MAX	      2000 /* bytes, without the path */
#define PATH_MOST     48   /* bytes of the path */
#define CONNECT_S     10
#define TOGETHER      16 /* connections that are read before a request can be sent */
#define CHECK_NS      ((int64_t)10000000)   /* between two searches for stalled answers */
#define BUSY_CHECK_NS ((int64_t)1000000000) /* the same while others keep coming */

#define CALLS(X)                                                                                   \
	JM_CURL_CALLS(X)                                                                           \
	X(curl_multi_init)                                                                         \
	X(curl_multi_cleanup)                                                                      \
	X(curl_multi_add_handle)                                                                   \
	X(curl_multi_remove_handle)                                                                \
	X(curl_multi_setopt)                                                                       \
	X(curl_multi_socket_action)                                                                \
	X(curl_multi_info_read)                                                                    \
	X(curl_multi_strerror)                                                                     \
	JM_CURL_HEADERS(X)

struct calls {
#define X(name) __typeof__(&name) name;
	CALLS(X)
#undef X
};

/* A request that is under way, in a list. */
struct exchange {
	struct jm_http_client *client;
	struct exchange *next;
	CURL *easy;
	char *body;
	int number;
	bool is_sent;
	int64_t begun_ns, heard_ns; /* when the request began; when the last byte came, or that */
	char text[TEXT_MAX + 1];    /* of an answer with another status than 200 */
	char error[CURL_ERROR_SIZE];
};

struct jm_http_client {
	struct calls call;
	struct jm_http_client_options o;
	char *url;
	CURLM *multi;
	struct curl_slist *headers;
	struct exchange *first;
	int ready;	    /* epoll of the connections; -1 = none */
	int64_t timer_ns;   /* when libcurl wants to be called; INT64_MAX = never */
	int64_t checked_ns; /* when silent answers were last searched for */
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

/* ---- the peer -------------------------------------------------------------------------------- */

/* What is behind http://, or NULL. */
static const char *plain_host(const char *url)
{
	return strncmp(url, "http://", 7) ? NULL : url + 7;
}

/* 127.0.0.0/8, ::1 and localhost, which libcurl never looks up elsewhere (7.77 and later). */
static bool is_loopback(const char *host)
{
	size_t n = strcspn(host, *host == '[' ? "]" : ":/");

	return (n == 9 && !strncmp(host, "localhost", n)) ||
	       (n == 4 && !strncmp(host, "[::1", n)) ||
	       (!strncmp(host, "127.", 4) && strspn(host, "0123456789.") == n);
}

bool jm_http_client_is_local(const char *url)
{
	const char *scheme_end = strstr(url, "://");

	return scheme_end && is_loopback(scheme_end + 3);
}

static bool has_host(const char *host)
{
	return *host && !strchr("/:?#", *host);
}

static int check_url(const struct jm_http_client_options *o, struct jm_err *err)
{
	const char *host = plain_host(o->url);

	if (!has_host(host ? host : strncmp(o->url, "https://", 8) ? "" : o->url + 8))
		return jm_err_set(err, JM_EUSAGE,
			"'%s' is no URL of a server; give one like http://127.0.0.1:8000.", o->url);
	if (strlen(o->url) > URL_MAX)
		return jm_err_set(err, JM_EUSAGE,
			"The URL of the server has %zu bytes; it may have %d at most.",
			strlen(o->url), URL_MAX);
	if (strchr(o->url, '@'))
		return jm_err_set(err, JM_EUSAGE,
			"A URL with a user or a password is not taken; give the key in a file.");
	if (host && o->key_file && !is_loopback(host))
		return jm_err_set(err, JM_EUSAGE,
			"A key goes over plain HTTP to this machine only, because others could "
			"read it; use https:// for %s.",
			host);
	return 0;
}

static int add_header(struct jm_http_client *c, const char *line, struct jm_err *err)
{
	struct curl_slist *more = c->call.curl_slist_append(c->headers, line);

	if (!more)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a request.");
	c->headers = more;
	return 0;
}

static int add_headers(struct jm_http_client *c, struct jm_err *err)
{
	char secret[JM_SECRET_MAX] = "", line[JM_SECRET_MAX + 40];
	int code = add_header(c, "Content-Type: application/json", err);

	if (!code)
		code = add_header(c, "Expect:", err); /* no question before the body is sent */
	if (code || !c->o.key_file)
		return code;
	code = jm_secret_read(c->o.key_file, secret, err);
	snprintf(line, sizeof(line), "Authorization: Bearer %s", secret);
	if (!code)
		code = add_header(c, line, err);
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(line, sizeof(line));
	return code;
}

/* Says libcurl which events of a connection count: CURL_POLL_... */
static int on_socket(CURL *easy, curl_socket_t socket, int what, void *client, void *unused)
{
	struct jm_http_client *c = client;
	struct epoll_event e = {.data.fd = socket,
		.events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) |
			  (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0)};

	(void)easy;
	(void)unused;
	if (what == CURL_POLL_REMOVE) {
		epoll_ctl(c->ready, EPOLL_CTL_DEL, socket, NULL);
		return 0;
	}
	if (!epoll_ctl(c->ready, EPOLL_CTL_MOD, socket, &e))
		return 0;
	return errno == ENOENT ? epoll_ctl(c->ready, EPOLL_CTL_ADD, socket, &e) : -1;
}

/* ms: until libcurl wants to be called; below 0: never. */
static int on_timer(CURLM *multi, long ms, void *client)
{
	struct jm_http_client *c = client;

	(void)multi;
	c->timer_ns = ms < 0 ? INT64_MAX : now_ns() + ms * 1000000;
	return 0;
}

static int start(struct jm_http_client *c, struct jm_err *err)
{
	c->call.curl_global_init(CURL_GLOBAL_DEFAULT);
	c->multi = c->call.curl_multi_init();
	c->ready = epoll_create1(EPOLL_CLOEXEC);
	c->timer_ns = INT64_MAX;
	if (!c->multi || c->ready < 0)
		return jm_err_set(
			err, JM_ENOMEM, "libcurl does not start; memory or files may be short.");
	c->call.curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	c->call.curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
	c->call.curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	c->call.curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
	return add_headers(c, err);
}

int jm_http_client_new(
	const struct jm_http_client_options *o, struct jm_http_client **ret, struct jm_err *err)
{
	struct jm_http_client *c;
	int code = check_url(o, err);

	if (code)
		return code;
	c = calloc(1, sizeof(*c));
	if (!c)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a client.");
	c->o = *o;
	c->ready = -1;
	c->url = strdup(o->url);
	code = c->url ? jm_curl_open(symbols, N_SYMBOLS, &c->call, err)
		      : jm_err_set(err, JM_ENOMEM, "Out of memory for a client.");
	if (code) {
		free(c->url);
		free(c);
		return code;
	}
	c->url[strlen(c->url) - (c->url[strlen(c->url) - 1] == '/')] = '\0';
	code = start(c, err);
	if (code)
		jm_http_client_free(c);
	else
		*ret = c;
	return code;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void drop(struct exchange *e)
{
	struct jm_http_client *c = e->client;

	for (struct exchange **at = &c->first; *at; at = &(*at)->next)
		if (*at == e) {
			*at = e->next;
			break;
		}
	if (e->easy) {
		c->call.curl_multi_remove_handle(c->multi, e->easy);
		c->call.curl_easy_cleanup(e->easy);
	}
	free(e->body);
	free(e);
}

void jm_http_client_free(struct jm_http_client *c)
{
	if (!c)
		return;
	while (c->first)
		drop(c->first);
	if (c->multi)
		c->call.curl_multi_cleanup(c->multi);
	if (c->ready >= 0)
		close(c->ready);
	c->call.curl_slist_free_all(c->headers);
	free(c->url);
	free(c);
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *arg)
{
	struct exchange *e = arg;
	struct jm_http_client *c = e->client;
	size_t used = strlen(e->text), left = TEXT_MAX - used;
	long status = 0;

	e->heard_ns = now_ns();
	c->call.curl_easy_getinfo(e->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200)
		return c->o.bytes(c->o.arg, e->number, bytes, size * n) ? size * n : 0;
	left = size * n < left ? size * n : left;
	memcpy(e->text + used, bytes, left);
	e->text[used + left] = '\0';
	return size * n;
}

/* libcurl would ask again on a new connection if a used one breaks before a byte of the answer: the
 * server might answer twice, and the time of both would be that of one. */
static int on_send(void *arg, char *own, char *peer, int own_port, int peer_port)
{
	struct exchange *e = arg;
	bool again = e->is_sent;

	(void)own, (void)peer, (void)own_port, (void)peer_port;
	e->is_sent = true;
	return again ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/* What all requests have alike. */
static bool set_common(struct jm_http_client *c, CURL *easy, const char *path)
{
	__typeof__(c->call.curl_easy_setopt) set = c->call.curl_easy_setopt;
	char url[URL_MAX + PATH_MOST + 1];

	if (snprintf(url, sizeof(url), "%s%s", c->url, path) >= (int)sizeof(url))
		return false;
	set(easy, CURLOPT_NOSIGNAL, 1L);
	set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	set(easy, CURLOPT_FOLLOWLOCATION, 0L);
	set(easy, CURLOPT_PROXY, "");
	set(easy, CURLOPT_TCP_NODELAY, 1L);
	set(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
	set(easy, CURLOPT_HTTPHEADER, c->headers);
	return !set(easy, CURLOPT_URL, url);
}

int jm_http_client_post(struct jm_http_client *c, const char *path, const char *body, int number,
	struct jm_err *err)
{
	struct exchange *e = calloc(1, sizeof(*e));
	int64_t now = now_ns();

	if (!e)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a request.");
	*e = (struct exchange){.client = c,
		.number = number,
		.begun_ns = now,
		.heard_ns = now,
		.body = strdup(body),
		.easy = c->call.curl_easy_init(),
		.next = c->first};
	c->first = e;
	if (!e->body || !e->easy || !set_common(c, e->easy, path)) {
		drop(e);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a request.");
	}
	c->call.curl_easy_setopt(e->easy, CURLOPT_POSTFIELDS, e->body);
	c->call.curl_easy_setopt(e->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
	c->call.curl_easy_setopt(e->easy, CURLOPT_PREREQFUNCTION, on_send);
	c->call.curl_easy_setopt(e->easy, CURLOPT_PREREQDATA, e);
	c->call.curl_easy_setopt(e->easy, CURLOPT_WRITEFUNCTION, on_bytes);
	c->call.curl_easy_setopt(e->easy, CURLOPT_WRITEDATA, e);
	c->call.curl_easy_setopt(e->easy, CURLOPT_ERRORBUFFER, e->error);
	c->call.curl_easy_setopt(e->easy, CURLOPT_PRIVATE, e);
	if (c->call.curl_multi_add_handle(c->multi, e->easy)) {
		drop(e);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a request.");
	}
	return 0;
}

static void end(struct exchange *e, enum jm_http_end how, CURLcode rc)
{
	const struct jm_http_client_options o = e->client->o;
	const char *why = *e->error ? e->error : e->client->call.curl_easy_strerror(rc);
	char text[CURL_ERROR_SIZE];
	int number = e->number;
	long status = 0;

	if (rc == CURLE_ABORTED_BY_CALLBACK)
		why = "the connection closed before the answer";
	e->client->call.curl_easy_getinfo(e->easy, CURLINFO_RESPONSE_CODE, &status);
	snprintf(text, sizeof(text), "%s", how == JM_HTTP_WHOLE ? e->text : why);
	drop(e);
	o.end(o.arg, number, how, status, text);
}

static enum jm_http_end end_of(CURLcode rc)
{
	switch (rc) {
	case CURLE_OK:
		return JM_HTTP_WHOLE;
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_OPERATION_TIMEDOUT: /* of the connection: answers have no limit of libcurl */
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CONNECT_ERROR:
		return JM_HTTP_REFUSED;
	default:
		return JM_HTTP_BROKEN;
	}
}

static void take_ended(struct jm_http_client *c)
{
	struct exchange *e = NULL;
	const CURLMsg *message;
	int left;

	while ((message = c->call.curl_multi_info_read(c->multi, &left))) {
		if (message->msg != CURLMSG_DONE)
			continue;
		c->call.curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &e);
		end(e, end_of(message->data.result), message->data.result);
	}
}

/* A server that sends a byte now and then is not silent, but may never come to an end. */
static void drop_stalled(struct jm_http_client *c, int64_t now)
{
	int64_t silent = now - (int64_t)(c->o.silence_s * 1e9);
	int64_t endless = c->o.answer_s > 0 ? now - (int64_t)(c->o.answer_s * 1e9) : INT64_MIN;
	struct exchange *next;

	for (struct exchange *e = c->first; e; e = next) {
		next = e->next;
		if (e->heard_ns < silent || e->begun_ns < endless)
			end(e, JM_HTTP_STALLED, CURLE_OPERATION_TIMEDOUT);
	}
	c->checked_ns = now;
}

/* The connections that are ready, of which it waits for one for that long; returns their number. */
static int wait_ready(struct jm_http_client *c, int64_t ns, struct epoll_event *ret)
{
	struct pollfd any = {.fd = c->ready, .events = POLLIN};
	struct timespec most = {.tv_nsec = ns < CHECK_NS ? ns : CHECK_NS};
	int n = ppoll(&any, 1, &most, NULL) > 0 ? epoll_wait(c->ready, ret, TOGETHER, 0) : 0;

	return n < 0 ? 0 : n;
}

/* Begins requests that were posted, and ends what takes too long. */
static CURLMcode run_timers(struct jm_http_client *c, int64_t now)
{
	int under_way;

	if (now < c->timer_ns && now - c->checked_ns <= CHECK_NS)
		return CURLM_OK;
	c->timer_ns = now >= c->timer_ns ? INT64_MAX : c->timer_ns;
	return c->call.curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &under_way);
}

/* Asks libcurl only about connections that are ready: asking about hundreds for each event takes
 * most of the time. */
int jm_http_client_poll(struct jm_http_client *c, int64_t most_ns, struct jm_err *err)
{
	struct epoll_event ready[TOGETHER];
	CURLMcode rc = run_timers(c, now_ns());
	int64_t now = now_ns(), wait = c->timer_ns - now;
	int under_way, n;

	wait = wait < most_ns ? wait : most_ns;
	n = wait_ready(c, wait > 0 ? wait : 0, ready);
	for (int i = 0; i < n && !rc; i++)
		rc = c->call.curl_multi_socket_action(c->multi, ready[i].data.fd,
			(ready[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
				(ready[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
				(ready[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0),
			&under_way);
	take_ended(c);
	now = now_ns();
	/* at once where nothing waits to be read */
	if (now - c->checked_ns > (n < TOGETHER ? CHECK_NS : BUSY_CHECK_NS))
		drop_stalled(c, now);
	return rc ? jm_err_set(err, JM_EIO, "libcurl fails: %s.", c->call.curl_multi_strerror(rc))
		  : 0;
}

/* ---- one answer ------------------------------------------------------------------------------ */

/* JM_ENOENT: nothing answers; JM_EPERM: it wants a key. */
static int judge(const struct jm_http_client *c, const char *path, CURLcode rc, long status,
	struct jm_err *err)
{
	if (rc == CURLE_WRITE_ERROR) /* of jm_curl_take */
		return jm_err_set(err, JM_EFORMAT,
			"%s answers %s with more than 4 MiB; check the URL.", c->url,
			*path ? path : "a GET");
	if (rc)
		return jm_err_set(err, JM_ENOENT,
			"%s does not answer: %s; check the URL, and that its server runs.", c->url,
			c->call.curl_easy_strerror(rc));
	if (status == 401 || status == 403)
		return jm_err_set(err, JM_EPERM, "%s answers %s with status %ld: %s.", c->url,
			*path ? path : "a GET", status,
			c->o.key_file ? "it does not take the key of --key-file; give another one"
				      : "it wants a key; give its file with --key-file");
	if (status != 200)
		return jm_err_set(err, JM_EIO, "%s answers %s with status %ld; check the URL.",
			c->url, *path ? path : "a GET", status);
	return 0;
}

/* A whole answer, which the caller frees. */
static int get(
	struct jm_http_client *c, const char *path, struct jm_curl_answer *ret, struct jm_err *err)
{
	CURL *easy = c->call.curl_easy_init();
	long status = 0;
	CURLcode rc;

	if (!easy || !set_common(c, easy, path)) {
		if (easy)
			c->call.curl_easy_cleanup(easy);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a request.");
	}
	c->call.curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, jm_curl_take);
	c->call.curl_easy_setopt(easy, CURLOPT_WRITEDATA, ret);
	c->call.curl_easy_setopt(
		easy, CURLOPT_TIMEOUT_MS, (long)(1e3 * fmin(CONNECT_S, c->o.silence_s)));
	rc = c->call.curl_easy_perform(easy);
	c->call.curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	c->call.curl_easy_cleanup(easy);
	return judge(c, path, rc, status, err);
}

json_t *jm_http_client_get_json(struct jm_http_client *c, const char *path, struct jm_err *err)
{
	struct jm_curl_answer a = {0};
	json_t *json = get(c, path, &a, err) ? NULL : jm_curl_object(&a);

	if (!json && !err->code)
		jm_err_set(err, JM_EFORMAT, "%s answers %s with what is no JSON object.", c->url,
			path);
	free(a.text);
	return json;
}

char *jm_http_client_get_text(struct jm_http_client *c, const char *path, struct jm_err *err)
{
	struct jm_curl_answer a = {0};

	if (get(c, path, &a, err)) {
		free(a.text);
		return NULL;
	}
	if (!a.text)
		a.text = calloc(1, 1);
	if (!a.text)
		jm_err_set(err, JM_ENOMEM, "Out of memory for an answer of %s.", c->url);
	return a.text;
}
