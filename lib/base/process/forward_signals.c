/* SPDX-License-Identifier: Apache-2.0 */
#include "forward_signals.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

int jm_signals_catch(struct jm_forward_signals *s, struct jm_err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	pthread_sigmask(SIG_BLOCK, &set, &s->before);
	s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->fd >= 0)
		return 0;
	pthread_sigmask(SIG_SETMASK, &s->before, NULL);
	return jm_err_set(err, JM_EIO, "Cannot watch for signals: %s.", strerror(errno));
}

void jm_signals_pass_on(const struct jm_forward_signals *s, pid_t child)
{
	struct signalfd_siginfo info;

	if (read(s->fd, &info, sizeof(info)) == (ssize_t)sizeof(info) && info.ssi_code <= 0)
		kill(child, (int)info.ssi_signo);
}

void jm_signals_release(struct jm_forward_signals *s)
{
	if (s->fd < 0)
		return;
	close(s->fd);
	s->fd = -1;
	pthread_sigmask(SIG_SETMASK, &s->before, NULL);
}
