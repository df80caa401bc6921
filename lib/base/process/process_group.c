/* SPDX-License-Identifier: Apache-2.0 */
#include "process_group.h"

#include "base/clock.h"
#include "process_identity.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define MOMENT_MS 10 /* between two looks */

static bool is_member(pid_t group, pid_t pid)
{
	const struct jm_process p = {.pid = pid};

	return pid > 0 && getpgid(pid) == group && jm_process_runs(&p);
}

/* A process that has ended and was not reaped is one of the group, but does not run. */
static bool runs(pid_t group)
{
	const struct dirent *e;
	bool found = false;
	DIR *dir;

	if (kill(-group, 0) && errno == ESRCH)
		return false;
	dir = opendir("/proc");
	while (dir && !found && (e = readdir(dir)))
		found = is_member(group, (pid_t)strtol(e->d_name, NULL, 10));
	if (dir)
		closedir(dir);
	return found;
}

int64_t jm_group_end(pid_t group, int64_t polite_ns, int hurry_fd)
{
	struct pollfd hurry = {.fd = hurry_fd, .events = POLLIN};
	int64_t until = jm_clock_now(jm_clock_real()) + polite_ns, left = polite_ns;

	kill(-group, SIGTERM);
	kill(-group, SIGCONT); /* a stopped process does not receive it otherwise */
	while (left > 0 && runs(group)) {
		left = until - jm_clock_now(jm_clock_real());
		if (poll(&hurry, 1, MOMENT_MS) > 0)
			left = 0;
	}
	kill(-group, SIGKILL);
	return left > 0 ? left : 0;
}
