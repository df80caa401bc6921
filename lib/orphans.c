/* SPDX-License-Identifier: Apache-2.0 */
#include "orphans.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define ROUNDS 1000 /* generations that fork as fast as they are killed */

typedef void child_fn(struct jm_orphans *o, pid_t pid);

static void each_child_of_task(struct jm_orphans *o, const char *task, child_fn *fn)
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
static void each_child(struct jm_orphans *o, child_fn *fn)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *task;

	while (tasks && (task = readdir(tasks)))
		if (task->d_name[0] != '.')
			each_child_of_task(o, task->d_name, fn);
	if (tasks)
		closedir(tasks);
}

static void know(struct jm_orphans *o, pid_t pid)
{
	if (o->n_known < JM_ORPHANS_KNOWN)
		o->known[o->n_known] = pid;
	o->n_known++;
}

static void end_child(struct jm_orphans *o, pid_t pid)
{
	for (int i = 0; i < o->n_known; i++)
		if (o->known[i] == pid)
			return;
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	o->found = true;
}

void jm_orphans_begin(struct jm_orphans *o)
{
	*o = (struct jm_orphans){0};
	each_child(o, know);
	/* with more children than can be remembered, none is ended */
	o->adopting = o->n_known <= JM_ORPHANS_KNOWN &&
		      !prctl(PR_GET_CHILD_SUBREAPER, &o->was, 0, 0, 0) &&
		      !prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

void jm_orphans_end(struct jm_orphans *o, bool kill)
{
	if (!o->adopting)
		return;
	for (int i = 0; kill && i < ROUNDS; i++) {
		o->found = false;
		each_child(o, end_child);
		if (!o->found)
			break;
	}
	prctl(PR_SET_CHILD_SUBREAPER, o->was, 0, 0, 0);
	o->adopting = false;
}
