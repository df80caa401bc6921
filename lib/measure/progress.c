/* SPDX-License-Identifier: Apache-2.0 */
/* Marks through a socket, and the sum of items. */
#include "measure/progress.h"
#include "base/number.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
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

#define VARIABLE "JM_PROGRESS"
#define FOLDER	 "joulemark-"	      /* and six letters */
#define FAR	 INT64_C(60000000000) /* ns; a stamp further off is of another clock */

struct jm_progress {
	int fd;
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

void jm_progress_close(struct jm_progress *p)
{
	if (!p)
		return;
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

int jm_progress_receive(struct jm_progress *p, int64_t now_ns, jm_mark_fn *fn, void *arg)
{
	int marks = 0;

	for (;;) {
		struct jm_mark mark;
		char text[256];
		ssize_t n = recv(p->fd, text, sizeof(text) - 1, 0);

		if (n < 0)
			return marks;
		text[n] = '\0';
		if (!parse(text, &mark)) {
			p->malformed++;
			continue;
		}
		if (mark.t_ns > now_ns || mark.t_ns < now_ns - FAR)
			mark.t_ns = now_ns;
		fn(arg, &mark);
		marks++;
	}
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

struct jm_marker {
	int fd;
	_Atomic bool
		stuck; /* nobody read for so long that a mark was lost: the next ones do not wait */
	dev_t dev; /* what fd was when it was opened: a program may close numbers that it does not know */
	ino_t ino;
};

static bool is_own(const struct jm_marker *m)
{
	struct stat st;

	return !fstat(m->fd, &st) && st.st_dev == m->dev && st.st_ino == m->ino;
}

int jm_marker_new(struct jm_marker **ret, struct jm_err *err)
{
	const char *path = secure_getenv(VARIABLE);
	struct jm_marker *m;
	struct stat st;
	int rc;

	if (!path || !*path)
		return jm_err_set(err, JM_ENOENT,
			"No joulemark receives marks in this process: use them in a command that "
			"'joulemark measure' or 'joulemark run' has started.");
	m = calloc(1, sizeof(*m));
	if (!m)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for marks.");
	rc = connect_to(path, &m->fd, err);
	if (rc || fstat(m->fd, &st)) {
		free(m);
		return rc ? rc : unreachable(err);
	}
	m->dev = st.st_dev;
	m->ino = st.st_ino;
	*ret = m;
	return 0;
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
	if (!is_own(m))
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
	if (m && is_own(m))
		close(m->fd);
	free(m);
}

int jm_progress_send(const char *name, double items, struct jm_err *err)
{
	struct jm_marker *m;
	int rc = check_name(name, strlen(name), err);

	if (!rc)
		rc = jm_marker_new(&m, err);
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
