/* SPDX-License-Identifier: Apache-2.0 */
/* Known by their mark, their user and their start; nothing else is touched. */
#include "marked_processes.h"

#include "base/clock.h"
#include "process_identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KILLED_NS (3 * JM_SECOND)
#define LOOK_MS	  10
#define MAX_ASKED 1024

bool jm_mark_new(char out[JM_MARK_SIZE])
{
	unsigned char bytes[(JM_MARK_SIZE - 1) / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return false;
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
	return true;
}

void jm_mark_text(const char *mark, char *out, size_t size)
{
	const char *own = secure_getenv(JM_CASE_VARIABLE);

	snprintf(out, size, JM_CASE_VARIABLE "=%s%s%s", own ? own : "", own && *own ? ":" : "",
		mark);
}

/* Is the mark one of "A:B:C"? */
static bool has_mark(const char *marks, const char *mark)
{
	for (size_t n; *marks; marks += n + (marks[n] == ':')) {
		n = strcspn(marks, ":");
		if (n == strlen(mark) && !strncmp(marks, mark, n))
			return true;
	}
	return false;
}

bool jm_mark_is_ours(const char *mark)
{
	const char *own = secure_getenv(JM_CASE_VARIABLE);

	return own && has_mark(own, mark);
}

const char *jm_innermost_mark(const char *marks)
{
	const char *before = strrchr(marks, ':');

	if (!before)
		before = strrchr(marks, '=');
	return before ? before + 1 : marks;
}

bool jm_marked_like_us(struct jm_marked *ret)
{
	const char *own = secure_getenv(JM_CASE_VARIABLE);

	*ret = (struct jm_marked){.uid = geteuid(), .caller = geteuid()};
	snprintf(ret->mark, sizeof(ret->mark), "%s", own ? jm_innermost_mark(own) : "");
	return *ret->mark;
}

/* ---- looking --------------------------------------------------------------------------------- */

bool jm_carries_mark(pid_t pid, const char *mark)
{
	char *marks = jm_process_variable(pid, JM_CASE_VARIABLE);
	bool found = marks && has_mark(marks, mark);

	free(marks);
	return found;
}

static bool is_users(pid_t pid, const struct jm_marked *m)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	return !stat(path, &st) && (st.st_uid == m->uid || st.st_uid == m->caller);
}

static bool is_marked(pid_t pid, const struct jm_marked *m, struct jm_process *ret)
{
	if (pid == getpid() || !is_users(pid, m) || !jm_carries_mark(pid, m->mark))
		return false;
	*ret = jm_process_of(pid);
	return ret->start && ret->start >= m->since && jm_process_runs(ret) && !jm_is_guard(pid);
}

/* ---- ending ---------------------------------------------------------------------------------- */

struct round {
	const struct jm_marked *m;
	struct jm_process asked[MAX_ASKED];
	int n_asked, n_left;
	bool kill;
	char *names;
	size_t size;
};

/* The id may have been given to another process since it was read. */
static void send_signal(const struct jm_process *p, int number)
{
	int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);

	if (fd < 0)
		return;
	if (jm_process_of(p->pid).start == p->start)
		syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
	close(fd);
}

static bool is_new(struct round *r, const struct jm_process *p)
{
	for (int i = 0; i < r->n_asked; i++)
		if (r->asked[i].pid == p->pid && r->asked[i].start == p->start)
			return false;
	if (r->n_asked < MAX_ASKED)
		r->asked[r->n_asked] = *p;
	r->n_asked++;
	return true;
}

static void note(struct round *r, const struct jm_process *p)
{
	size_t n = strlen(r->names);
	char text[120];

	if (r->n_asked > 3)
		return;
	jm_process_text(p->pid, text, sizeof(text));
	snprintf(r->names + n, r->size - n, "%s%s", n ? ", " : "", text);
}

static void take(struct round *r, pid_t pid)
{
	struct jm_process p;

	if (!is_marked(pid, r->m, &p))
		return;
	r->n_left++;
	if (is_new(r, &p)) {
		note(r, &p);
		send_signal(&p, SIGTERM);
		send_signal(&p, SIGCONT); /* a stopped process does not receive it otherwise */
	}
	if (r->kill)
		send_signal(&p, SIGKILL);
}

static void look(struct round *r)
{
	DIR *dir = opendir("/proc");
	const struct dirent *e;

	r->n_left = 0;
	while (dir && (e = readdir(dir))) {
		long pid = strtol(e->d_name, NULL, 10);

		if (pid > 0)
			take(r, (pid_t)pid);
	}
	if (dir)
		closedir(dir);
}

int jm_marked_end(
	const struct jm_marked *m, int64_t polite_ns, int hurry_fd, char *ret_names, size_t size)
{
	struct pollfd hurry = {.fd = hurry_fd, .events = POLLIN};
	struct round *r = calloc(1, sizeof(*r));
	int64_t begin = jm_clock_now(jm_clock_real()), now = begin;
	int n;

	*ret_names = '\0';
	if (!r)
		return 0;
	*r = (struct round){.m = m, .names = ret_names, .size = size};
	do {
		r->kill = now - begin > polite_ns;
		look(r);
		if (r->n_left && poll(&hurry, 1, LOOK_MS) > 0) {
			hurry.fd = -1;
			polite_ns = 0;
		}
		now = jm_clock_now(jm_clock_real());
	} while (r->n_left && now - begin < polite_ns + KILLED_NS);
	n = r->n_asked;
	free(r);
	return n;
}
