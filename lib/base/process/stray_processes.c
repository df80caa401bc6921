/* SPDX-License-Identifier: Apache-2.0 */
#include "stray_processes.h"
#include "base/clock.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLITE_NS (2 * JM_SECOND)
#define KILLED_NS JM_SECOND
#define MOMENT_MS 5 /* between two looks */

typedef void child_fn(struct jm_strays *o, pid_t pid);

static void each_child_of_task(struct jm_strays *o, const char *task, child_fn *fn)
{
	char path[64];
	FILE *f;
	int pid;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/children", task);
	f = fopen(path, "re");
	while (f && fscanf(f, "%d", &pid) == 1)
		fn(o, pid);
	if (f)
		fclose(f);
}

/* Where the kernel does not list children (CONFIG_PROC_CHILDREN) there are none to be seen. */
static void each_child(struct jm_strays *o, child_fn *fn)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *task;

	while (tasks && (task = readdir(tasks)))
		if (task->d_name[0] != '.')
			each_child_of_task(o, task->d_name, fn);
	if (tasks)
		closedir(tasks);
}

/* Another thread that waits for a child that is reaped here gets ECHILD, which also means that the
 * child has ended. */
static bool reaped(pid_t pid)
{
	return waitpid(pid, NULL, WNOHANG) == pid;
}

static void reap(struct jm_strays *o, pid_t pid)
{
	(void)o;
	reaped(pid);
}

static void know(struct jm_strays *o, pid_t pid)
{
	if (o->n_known < JM_STRAYS_KNOWN) {
		o->known[o->n_known] = pid;
		o->session[o->n_known] = getsid(pid);
	}
	o->n_known++;
}

void jm_strays_know(struct jm_strays *o, pid_t pid, const char *mark)
{
	know(o, pid);
	snprintf(o->mark, sizeof(o->mark), "%s", mark);
}

/* Did it exist before, or is it in the session of a child that did, as a daemon's child whose
 * parent has ended? Or has it the mark of one? */
static bool is_known(const struct jm_strays *o, pid_t pid)
{
	pid_t session = getsid(pid);

	for (int i = 0; i < o->n_known && i < JM_STRAYS_KNOWN; i++)
		if (o->known[i] == pid || (o->session[i] == session && session != getsid(0)))
			return true;
	return *o->mark && jm_carries_mark(pid, o->mark);
}

static bool was_asked(const struct jm_strays *o, pid_t pid)
{
	for (int i = 0; i < o->n_asked; i++)
		if (o->asked[i] == pid)
			return true;
	return false;
}

/* Is this adopted process still there? */
static bool is_left(struct jm_strays *o, pid_t pid)
{
	if (is_known(o, pid))
		return false;
	if (reaped(pid)) {
		o->again = true; /* its own children may have been adopted meanwhile */
		return false;
	}
	if (!o->n_left++)
		o->first_left = pid;
	return true;
}

static void ask_to_end(struct jm_strays *o, pid_t pid)
{
	if (!is_left(o, pid))
		return;
	if (was_asked(o, pid) || o->n_asked == JM_STRAYS_KNOWN) {
		o->wait = true;
	} else if (!kill(pid, SIGTERM)) { /* refused: we may not end it */
		o->asked[o->n_asked++] = pid;
		o->wait = true;
	}
}

static void end_child(struct jm_strays *o, pid_t pid)
{
	if (is_left(o, pid))
		o->wait |= jm_is_guard(pid) || !kill(pid, SIGKILL);
}

/* Repeats until no process is left to wait for and none has ended meanwhile, until the limit, or
 * until hurry_fd is readable. */
static void each_orphan(struct jm_strays *o, child_fn *fn, int64_t limit_ns, int hurry_fd)
{
	struct pollfd hurry = {.fd = hurry_fd, .events = POLLIN};
	int64_t until = jm_clock_now(jm_clock_real()) + limit_ns;
	bool hurried = false;

	do {
		o->n_left = 0;
		o->wait = o->again = false;
		each_child(o, fn);
		if (o->wait && !o->again)
			hurried = poll(&hurry, 1, MOMENT_MS) > 0;
	} while ((o->wait || o->again) && !hurried && jm_clock_now(jm_clock_real()) < until);
}

void jm_strays_begin(struct jm_strays *o, const struct jm_ctx *ctx)
{
	*o = (struct jm_strays){.ctx = ctx};
	each_child(o, reap);
	each_child(o, know);
	if (o->n_known > JM_STRAYS_KNOWN) {
		jm_log(ctx, JM_WARNING,
			"More than %d processes of earlier cases are still running; processes that "
			"later cases leave behind will not be stopped.",
			JM_STRAYS_KNOWN);
		return;
	}
	o->adopting = !prctl(PR_GET_CHILD_SUBREAPER, &o->was, 0, 0, 0) &&
		      !prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static void reap_new(struct jm_strays *o, pid_t pid)
{
	if (!is_known(o, pid))
		reaped(pid);
}

void jm_strays_end(struct jm_strays *o, enum jm_strays_end how, int hurry_fd)
{
	if (!o->adopting)
		return;
	if (how == JM_STRAYS_ASK)
		each_orphan(o, ask_to_end, POLITE_NS, hurry_fd);
	if (how != JM_STRAYS_LEAVE) {
		each_orphan(o, end_child, KILLED_NS, -1);
		if (o->n_left)
			jm_log(o->ctx, JM_WARNING,
				"A process of a case that was stopped is still running: process "
				"%d%s.",
				(int)o->first_left, o->n_left > 1 ? " and others" : "");
	}
	each_child(o, reap_new);
	prctl(PR_SET_CHILD_SUBREAPER, o->was, 0, 0, 0);
	o->adopting = false;
}
