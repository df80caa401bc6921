/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp.h"
#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SILENT_MS  6000 /* without an acknowledgement of what was sent */
#define UNANSWERED 3	/* questions whether there is room */

/* ---- addresses ------------------------------------------------------------------------------- */

static int wrong_address(const char *address, struct jm_err *err)
{
	return jm_err_set(err, JM_EUSAGE,
		"'%.100s' is no address of a host with a port; write it as host:29500 or "
		"[fd00::1]:29500.",
		address);
}

int jm_tcp_parse(const char *address, char *ret_host, int *ret_port, struct jm_err *err)
{
	const char *colon = strrchr(address, ':'), *from = address, *to = colon;
	char *end;
	long port;

	if (!colon || colon == address)
		return wrong_address(address, err);
	if (*from == '[' && to[-1] == ']') {
		from++;
		to--;
	}
	port = strtol(colon + 1, &end, 10);
	if (to <= from || to - from >= JM_HOST_SIZE || *end || end == colon + 1 || port < 1 ||
		port > 65535)
		return wrong_address(address, err);
	snprintf(ret_host, JM_HOST_SIZE, "%.*s", (int)(to - from), from);
	*ret_port = (int)port;
	return 0;
}

static struct addrinfo *look_up(const char *host, int port, int flags)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
	struct addrinfo *found = NULL;
	char text[8];

	snprintf(text, sizeof(text), "%d", port);
	if (getaddrinfo(host, text, &hints, &found)) {
		errno = EHOSTUNREACH;
		return NULL;
	}
	return found;
}

typedef int name_fn(int fd, struct sockaddr *address, socklen_t *size);

static int end_of(int fd, name_fn *name, char ret_host[JM_HOST_SIZE])
{
	struct sockaddr_storage a;
	socklen_t size = sizeof(a);
	char port[8] = "0";

	if (name(fd, (struct sockaddr *)&a, &size) ||
		getnameinfo((struct sockaddr *)&a, size, ret_host, JM_HOST_SIZE, port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(ret_host, JM_HOST_SIZE, "?");
	return (int)strtol(port, NULL, 10);
}

int jm_tcp_own_end(int fd, char ret_host[JM_HOST_SIZE])
{
	return end_of(fd, getsockname, ret_host);
}

int jm_tcp_other_end(int fd, char ret_host[JM_HOST_SIZE])
{
	return end_of(fd, getpeername, ret_host);
}

/* ---- connections ----------------------------------------------------------------------------- */

static int socket_for(const struct addrinfo *a)
{
	return socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
}

static int listen_one(const struct addrinfo *a)
{
	int fd = socket_for(a), yes = 1, why;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, SOMAXCONN))
		return fd;
	why = errno;
	close(fd);
	errno = why;
	return -1;
}

int jm_tcp_listen(const char *host, int port, int *ret_fd, struct jm_err *err)
{
	struct addrinfo *found = look_up(host, port, AI_PASSIVE);
	int fd = found ? listen_one(found) : -1, why = errno;

	if (found)
		freeaddrinfo(found);
	if (fd < 0)
		return jm_err_set(err, why == EACCES ? JM_EPERM : JM_EIO,
			"Other ranks cannot be awaited at %s, port %d: %s. It must be an address "
			"of this host, with a port that no other program uses.",
			host, port, strerror(why));
	*ret_fd = fd;
	return 0;
}

bool jm_tcp_wait(int fd, short events, int64_t until_ns)
{
	struct pollfd p = {.fd = fd, .events = events};
	int64_t left;
	int n = 0;

	while (!n && (left = until_ns - jm_clock_now(jm_clock_real())) > 0) {
		n = poll(&p, 1, left > JM_SECOND ? 1000 : (int)(left / JM_MILLISECOND) + 1);
		if (n < 0 && errno == EINTR)
			n = 0;
	}
	if (!n)
		errno = ETIMEDOUT;
	return n > 0;
}

static int connect_one(const struct addrinfo *a, int64_t until_ns)
{
	int fd = socket_for(a), error = ETIMEDOUT;
	socklen_t size = sizeof(error);

	if (fd < 0 || !connect(fd, a->ai_addr, a->ai_addrlen))
		return fd;
	if (errno != EINPROGRESS)
		error = errno;
	else if (jm_tcp_wait(fd, POLLOUT, until_ns))
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (!error)
		return fd;
	close(fd);
	errno = error;
	return -1;
}

int jm_tcp_connect(const char *host, int port, int64_t until_ns)
{
	struct addrinfo *found = look_up(host, port, 0);
	int fd = -1, why = errno;

	for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
		fd = connect_one(a, until_ns);
		why = errno;
	}
	if (found)
		freeaddrinfo(found);
	errno = why;
	return fd;
}

static bool is_within_host(int fd)
{
	char own[JM_HOST_SIZE], other[JM_HOST_SIZE];

	jm_tcp_own_end(fd, own);
	jm_tcp_other_end(fd, other);
	return !strcmp(own, other) && strcmp(own, "?") != 0;
}

/* Within a host no peer vanishes without closing, and hundreds of ranks have so many connections
 * that the kernel would drop the probes of idle ones. */
void jm_tcp_tune(int fd)
{
	const struct {
		int level, name, value;
	} options[] = {{IPPROTO_TCP, TCP_NODELAY, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 3},
		{IPPROTO_TCP, TCP_KEEPINTVL, 1}, {IPPROTO_TCP, TCP_KEEPCNT, 5},
		{SOL_SOCKET, SO_KEEPALIVE, !is_within_host(fd)}};

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			sizeof(options[i].value));
}

/* TCP_USER_TIMEOUT would also end a connection to a peer that lives but reads nothing for a while:
 * such a peer answers when it is asked whether it has room again. */
bool jm_tcp_lost(int fd)
{
	struct tcp_info info = {0};
	socklen_t size = sizeof(info), one = sizeof(int);
	int probed = 0;
	bool silent = !getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &probed, &one) && probed &&
		      !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) &&
		      info.tcpi_last_ack_recv > SILENT_MS;

	return silent &&
	       ((info.tcpi_unacked && info.tcpi_retransmits) || info.tcpi_probes >= UNANSWERED);
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool may_wait(ssize_t n)
{
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

bool jm_tcp_send(int fd, const void *data, size_t n, int64_t until_ns)
{
	for (size_t done = 0; done < n;) {
		ssize_t some = send(fd, (const char *)data + done, n - done, MSG_NOSIGNAL);

		if (some > 0)
			done += (size_t)some;
		else if (!may_wait(some) || !jm_tcp_wait(fd, POLLOUT, until_ns))
			return false;
	}
	return true;
}

bool jm_tcp_receive(int fd, void *data, size_t n, int64_t until_ns)
{
	for (size_t done = 0; done < n;) {
		ssize_t some = recv(fd, (char *)data + done, n - done, 0);

		if (some > 0) {
			done += (size_t)some;
		} else if (!some) {
			errno = 0;
			return false;
		} else if (!may_wait(some) || !jm_tcp_wait(fd, POLLIN, until_ns)) {
			return false;
		}
	}
	return true;
}
