/* SPDX-License-Identifier: Apache-2.0 */
/* A command in the foreground; its signals, its status. */
#include "hold.h"
#include "base/process/child_process.h"
#include "base/process/forward_signals.h"
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "cli/frame/json_option.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void wait_for(const struct jm_proc *proc, const struct jm_forward_signals *signals)
{
	struct pollfd p[] = {
		{.fd = proc->pidfd, .events = POLLIN},
		{.fd = signals->fd, .events = POLLIN},
	};

	while (!p[0].revents) {
		p[1].revents = 0;
		if (poll(p, 2, -1) > 0 && p[1].revents)
			jm_signals_pass_on(signals, proc->pid);
	}
}

static bool executable(const char *folder, size_t n, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%.*s%s%s", (int)n, folder, n ? "/" : "", name);
	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

bool jm_hold_executable(const char *name)
{
	const char *path = secure_getenv("PATH");
	bool found = false;

	if (strchr(name, '/'))
		return executable("", 0, name);
	for (size_t n; !found && path && *path; path += n + (path[n] == ':')) {
		n = strcspn(path, ":");
		found = executable(path, n, name);
	}
	return found;
}

bool jm_hold_json_next(const char *word)
{
	return jm_json_next(word) && !jm_hold_executable(word);
}

int jm_hold_check(char *const *argv, struct jm_err *err)
{
	if (!argv || jm_hold_executable(argv[0]))
		return 0;
	return jm_err_set(err,
		strchr(argv[0], '/') && !access(argv[0], F_OK) ? JM_EPERM : JM_ENOENT,
		"The command '%s' was not found or may not be executed; check its name and PATH.",
		argv[0]);
}

int jm_hold_guard(
	struct jm_cli *cli, const char *device, const char *control, struct jm_guard **ret)
{
	const char *controls;
	char text[400];
	int rc = jm_device_controls(device, control, text, sizeof(text), &controls, &cli->err);

	return rc ? rc : jm_guard_start(&cli->ctx, controls, ret, &cli->err);
}

int jm_hold_command(
	const struct jm_ctx *ctx, char *const *argv, int *ret_status, struct jm_err *err)
{
	struct jm_forward_signals signals;
	struct jm_proc proc = {.pidfd = -1, .out_fd = -1};
	const struct jm_proc_options options = {.argv = argv, .mask = &signals.before};
	int rc = jm_signals_catch(&signals, err);

	*ret_status = JM_EXIT_FAILURE;
	if (rc)
		return rc;
	rc = jm_proc_start(&proc, ctx, &options, err);
	if (rc) {
		*ret_status = jm_proc_status_of(rc);
	} else {
		wait_for(&proc, &signals);
		rc = jm_proc_reap(&proc, ctx, err);
		*ret_status = proc.status;
		jm_proc_done(&proc);
	}
	jm_signals_release(&signals);
	return rc;
}
