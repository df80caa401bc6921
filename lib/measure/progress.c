/* SPDX-License-Identifier: Apache-2.0 */
/* Marks through a socket and pipes, and the sum of items. */
#include "measure/progress.h"
#include "base/number.h"

#include <ctype.h>
#include <dirent.h>
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
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE "JM_PROGRESS"
#define FOLDER	 "joulemark-"	      /* and six letters */
#define FAR	 INT64_C(60000000000) /* ns; a stamp further off is of another clock */
#define HANDOVER "jm1 pipe"
#define PIPES	 64  /* of one receiver; further senders go on with datagrams */
#define LINE	 256 /* bytes of a mark */

/* The reading end of a sender's pipe, and the beginning of a line whose end is still to come. */
struct mark_pipe {
	int fd;
	size_t used;
	char line[LINE];
};

/* A mark that was received, and how many before it. */
struct received {
	struct jm_mark mark;
	int order;
};

struct jm_progress {
	int fd;
	bool takes_pipes;
	struct mark_pipe *pipe;
	int n_pipes;
	struct received *received;
	int n_received, room;
	const char *place; /* that the folder is in; NULL = there is none yet */
	char folder[100], env[sizeof(VARIABLE) + 108];
	long malformed;
};

static const char *path_of(const struct jm_progress *p)
{
	return p->env + sizeof(VARIABLE);
}

/* Has the process that owned the socket ended? Connecting to a socket without an owner is refused. */
static bool is_abandoned(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool refused;

	if (strlen(path) < sizeof(address.sun_path))
		memcpy(address.sun_path, path, strlen(path) + 1);
	refused = fd >= 0 && *address.sun_path &&
		  connect(fd, (struct sockaddr *)&address, sizeof(address)) &&
		  errno == ECONNREFUSED;
	if (fd >= 0)
		close(fd);
	return refused;
}

/* Removes the folders that killed processes of this user left in this place: folders of that name that
 * contain nothing but such a socket. */
static void remove_abandoned(const char *place)
{
	DIR *dir = opendir(place);
	const struct dirent *entry;
	char folder[128], path[160];
	struct stat st;

	while (dir && (entry = readdir(dir))) {
		size_t n = strlen(FOLDER);

		if (strncmp(entry->d_name, FOLDER, n) != 0 || strlen(entry->d_name) != n + 6)
			continue;
		snprintf(folder, sizeof(folder), "%.80s/%.40s", place, entry->d_name);
		snprintf(path, sizeof(path), "%s/marks", folder);
		if (lstat(folder, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
			lstat(path, &st) || !S_ISSOCK(st.st_mode) || !is_abandoned(path))
			continue;
		unlink(path);
		rmdir(folder);
	}
	if (dir)
		closedir(dir);
}

static int make_folder(struct jm_progress *p)
{
	const char *set = secure_getenv("TMPDIR");
	const char *places[] = {set, "/tmp", "/var/tmp"};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (!places[i] || !*places[i] || strlen(places[i]) > 60)
			continue;
		snprintf(p->folder, sizeof(p->folder), "%s/" FOLDER "XXXXXX", places[i]);
		if (!mkdtemp(p->folder))
			continue;
		p->place = places[i];
		return 0;
	}
	p->folder[0] = '\0';
	return -1;
}

static int listen_there(struct jm_progress *p)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	p->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->fd < 0)
		return -1;
	snprintf(p->env, sizeof(p->env), VARIABLE "=%.90s/marks", p->folder);
	strncpy(address.sun_path, path_of(p), sizeof(address.sun_path) - 1);
	return bind(p->fd, (struct sockaddr *)&address, sizeof(address));
}

int jm_progress_open(struct jm_progress **ret, struct jm_err *err)
{
	struct jm_progress *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the progress socket.");
	p->fd = -1;
	if (make_folder(p) || listen_there(p)) {
		rc = jm_err_set(err, JM_EIO,
			"Cannot make the socket for marks in TMPDIR or /tmp: %s.", strerror(errno));
		jm_progress_close(p);
		return rc;
	}
	*ret = p;
	return 0;
}

const char *jm_progress_env(const struct jm_progress *p)
{
	return p->env;
}

int jm_progress_fd(const struct jm_progress *p)
{
	return p->fd;
}

long jm_progress_malformed(const struct jm_progress *p)
{
	return p->malformed;
}

void jm_progress_take_pipes(struct jm_progress *p)
{
	p->takes_pipes = true;
}

bool jm_progress_has_pipes(const struct jm_progress *p)
{
	return p->n_pipes > 0;
}

void jm_progress_close(struct jm_progress *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->n_pipes; i++)
		close(p->pipe[i].fd);
	free(p->pipe);
	free(p->received);
	if (p->fd >= 0) {
		close(p->fd);
		unlink(path_of(p));
	}
	if (*p->folder)
		rmdir(p->folder);
	if (p->place) /* the command has ended: a folder of many files delays nobody */
		remove_abandoned(p->place);
	free(p);
}

