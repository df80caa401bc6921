/* SPDX-License-Identifier: Apache-2.0 */
#include "heartbeat.h"
#include "base/clock.h"
#include "base/net/meeting.h"
#include "base/process/quiet_thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BEAT_MS	  1000
#define SILENT_NS (6 * JM_SECOND)

struct jm_heartbeat {
	int world, end_fd; /* readable = the thread ends */
	int fd[JM_MEET_MOST], link[JM_MEET_MOST];
	int64_t heard_ns[JM_MEET_MOST]; /* when each rank said something for the last time */
	pthread_t thread;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* A rank that has closed its connection has ended, or is about to say goodbye: its link tells
 * which. */
static void listen_to(struct jm_heartbeat *p, int r)
{
	char bytes[64];
	ssize_t n;

	while ((n = recv(p->fd[r], bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		p->heard_ns[r] = jm_clock_now(jm_clock_real());
	if (!n || (errno != EAGAIN && errno != EINTR)) {
		close_fd(&p->fd[r]);
		return;
	}
	if (jm_clock_now(jm_clock_real()) - p->heard_ns[r] < SILENT_NS)
		return;
	shutdown(p->link[r], SHUT_RDWR);
	close_fd(&p->fd[r]);
}

static void *beat(void *arg)
{
	struct jm_heartbeat *p = arg;
	struct pollfd end = {.fd = p->end_fd, .events = POLLIN};

	while (poll(&end, 1, BEAT_MS) <= 0)
		for (int r = 0; r < p->world; r++) {
			/* what does not fit into the buffer is not missed: a lot lies there */
			if (p->fd[r] >= 0)
				(void)!send(p->fd[r], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
			if (p->fd[r] >= 0)
				listen_to(p, r);
		}
	return NULL;
}

static int start_thread(struct jm_heartbeat *p, struct jm_err *err)
{
	int rc = jm_quiet_thread(&p->thread, beat, p);

	return rc ? jm_err_set(err, JM_EIO, "A thread could not be started: %s.", strerror(rc)) : 0;
}

static void free_heartbeat(struct jm_heartbeat *p)
{
	for (int r = 0; r < p->world; r++)
		close_fd(&p->fd[r]);
	close_fd(&p->end_fd);
	free(p);
}

int jm_heartbeat_start(
	int world, const int *fd, const int *link, struct jm_heartbeat **ret, struct jm_err *err)
{
	struct jm_heartbeat *p = calloc(1, sizeof(*p));
	int code = 0;

	for (int r = 0; r < world && !p; r++)
		close_fd(&(int){fd[r]});
	if (!p)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d ranks.", world);
	*p = (struct jm_heartbeat){.world = world, .end_fd = eventfd(0, EFD_CLOEXEC)};
	for (int r = 0; r < world; r++) {
		p->fd[r] = fd[r];
		p->link[r] = link[r];
		p->heard_ns[r] = jm_clock_now(jm_clock_real());
	}
	if (p->end_fd < 0)
		code = jm_err_set(err, JM_EIO, "An event cannot be made: %s.", strerror(errno));
	if (!code)
		code = start_thread(p, err);
	if (code)
		free_heartbeat(p);
	else
		*ret = p;
	return code;
}

void jm_heartbeat_stop(struct jm_heartbeat *p)
{
	if (!p)
		return;
	eventfd_write(p->end_fd, 1);
	pthread_join(p->thread, NULL);
	free_heartbeat(p);
}
