/* SPDX-License-Identifier: Apache-2.0 */
#include "own_process.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIRST_NAMESPACE "pid:[4026531836]" /* PROC_PID_INIT_INO of the kernel */

bool jm_own_process_ids(const struct jm_ctx *ctx)
{
	char path[300], name[64] = "";

	snprintf(path, sizeof(path), "%s/proc/self/ns/pid", ctx->root);
	return readlink(path, name, sizeof(name) - 1) > 0 && !strcmp(name, FIRST_NAMESPACE);
}

/* Is the group at path, or a group inside it? "" has all. */
static bool is_inside(const char *path, const char *group)
{
	size_t n = strlen(group);

	return !n || (!strncmp(path, group, n) && (!path[n] || path[n] == '/'));
}

/*
 * A line of /proc/PID/cgroup: "0::/a/b" of version 2, "4:cpu,cpuacct:/a/b" of version 1, whose
 * folder below
 * /sys/fs/cgroup is the controllers' names, or one of them as a link.
 */
static bool line_inside(char *line, const char *group)
{
	char *controllers = strchr(line, ':'),
	     *path = controllers ? strchr(controllers + 1, ':') : NULL;
	size_t n = strcspn(group, "/");

	if (!path)
		return false;
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	path += *path == '/';
	controllers++;
	if (!*controllers)
		return is_inside(path, group);
	if (!group[n] || !strstr(controllers, "cpuacct") || strncmp(group, "cpu", 3) != 0)
		return false;
	return is_inside(path, group + n + 1);
}

/* -1 = the process has ended, or is hidden. */
static int in_group(const struct jm_own_process *o, pid_t pid)
{
	char path[300], line[PATH_MAX];
	int found = -1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/%d/cgroup", o->ctx->root, (int)pid);
	f = fopen(path, "re");
	while (f && found != 1 && fgets(line, sizeof(line), f))
		found = line_inside(line, o->cgroup);
	if (f)
		fclose(f);
	return found;
}

int jm_own_process(void *arg, pid_t pid)
{
	struct jm_own_process *o = arg;
	int own, i = 0;

	if (o->pid)
		return pid == o->pid;
	own = in_group(o, pid);
	while (i < o->n && o->seen[i].pid != pid)
		i++;
	if (own < 0)
		return i < o->n ? o->seen[i].own : -1;
	if (i == JM_OWN_PROCESSES) { /* the oldest entry is dropped */
		memmove(&o->seen[0], &o->seen[1], sizeof(o->seen) - sizeof(o->seen[0]));
		i--;
	}
	o->seen[i].pid = pid;
	o->seen[i].own = own;
	if (o->n <= i)
		o->n = i + 1;
	return own;
}