/* "jm1 T mark NAME [ITEMS]" */
static bool parse(const char *text, struct jm_mark *ret)
{
	struct jm_mark mark = {.items = NAN};
	char items[32] = "";
	int used = 0;

	if (sscanf(text, "jm1 %ld mark %63s%n %31s", &mark.t_ns, mark.name, &used, items) < 2)
		return false;
	if (text[used] && text[used] != ' ')
		return false;
	if (*items && (!jm_number_real(items, &mark.items) || mark.items < 0))
		return false;
	*ret = mark;
	return true;
}

/* Keeps the mark that a message holds. */
static void take_mark(struct jm_progress *p, const char *text, int64_t now_ns)
{
	struct jm_mark mark;

	if (p->n_received == p->room) {
		int room = 2 * p->room + 16;
		struct received *grown =
			reallocarray(p->received, (size_t)room, sizeof(*p->received));

		p->received = grown ? grown : p->received;
		p->room = grown ? room : p->room;
	}
	if (p->n_received == p->room || !parse(text, &mark)) {
		p->malformed++;
		return;
	}
	if (mark.t_ns > now_ns || mark.t_ns < now_ns - FAR)
		mark.t_ns = now_ns;
	p->received[p->n_received] = (struct received){mark, p->n_received};
	p->n_received++;
}

/* Reads without ever waiting, whatever the sender does with its end. */
static ssize_t read_pipe(int fd, char *bytes, size_t size)
{
	struct iovec into = {bytes, size};

	return preadv2(fd, &into, 1, -1, RWF_NOWAIT);
}

/* Takes an empty pipe; its new size tells that to the sender. */
static bool take_pipe(struct jm_progress *p, int fd)
{
	struct mark_pipe *grown;
	struct stat st;
	char byte;

	if (!p->takes_pipes || p->n_pipes == PIPES || fstat(fd, &st) || !S_ISFIFO(st.st_mode) ||
		read_pipe(fd, &byte, 1) >= 0 || errno != EAGAIN)
		return false;
	grown = reallocarray(p->pipe, (size_t)p->n_pipes + 1, sizeof(*grown));
	if (!grown)
		return false;
	p->pipe = grown;
	if (fcntl(fd, F_SETPIPE_SZ, JM_MARK_PIPE) != JM_MARK_PIPE)
		return false;
	p->pipe[p->n_pipes++] = (struct mark_pipe){.fd = fd};
	return true;
}

/* The descriptor that came with a datagram; -1 = none. */
static int passed_fd(struct msghdr *message)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(message);
	int fd = -1;

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
		c->cmsg_len == CMSG_LEN(sizeof(fd)))
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static void receive_datagrams(struct jm_progress *p, int64_t now_ns)
{
	for (;;) {
		char text[LINE];
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control;
		struct iovec into = {text, sizeof(text) - 1};
		struct msghdr message = {.msg_iov = &into,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(p->fd, &message, MSG_CMSG_CLOEXEC);
		int fd;

		if (n < 0)
			return;
		text[n] = '\0';
		fd = passed_fd(&message);
		if (fd >= 0 && (strcmp(text, HANDOVER) != 0 || !take_pipe(p, fd)))
			close(fd);
		if (strcmp(text, HANDOVER) != 0)
			take_mark(p, text, now_ns);
	}
}

/* Of a line that is too long the end is kept, so that it is no mark. */
static void take_bytes(
	struct jm_progress *p, struct mark_pipe *pipe, const char *bytes, size_t n, int64_t now_ns)
{
	for (size_t i = 0; i < n; i++) {
		if (bytes[i] != '\n') {
			pipe->line[pipe->used] = bytes[i];
			pipe->used += pipe->used < LINE - 1;
			continue;
		}
		pipe->line[pipe->used] = '\0';
		if (pipe->used == LINE - 1)
			p->malformed++;
		else
			take_mark(p, pipe->line, now_ns);
		pipe->used = 0;
	}
}

/* No more than a full pipe, so that a sender that never stops does not keep the receiver. False when nobody can write
 * any more. */
static bool receive_pipe(struct jm_progress *p, struct mark_pipe *pipe, int64_t now_ns)
{
	size_t taken = 0;

	while (taken < JM_MARK_PIPE) {
		char bytes[16384];
		ssize_t n = read_pipe(pipe->fd, bytes, sizeof(bytes));

		if (n <= 0)
			return n < 0;
		take_bytes(p, pipe, bytes, (size_t)n, now_ns);
		taken += (size_t)n;
	}
	return true;
}

static void receive_pipes(struct jm_progress *p, int64_t now_ns)
{
	for (int i = p->n_pipes - 1; i >= 0; i--) {
		if (receive_pipe(p, &p->pipe[i], now_ns))
			continue;
		p->malformed += p->pipe[i].used > 0;
		close(p->pipe[i].fd);
		p->pipe[i] = p->pipe[--p->n_pipes];
	}
}

static int by_time(const void *a, const void *b)
{
	const struct received *x = a, *y = b;

	if (x->mark.t_ns != y->mark.t_ns)
		return x->mark.t_ns < y->mark.t_ns ? -1 : 1;
	return x->order - y->order;
}

int jm_progress_receive(struct jm_progress *p, int64_t now_ns, jm_mark_fn *fn, void *arg)
{
	int n;

	receive_pipes(p, now_ns);
	receive_datagrams(p, now_ns);
	n = p->n_received;
	p->n_received = 0;
	if (p->takes_pipes && n > 1)
		qsort(p->received, (size_t)n, sizeof(*p->received), by_time);
	for (int i = 0; i < n; i++)
		fn(arg, &p->received[i].mark);
	return n;
}

/* ---- sending ---- */

static int check_name(const char *name, size_t n, struct jm_err *err)
{
	bool good = n > 0 && n < sizeof(((struct jm_mark *)0)->name);

	for (size_t i = 0; i < n; i++)
		good = good && isgraph((unsigned char)name[i]);
	if (good)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"'%s' cannot be the name of a mark; use up to 63 letters without spaces.", name);
}

