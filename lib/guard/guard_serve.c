/* SPDX-License-Identifier: Apache-2.0 */
/* The guard's own process: carries out the requests of its client and restores everything when
 * the client has ended. */
#include "base/forward_signals.h"
#include "guard/guard_wire.h"
#include "guard/guard_apply.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRIES 3

struct server {
	struct jm_ctx *ctx;
	int fd, pidfd;
	struct jm_forward_signals signals;
	int client;
	bool opened, done;
	struct jm_knob_holder holder;
	char message[JM_WIRE_MAX];
};

/* The payload of the reply follows it in the message. */
static void reply(struct server *s, int rc, int n, size_t bytes, const struct jm_err *err)
{
	struct jm_wire_reply *r = (struct jm_wire_reply *)s->message;

	if (rc)
		n = 0, bytes = 0;
	r->rc = rc;
	r->n = n;
	memset(r->text, 0, sizeof(r->text));
	if (rc)
		memcpy(r->text, err->text, sizeof(r->text));
	while (send(s->fd, s->message, sizeof(*r) + bytes, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

static int open_holder(struct server *s, const struct jm_wire_request *q, int *ret_n,
	size_t *ret_bytes, struct jm_err *err)
{
	char specs[1024];
	const struct jm_knobs *knobs = &s->holder.table.knobs;
	int rc;

	if (s->opened || q->n < 0 || q->n >= (int)sizeof(specs))
		return jm_err_set(err, JM_EBUG, "The guard was asked to open twice.");
	memcpy(specs, q + 1, (size_t)q->n);
	specs[q->n] = '\0';
	rc = jm_knob_holder_open(&s->holder, s->ctx, q->n ? specs : NULL, s->client, err);
	if (rc)
		return rc;
	s->opened = true;
	*ret_n = knobs->n;
	*ret_bytes = (size_t)knobs->n * sizeof(struct jm_knob);
	if (*ret_bytes > JM_WIRE_MAX - sizeof(struct jm_wire_reply))
		return jm_err_set(
			err, JM_ENOSUP, "%d knobs are more than a guard can hold.", knobs->n);
	memcpy(s->message + sizeof(struct jm_wire_reply), knobs->knob, *ret_bytes);
	return 0;
}

static int set(struct server *s, const struct jm_wire_request *q, int *ret_n, struct jm_err *err)
{
	bool only_hold = q->op == JM_WIRE_HOLD;
	struct jm_applied *out = (struct jm_applied *)(s->message + sizeof(struct jm_wire_reply));
	struct jm_setting *settings;
	int rc;

	if (q->n < 0 || (size_t)q->n > (JM_WIRE_MAX - sizeof(*q)) / sizeof(*settings))
		return jm_err_set(err, JM_EBUG, "The guard was sent %d settings.", q->n);
	settings = calloc((size_t)q->n + 1, sizeof(*settings));
	if (!settings)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d settings.", q->n);
	memcpy(settings, q + 1, (size_t)q->n * sizeof(*settings));
	rc = only_hold ? jm_knob_holder_hold(&s->holder, settings, q->n, out, ret_n, err)
		       : jm_knob_holder_set(&s->holder, settings, q->n, out, ret_n, err);
	free(settings);
	return rc;
}

static int answer(struct server *s, int *ret_n, size_t *ret_bytes, struct jm_err *err)
{
	struct jm_wire_request *q = (struct jm_wire_request *)s->message;
	int op = q->op, rc;

	if (op == JM_WIRE_OPEN)
		return open_holder(s, q, ret_n, ret_bytes, err);
	if (op == JM_WIRE_STOP && !s->opened) {
		s->done = true;
		return 0;
	}
	if (!s->opened)
		return jm_err_set(err, JM_EBUG, "The guard was asked before it was opened.");
	switch (op) {
	case JM_WIRE_GET:
		*ret_n = s->holder.table.knobs.n;
		jm_knob_holder_get(&s->holder,
			(struct jm_applied *)(s->message + sizeof(struct jm_wire_reply)));
		rc = 0;
		break;
	case JM_WIRE_HOLD:
	case JM_WIRE_SET:
		rc = set(s, q, ret_n, err);
		break;
	case JM_WIRE_RESTORE:
		return jm_knob_holder_restore(&s->holder, false, err);
	case JM_WIRE_KEEP:
		return jm_knob_holder_keep(&s->holder, err);
	case JM_WIRE_STOP:
		s->done = true;
		return jm_knob_holder_restore(&s->holder, true, err);
	default:
		return jm_err_set(err, JM_EBUG, "The guard was asked for %d.", op);
	}
	*ret_bytes = (size_t)*ret_n * sizeof(struct jm_applied);
	return rc;
}

/* One request; false when the client has hung up. */
static bool serve_one(struct server *s)
{
	ssize_t got = recv(s->fd, s->message, sizeof(s->message), 0);
	struct jm_err err = JM_ERR_INIT;
	size_t bytes = 0;
	int n = 0, rc;

	if (got < 0 && errno == EINTR)
		return true;
	if (got < (ssize_t)sizeof(struct jm_wire_request))
		return false;
	rc = answer(s, &n, &bytes, &err);
	reply(s, rc, n, bytes, &err);
	return true;
}

/* Until the client has ended or asks to stop, or a signal asks the guard to end. */
static void serve(struct server *s)
{
	struct pollfd p[] = {
		{.fd = s->fd, .events = POLLIN},
		{.fd = s->pidfd, .events = POLLIN},
		{.fd = s->signals.fd, .events = POLLIN},
	};

	while (!s->done) {
		if (poll(p, 3, -1) < 0) {
			if (errno == EINTR)
				continue;
			return;
		}
		if (p[1].revents || p[2].revents)
			return;
		if (p[0].revents && !serve_one(s))
			return;
	}
}

/* Who reads what our client printed shall not have to wait for the driver, too. */
static void give_up_stderr(void)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (null < 0)
		return;
	dup2(null, STDERR_FILENO);
	close(null);
}

/* The client cannot be told any more; a driver that is busy is asked again, and one that does not return is
 * waited for however long it takes: what it was told to set may still happen. */
static int restore_alone(struct server *s, struct jm_err *err)
{
	struct jm_ctx quiet = *s->ctx;
	int rc = JM_EIO;

	quiet.log = NULL;
	for (int i = 1; rc && (i <= TRIES || jm_knob_table_waits(&s->holder.table)); i++) {
		struct jm_err one = JM_ERR_INIT;

		if (i > 1)
			sleep(1);
		if (i > 1 && jm_knob_table_waits(&s->holder.table))
			give_up_stderr();
		s->holder.ctx = i == 1 || i == TRIES ? s->ctx : &quiet;
		rc = jm_knob_holder_restore(&s->holder, true, &one);
		if (rc && i >= TRIES && err)
			*err = one;
	}
	s->holder.ctx = s->ctx;
	return rc;
}

static int watch(struct server *s, struct jm_err *err)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return jm_err_set(err, JM_EUSAGE,
			"'guard' is joulemark's own helper; it is not for the command line.");
	s->client = peer.pid;
	s->pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	signal(SIGPIPE, SIG_IGN);
	return jm_signals_catch(&s->signals, err);
}

/* The kernel shall look for memory elsewhere first; without root it says no, which is no harm. */
static void ask_to_be_spared(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "-1000", 5) < 0)
		errno = 0;
	close(fd);
}

int jm_guard_serve(struct jm_ctx *ctx, int fd, struct jm_err *err)
{
	struct server *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the guard.");
	s->ctx = ctx;
	s->fd = fd;
	s->signals.fd = -1;
	rc = watch(s, err);
	if (!rc) {
		ask_to_be_spared();
		serve(s);
	}
	if (s->opened) {
		if (!s->done || jm_knob_table_waits(&s->holder.table))
			rc = restore_alone(s, err);
		jm_knob_holder_close(&s->holder);
	}
	if (s->pidfd > 0)
		close(s->pidfd);
	/* what has come stays blocked: it must not end the process before its status is told */
	if (s->signals.fd >= 0)
		close(s->signals.fd);
	close(fd);
	free(s);
	return rc;
}
