/* SPDX-License-Identifier: Apache-2.0 */
/* The handler may only note which signal came, and wake the loop. */
#include "interrupts.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t last;
static volatile int count;
static int fd = -1;

static void on_signal(int number)
{
	int saved = errno;

	last = number;
	count = count + 1;
	if (fd >= 0 && write(fd, "!", 1) < 0)
		last = number;
	errno = saved;
}

void jm_count_interrupts(struct jm_ctx *ctx, int wake_fd)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;

	fd = wake_fd;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!sigaction(numbers[i], NULL, &before) && before.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	ctx->interrupts = &count;
}

int jm_last_interrupt(void)
{
	return last;
}
