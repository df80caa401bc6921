/* SPDX-License-Identifier: Apache-2.0 */
/* The handler may only note which signal came, and wake the loop. */
#include "interrupts.h"
#include "base/ctx.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t last;
static volatile int count;
static int fd = -1;

static void on_signal(int number)
{
	int saved = errno;
	char byte = (char)number;

	last = number;
	count = count + 1;
	if (fd >= 0 && write(fd, &byte, 1) < 0) /* which signal: worker.h */
		last = number;
	errno = saved;
}

static void on_first(int number)
{
	last = number;
}

static void handle(const struct sigaction *action)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct sigaction before;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!sigaction(numbers[i], NULL, &before) && before.sa_handler != SIG_IGN)
			sigaction(numbers[i], action, NULL);
}

void jm_note_first_interrupt(void)
{
	handle(&(struct sigaction){
		.sa_handler = on_first, .sa_flags = SA_RESTART | (int)SA_RESETHAND});
}

void jm_count_interrupts(struct jm_ctx *ctx, int wake_fd)
{
	fd = wake_fd;
	handle(&(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART});
	ctx->interrupts = &count;
}

int jm_catch_interrupts(struct jm_ctx *ctx, int *ret_fd, struct jm_err *err)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return jm_err_set(err, JM_EIO, "A pipe could not be made: %s.", strerror(errno));
	jm_count_interrupts(ctx, fds[1]);
	signal(SIGPIPE, SIG_IGN);
	*ret_fd = fds[0];
	return 0;
}

int jm_last_interrupt(void)
{
	return last;
}

int jm_give_back_pipe_signal(void *before)
{
	jm_signal_handler *const *handler = before;

	return signal(SIGPIPE, *handler) == SIG_ERR;
}
