/* SPDX-License-Identifier: Apache-2.0 */
#include "kept_process.h"
#include "base/process/process_group.h"
#include "run/workload.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_NS (10 * JM_SECOND)

/* Its command and its environment; NULL: the case uses none. To be freed. */
static char *use_of(const json_t *parameters)
{
	const char *name = json_string_value(json_object_get(parameters, "workload"));
	const struct jm_workload *w = name ? jm_workload_find(name, NULL) : NULL;
	const json_t *options = json_object_get(parameters, "options"),
		     *environment = json_object_get(parameters, "environment");
	json_t *command = w && w->keeps ? json_object_get(options, w->keeps) : NULL, *use;
	char *text;

	if (!json_is_string(command))
		return NULL;
	use = json_pack("[O, O?]", command, environment);
	text = json_dumps(use, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(use);
	return text;
}

static bool has_ended(const struct jm_kept_process *k)
{
	struct pollfd p = {.fd = k->pidfd, .events = POLLIN};

	return p.fd < 0 || poll(&p, 1, 0) > 0;
}

/* What its group has left, in groups of their own. */
static void end_marked(const struct jm_kept_process *k, int64_t polite_ns, int hurry_fd)
{
	char names[1];

	if (k->reaper.pid > 0)
		jm_marked_end(&k->reaper.marked, polite_ns, hurry_fd, names, sizeof(names));
}

static void forget(struct jm_kept_process *k)
{
	if (!k->pid)
		return;
	waitpid(k->pid, NULL, WNOHANG); /* it became a child when its worker ended */
	if (k->pidfd >= 0)
		close(k->pidfd);
	k->pid = 0;
}

bool jm_kept_process_for(struct jm_kept_process *k, struct jm_ctx *ctx, const char *program,
	const json_t *parameters, int hurry_fd, pid_t *ret_pid)
{
	char *what = use_of(parameters);

	if (k->what && (!what || strcmp(k->what, what)))
		jm_kept_process_end(k, hurry_fd);
	if (what && !k->what)
		jm_case_reaper_start(ctx, program, &k->reaper);
	free(k->what);
	k->what = what;
	if (k->pid && has_ended(k)) {
		end_marked(k, END_NS, hurry_fd);
		forget(k);
	}
	*ret_pid = k->pid;
	return what && k->reaper.pid > 0;
}

void jm_kept_process_take(struct jm_kept_process *k, pid_t pid)
{
	forget(k);
	k->pid = pid;
	k->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
}

void jm_kept_process_end(struct jm_kept_process *k, int hurry_fd)
{
	int64_t left = END_NS;

	if (k->pid && !has_ended(k))
		left = jm_group_end(k->pid, END_NS, hurry_fd);
	end_marked(k, left > JM_MARK_POLITE ? left : JM_MARK_POLITE, hurry_fd);
	forget(k);
	jm_case_reaper_stop(&k->reaper);
	free(k->what);
	k->what = NULL;
}
