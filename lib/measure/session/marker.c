/* SPDX-License-Identifier: Apache-2.0 */
/* Sending marks: through a pipe that the receiver has taken, else through its socket. */
#include "marker.h"
#include "output_page.h"
#include "base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 2 /* with a receiver that reads nothing */

static int check_name(const char *name, size_t n, struct jm_err *err)
{
	bool good = n > 0 && n < sizeof(((struct jm_mark *)0)->name);

	for (size_t i = 0; i < n; i++)
		good = good && isgraph((unsigned char)name[i]);
	if (good)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"'%s' cannot be the name of a mark; use 1 to 63 printable ASCII "
		"characters without spaces.",
		name);
}

static int unreachable(struct jm_err *err)
{
	const char *way = secure_getenv(JM_MARK_VARIABLE);

	return jm_err_set(err, JM_EIO,
		"The joulemark that started this command no longer receives marks (%s: %s).",
		way ? way : "unknown", strerror(errno));
}

static int connect_to(const char *path, int *ret_fd, struct jm_err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = PATIENCE_S};
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return jm_err_set(err, JM_EUSAGE, JM_MARK_VARIABLE " does not name a socket.");
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return unreachable(err);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		unreachable(err);
		close(fd);
		return JM_EIO;
	}
	*ret_fd = fd;
	return 0;
}

/* What a descriptor was when it was opened: a program may close numbers that it does not know. */
struct identity {
	dev_t dev;
	ino_t ino;
};

struct jm_marker {
	/* pipe: both ends in one, so that writing never signals a broken pipe; -1 = none */
	int fd, pipe;
	_Atomic bool stuck; /* a mark was lost because no process read; the next ones do not wait */
	_Atomic bool taken; /* the receiver has taken the pipe */
	struct identity fd_is, pipe_is;
	const struct jm_output_page *output; /* NULL: the receiver does not read the output */
};

static struct identity identity_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? (struct identity){0} : (struct identity){st.st_dev, st.st_ino};
}

static bool is_own(int fd, const struct identity *was)
{
	struct identity is = identity_of(fd);

	return is.ino && is.dev == was->dev && is.ino == was->ino;
}

static int send_fd(int to, int fd, const char *text)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec from = {(void *)(uintptr_t)text, strlen(text)};
	struct msghdr message = {.msg_iov = &from,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0;
}

/* Offers a pipe to the receiver; without one all marks are datagrams. It has one page until it is
 * taken: where pages have 16 KiB, a new pipe has JM_MARK_PIPE bytes. */
static void offer_pipe(struct jm_marker *m)
{
	const char *handover = m->output ? JM_MARK_ORDERED : JM_MARK_HANDOVER;
	char path[40];
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[1]);
	m->pipe = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (m->pipe >= 0)
		m->pipe_is = identity_of(m->pipe);
	if (m->pipe >= 0 &&
		(fcntl(m->pipe, F_SETPIPE_SZ, 1) < 0 || send_fd(m->fd, ends[0], handover))) {
		close(m->pipe);
		m->pipe = -1;
	}
	close(ends[0]);
	close(ends[1]);
}

/* The file that is beside the socket. */
static const struct jm_output_page *find_output(const char *socket_path)
{
	const char *slash = strrchr(socket_path, '/');
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof(JM_MARK_OUTPUT)];

	snprintf(path, sizeof(path), "%.*s" JM_MARK_OUTPUT,
		slash ? (int)(slash + 1 - socket_path) : 0, socket_path);
	return jm_output_page_find(path);
}

static int open_marker(struct jm_marker **ret, bool many, struct jm_err *err)
{
	const char *path = secure_getenv(JM_MARK_VARIABLE);
	struct jm_marker *m;
	int rc;

	if (!path || !*path)
		return jm_err_set(err, JM_ENOENT,
			"No joulemark receives marks in this process: use them in a command that "
			"'joulemark measure' or 'joulemark run' has started.");
	m = calloc(1, sizeof(*m));
	if (!m)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for marks.");
	rc = connect_to(path, &m->fd, err);
	if (rc) {
		free(m);
		return rc;
	}
	m->fd_is = identity_of(m->fd);
	m->pipe = -1;
	m->output = find_output(path);
	if (many)
		offer_pipe(m);
	*ret = m;
	return 0;
}