static int unreachable(struct jm_err *err)
{
	const char *way = secure_getenv(VARIABLE);

	return jm_err_set(err, JM_EIO,
		"The joulemark that started this command no longer receives marks (%s: %s).",
		way ? way : "unknown", strerror(errno));
}

static int connect_to(const char *path, int *ret_fd, struct jm_err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = 2};
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return jm_err_set(err, JM_EUSAGE, VARIABLE " does not name a socket.");
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
	int fd, pipe; /* pipe: both ends in one, so that writing never signals a broken pipe; -1 = none */
	_Atomic bool
		stuck; /* nobody read for so long that a mark was lost: the next ones do not wait */
	_Atomic bool taken; /* the receiver has taken the pipe */
	struct identity fd_is, pipe_is;
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

static int send_fd(int to, int fd)
{
	char text[] = HANDOVER;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec from = {text, sizeof(text) - 1};
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

/* Offers a pipe to the receiver; without one all marks are datagrams. */
static void offer_pipe(struct jm_marker *m)
{
	char path[40];
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[1]);
	m->pipe = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (m->pipe >= 0)
		m->pipe_is = identity_of(m->pipe);
	if (m->pipe >= 0 && send_fd(m->fd, ends[0])) {
		close(m->pipe);
		m->pipe = -1;
	}
	close(ends[0]);
	close(ends[1]);
}

static int open_marker(struct jm_marker **ret, bool many, struct jm_err *err)
{
	const char *path = secure_getenv(VARIABLE);
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
	if (many)
		offer_pipe(m);
	*ret = m;
	return 0;
}

int jm_marker_new(struct jm_marker **ret, struct jm_err *err)
{
	return open_marker(ret, true, err);
}

/* Each returns the end of the text. A mark is sent in the middle of a program's work: printf would take a tenth of it. */
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

int jm_marker_mark(struct jm_marker *m, const char *name, double items, struct jm_err *err)
{
	char text[160];
	struct timespec now;
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
	*end = '\n';
	if (write_line(m, text, (size_t)(end + 1 - text)))
		return 0;
	if (!is_own(m->fd, &m->fd_is))
		return jm_err_set(err, JM_EGONE,
			"The program has closed the descriptor %d, through which marks were sent; "
			"open another marker.",
			m->fd);
	if (send(m->fd, text, (size_t)(end - text), MSG_NOSIGNAL | (m->stuck ? MSG_DONTWAIT : 0)) >=
		0) {
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

/* ---- the sum ---- */

void jm_tally_add(struct jm_tally *t, const struct jm_mark *mark)
{
	double items = isnan(mark->items) ? 0 : mark->items;

	if (!t->marks)
		t->first_ns = mark->t_ns;
	else
		t->items_after_first += items;
	t->items += items;
	t->last_ns = mark->t_ns;
	t->marks++;
}

struct jm_item_interval jm_tally_interval(const struct jm_tally *t, int64_t t0_ns, int64_t t1_ns)
{
	struct jm_item_interval between = {t->first_ns, t->last_ns, t->items_after_first};
	int64_t length = t->last_ns - t->first_ns;

	if (between.items > 0 && length > 0 && (!t->late || length > (t1_ns - t0_ns) / 2))
		return between;
	return (struct jm_item_interval){t0_ns, t1_ns, t->items > 0 ? t->items : NAN};
}

double jm_tally_rate(const struct jm_tally *t, int64_t t0_ns, int64_t t1_ns)
{
	struct jm_item_interval s = jm_tally_interval(t, t0_ns, t1_ns);

	return s.t1_ns > s.t0_ns ? s.items / ((double)(s.t1_ns - s.t0_ns) * 1e-9) : NAN;
}
