/* SPDX-License-Identifier: Apache-2.0 */
/* Marks that come through a socket and pipes, and the sum of items. */
#include "progress.h"
#include "base/text/number.h"
#include "output_page.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FOLDER "joulemark-"	    /* and six letters */
#define FAR    INT64_C(60000000000) /* ns; a stamp further off is of another clock */
#define PIPES  64		    /* of one receiver; further senders go on with datagrams */
#define LINE   256		    /* bytes of a mark */
#define MOST   65536		    /* datagrams that are received at once; a socket keeps fewer */

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
	struct jm_output_page *output; /* NULL: not shared */
	const char *place;	       /* that the folder is in; NULL = there is none yet */
	char folder[100], env[sizeof(JM_MARK_VARIABLE) + 108];
	long malformed;
};

static const char *path_of(const struct jm_progress *p)
{
	return p->env + sizeof(JM_MARK_VARIABLE);
}

/* Has the process that owned the socket ended? Connecting to a socket without an owner is
 * refused. */
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

static void remove_in(const char *folder, const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%.120s/%.30s", folder, name);
	unlink(path);
}

/* Removes the folders that killed processes of this user left in this place: folders of that name
 * that contain nothing but such a socket and the file of the output. */
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
		remove_in(folder, JM_MARK_OUTPUT);
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
	snprintf(p->env, sizeof(p->env), JM_MARK_VARIABLE "=%.90s/marks", p->folder);
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

void jm_progress_share_output(struct jm_progress *p, int fd)
{
	char path[sizeof(p->folder) + sizeof(JM_MARK_OUTPUT)];

	snprintf(path, sizeof(path), "%s/" JM_MARK_OUTPUT, p->folder);
	p->output = jm_output_page_new(path, fd);
	if (p->output)
		return;
	unlink(path);
	p->takes_pipes = false; /* marks from a pipe are late, and nothing else tells their order */
}

ssize_t jm_progress_read(struct jm_progress *p, int fd, void *bytes, size_t n)
{
	return jm_output_page_read(p->output, fd, bytes, n);
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
	jm_output_page_done(p->output);
	if (p->output)
		remove_in(p->folder, JM_MARK_OUTPUT);
	if (*p->folder)
		rmdir(p->folder);
	if (p->place) /* the command has ended: a folder of many files delays no command */
		remove_abandoned(p->place);
	free(p);
}

static bool parse_items(const char *word, double *ret)
{
	return jm_number_real(word, ret) && *ret >= 0;
}

static bool parse_byte(const char *word, int64_t *ret)
{
	uint64_t byte;

	if (*word != '@' || !jm_number_whole(word + 1, INT64_MAX, &byte))
		return false;
	*ret = (int64_t)byte;
	return true;
}

/* "jm1 T mark NAME [ITEMS] [@BYTE]" */
static bool parse(const char *text, struct jm_mark *ret)
{
	struct jm_mark mark = {.items = NAN, .byte = -1};
	char word[2][32] = {"", ""};
	int used = 0, next = 0;

	if (sscanf(text, "jm1 %ld mark %63s%n %31s %31s", &mark.t_ns, mark.name, &used, word[0],
		    word[1]) < 2)
		return false;
	if (text[used] && text[used] != ' ')
		return false;
	if (*word[0] && *word[0] != '@' && !parse_items(word[next++], &mark.items))
		return false;
	if (*word[next] && !parse_byte(word[next++], &mark.byte))
		return false;
	if (next < 2 && *word[next])
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

/* A reading end whose flags are of this process alone, so that no sender can make it wait; -1:
 * there is none. */
static int reopen(int fd)
{
	char path[40];
	struct stat st;

	if (fstat(fd, &st) || !S_ISFIFO(st.st_mode))
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

static bool is_empty(int fd)
{
	char byte;

	return read(fd, &byte, 1) < 0 && errno == EAGAIN;
}

/* Takes an empty pipe; its new size tells that to the sender. given: -1 = none came with the
 * datagram. */
static void take_pipe(struct jm_progress *p, int given, const char *handover)
{
	bool late = p->output && strcmp(handover, JM_MARK_ORDERED) != 0;
	int fd = p->takes_pipes && !late && p->n_pipes < PIPES ? reopen(given) : -1;
	struct mark_pipe *grown;

	if (fd < 0)
		return;
	grown = reallocarray(p->pipe, (size_t)p->n_pipes + 1, sizeof(*grown));
	p->pipe = grown ? grown : p->pipe;
	if (grown && is_empty(fd) && fcntl(fd, F_SETPIPE_SZ, JM_MARK_PIPE) == JM_MARK_PIPE)
		p->pipe[p->n_pipes++] = (struct mark_pipe){.fd = fd};
	else
		close(fd);
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
	for (int i = 0; i < MOST; i++) {
		char text[LINE];
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control;
		struct iovec into = {text, sizeof(text) - 1};
		struct msghdr message = {.msg_iov = &into,
			.msg_iovlen = 1,
			.msg_control = &control,
			/* CMSG_SPACE is aligned and has room for a second descriptor, which would
			 * stay open */
			.msg_controllen = CMSG_LEN(sizeof(int))};
		ssize_t n = recvmsg(p->fd, &message, MSG_CMSG_CLOEXEC);
		int fd;

		if (n < 0)
			return;
		text[n] = '\0';
		fd = passed_fd(&message);
		if (!strcmp(text, JM_MARK_ORDERED) || !strcmp(text, JM_MARK_HANDOVER))
			take_pipe(p, fd, text);
		else
			take_mark(p, text, now_ns);
		if (fd >= 0)
			close(fd);
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

/* No more than a full pipe, so that a sender that never stops does not keep the receiver. False
 * when no process can write any more. */
static bool receive_pipe(struct jm_progress *p, struct mark_pipe *pipe, int64_t now_ns)
{
	size_t taken = 0;

	while (taken < JM_MARK_PIPE) {
		char bytes[16384];
		ssize_t n = read(pipe->fd, bytes, sizeof(bytes));

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