int jm_marker_new(struct jm_marker **ret, struct jm_err *err)
{
	return open_marker(ret, true, err);
}

/* Each returns the end of the text. A mark is sent in the middle of a program's work: printf would
 * take a tenth of it. */
static char *put_text(char *at, const char *text, size_t n)
{
	memcpy(at, text, n);
	return at + n;
}

static char *put_whole(char *at, uint64_t value)
{
	char digits[20], *first = digits + sizeof(digits);

	do {
		*--first = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	return put_text(at, first, (size_t)(digits + sizeof(digits) - first));
}

/* " 50000", " 0.25", " -1"; at most 32 bytes. */
static char *put_items(char *at, double items)
{
	char text[32];
	int n;

	*at++ = ' ';
	if (items >= 0 && items < 1e15 && items == floor(items))
		return put_whole(at, (uint64_t)items);
	n = snprintf(text, sizeof(text), "%.17g", items);
	/* a program may have set a locale with another decimal point */
	for (char *c = text; *c; c++)
		if (!strchr("+-0123456789einaf", *c))
			*c = '.';
	return put_text(at, text, (size_t)n);
}

/* Whether the line is in the pipe. It is written as a whole or not at all. */
static bool write_line(struct jm_marker *m, const char *line, size_t n)
{
	if (m->pipe < 0 || !is_own(m->pipe, &m->pipe_is))
		return false;
	if (!m->taken)
		m->taken = fcntl(m->pipe, F_GETPIPE_SZ) == JM_MARK_PIPE;
	return m->taken && write(m->pipe, line, n) == (ssize_t)n;
}

/* Programs have timers, and a signal ends the wait of a call: the mark is sent again. False: errno,
 * EAGAIN if the receiver reads nothing. */
static bool send_text(int fd, const char *text, size_t n, int flags)
{
	int64_t until = jm_clock_now(jm_clock_real()) + PATIENCE_S * JM_SECOND;
	ssize_t sent;

	do
		sent = send(fd, text, n, MSG_NOSIGNAL | flags);
	while (sent < 0 && errno == EINTR && jm_clock_now(jm_clock_real()) < until);
	if (sent < 0 && errno == EINTR)
		errno = EAGAIN;
	return sent >= 0;
}

int jm_marker_mark(struct jm_marker *m, const char *name, double items, struct jm_err *err)
{
	char text[160];
	struct timespec now;
	int64_t byte;
	size_t n = strlen(name);
	char *end;
	int rc = check_name(name, n, err);

	if (rc)
		return rc;
	clock_gettime(CLOCK_MONOTONIC, &now);
	end = put_text(text, "jm1 ", 4);
	end = put_whole(end, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
	end = put_text(end, " mark ", 6);
	end = put_text(end, name, n);
	if (!isnan(items))
		end = put_items(end, items);
	byte = m->output ? jm_output_page_at(m->output) : -1;
	if (byte >= 0)
		end = put_whole(put_text(end, " @", 2), (uint64_t)byte);
	*end = '\n';
	/* without its byte a mark must not be late */
	if ((byte >= 0 || !m->output) && write_line(m, text, (size_t)(end + 1 - text)))
		return 0;
	if (!is_own(m->fd, &m->fd_is))
		return jm_err_set(err, JM_EGONE,
			"The program has closed the descriptor %d, through which marks were sent; "
			"open another marker.",
			m->fd);
	if (send_text(m->fd, text, (size_t)(end - text), m->stuck ? MSG_DONTWAIT : 0)) {
		m->stuck = false;
		return 0;
	}
	m->stuck = errno == EAGAIN;
	return unreachable(err);
}

void jm_marker_free(struct jm_marker *m)
{
	if (m && is_own(m->fd, &m->fd_is))
		close(m->fd);
	if (m && m->pipe >= 0 && is_own(m->pipe, &m->pipe_is))
		close(m->pipe);
	if (m)
		jm_output_page_done(m->output);
	free(m);
}

int jm_progress_send(const char *name, double items, struct jm_err *err)
{
	struct jm_marker *m;
	int rc = check_name(name, strlen(name), err);

	if (!rc)
		rc = open_marker(&m, false, err);
	if (rc)
		return rc;
	rc = jm_marker_mark(m, name, items, err);
	jm_marker_free(m);
	return rc;
}
