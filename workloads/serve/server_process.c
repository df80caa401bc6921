/* SPDX-License-Identifier: Apache-2.0 */
#include "server_process.h"

#include "base/clock.h"
#include "base/process/process_group.h"

#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define END_NS (10 * JM_SECOND)

/* Between fork and exec. */
static int alone(void *arg)
{
	const struct jm_server_process *s = arg;
	int null = open("/dev/null", O_RDWR);

	if (null < 0 || setsid() < 0 || (!s->kept && prctl(PR_SET_PDEATHSIG, SIGTERM)))
		return 1;
	return dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0;
}

int jm_server_start(struct jm_server_process *s, const struct jm_ctx *ctx, const char *command,
	struct jm_err *err)
{
	char *argv[] = {"sh", "-c", (char *)(uintptr_t)command, NULL};
	const struct jm_proc_options o = {.argv = argv, .before_exec = alone, .before_exec_arg = s};

	return jm_proc_start(&s->proc, ctx, &o, err);
}

static bool is_over(const struct jm_server_process *s)
{
	struct pollfd p = {.fd = s->proc.pidfd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

bool jm_server_take(struct jm_server_process *s, pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		return false;
	*s = (struct jm_server_process){
		.proc = {.pid = pid, .pidfd = fd, .out_fd = -1, .status = -1}, .kept = true};
	if (!is_over(s))
		return true;
	jm_server_leave(s);
	return false;
}

static void reap(struct jm_server_process *s, const struct jm_ctx *ctx)
{
	struct jm_err none = JM_ERR_INIT;

	jm_proc_reap(&s->proc, ctx, &none); /* one that is not our child has no status */
	s->proc.ended = true;
}

bool jm_server_has_ended(struct jm_server_process *s, const struct jm_ctx *ctx, int *ret_status)
{
	if (s->proc.pid && !s->proc.ended && is_over(s))
		reap(s, ctx);
	*ret_status = s->proc.status;
	return s->proc.ended;
}

void jm_server_stop(struct jm_server_process *s, const struct jm_ctx *ctx)
{
	if (!s->proc.pid)
		return;
	jm_group_end(s->proc.pid, END_NS, -1);
	if (!s->proc.ended)
		reap(s, ctx);
	jm_server_leave(s);
}

void jm_server_leave(struct jm_server_process *s)
{
	if (s->proc.pid)
		close(s->proc.pidfd);
	s->proc.pid = 0;
}
