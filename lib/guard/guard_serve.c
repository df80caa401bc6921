/* SPDX-License-Identifier: Apache-2.0 */
/* The guard's own process: carries out the requests of its client and restores everything when
 * the client has ended. */
#include "guard/guard_serve.h"
#include "base/ctx.h"
#include "base/process/forward_signals.h"
#include "guard/guard_wire.h"
#include "guard/guard_apply.h"
#include "guard/guard_lease.h"

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
	struct jm_lease *lease; /* NULL = the client is its parent */
	bool opened, done;
	struct jm_knob_holder holder;
	char message[JM_WIRE_MAX];
};

/* The message contains the data to send. False: the client does not take it. */
static bool reply(struct server *s, size_t bytes)
{
	ssize_t sent;

	do
		sent = send(s->fd, s->message, bytes, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent >= 0;
}

static int open_holder(
	struct server *s, const struct jm_wire_request *q, size_t *ret_n, struct jm_err *err)
{
	char specs[JM_WIRE_SPECS + 1];
	const struct jm_knobs *knobs = &s->holder.table.knobs;
	size_t bytes;
	int rc;

	if (s->opened)
		return jm_err_set(err, JM_EBUG, "The guard was asked to open twice.");
	memcpy(specs, jm_wire_request_payload(s->message), q->n);
	specs[q->n] = '\0';
	if (s->lease && q->n)
		return jm_err_set(err, JM_EPERM,
			"joulemarkd chooses the controls; ask it for none of your own.");
	rc = jm_knob_holder_open(&s->holder, s->ctx, q->n ? specs : NULL,
		s->lease ? s->lease->terms->control : NULL, s->client, err);
	if (rc)
		return rc;
	s->opened = true;
	if (s->lease)
		jm_lease_state(s->lease, &s->holder);
	bytes = (size_t)knobs->n * sizeof(struct jm_knob);
	if (bytes > JM_WIRE_MAX - sizeof(struct jm_wire_reply))
		return jm_err_set(
			err, JM_ENOSUP, "%d knobs are more than a guard can hold.", knobs->n);
	memcpy(jm_wire_reply_payload(s->message), knobs->knob, bytes);
	*ret_n = (size_t)knobs->n;
	return 0;
}

static int set(struct server *s, const struct jm_wire_request *q, size_t *ret_n, struct jm_err *err)
{
	struct jm_applied *out = jm_wire_reply_payload(s->message);
	struct jm_setting *settings = calloc((size_t)q->n + 1, sizeof(*settings));
	int n = (int)q->n, rc, n_out = 0;

	if (!settings)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d settings.", n);
	memcpy(settings, jm_wire_request_payload(s->message), (size_t)n * sizeof(*settings));
	rc = s->lease ? jm_lease_check(s->lease, &s->holder, q->op, settings, n, err) : 0;
	if (rc || (s->lease && q->op == JM_WIRE_STATE)) {
		free(settings);
		return rc;
	}
	if (q->op == JM_WIRE_STATE)
		rc = jm_knob_holder_state(&s->holder, settings, n, err);
	else if (q->op == JM_WIRE_HOLD)
		rc = jm_knob_holder_hold(&s->holder, settings, n, out, &n_out, err);
	else
		rc = jm_knob_holder_set(&s->holder, settings, n, out, &n_out, err);
	if (s->lease && !rc && q->op == JM_WIRE_SET)
		jm_lease_tell_set(s->lease, &s->holder, out, n_out);
	free(settings);
	*ret_n = (size_t)n_out;
	return rc;
}

/* A lease that could not put all back tries again when its client has hung up, and joulemarkd after
 * it. */
static int stop(struct server *s, struct jm_err *err)
{
	int rc = s->opened ? jm_knob_holder_restore(&s->holder, true, err) : 0;

	s->done = !rc || !s->lease;
	return rc;
}

/* Carries the request out; the payload of the reply takes its place. */
static int answer(
	struct server *s, const struct jm_wire_request *q, size_t *ret_n, struct jm_err *err)
{
	if (q->op == JM_WIRE_OPEN)
		return open_holder(s, q, ret_n, err);
	if (q->op == JM_WIRE_STOP)
		return stop(s, err);
	if (!s->opened)
		return jm_err_set(
			err, JM_EBUG, "The guard received a request before it was opened.");
	switch ((enum jm_wire_op)q->op) {
	case JM_WIRE_ABSENT:
		*ret_n = strlen(s->holder.table.knobs.absent);
		memcpy(jm_wire_reply_payload(s->message), s->holder.table.knobs.absent, *ret_n);
		return 0;
	case JM_WIRE_GET:
		*ret_n = (size_t)s->holder.table.knobs.n;
		jm_knob_holder_get(&s->holder, jm_wire_reply_payload(s->message));
		return 0;
	case JM_WIRE_STATE:
	case JM_WIRE_HOLD:
	case JM_WIRE_SET:
		return set(s, q, ret_n, err);
	case JM_WIRE_RESTORE:
		return jm_knob_holder_restore(&s->holder, false, err);
	case JM_WIRE_KEEP:
		if (s->lease)
			return jm_lease_refuse_keep(err);
		return jm_knob_holder_keep(&s->holder, err);
	case JM_WIRE_STOP:
	case JM_WIRE_OPEN:
	case JM_WIRE_OPS:
		break;
	}
	return jm_err_set(
		err, JM_EBUG, "The guard received a request of the unknown kind %u.", q->op);
}

/* One request; false when the client has hung up. */
static bool serve_one(struct server *s)
{
	pid_t sender;
	ssize_t got = jm_wire_receive(s->fd, s->message, &sender);
	struct jm_wire_request q = {.op = JM_WIRE_OPS};
	struct jm_err err = JM_ERR_INIT;
	size_t n = 0;
	bool sound, taken;
	int rc;

	if (got <= 0)
		return false;
	rc = jm_wire_check_request(s->message, (size_t)got, &err);
	if (!rc && s->lease)
		rc = jm_lease_check_sender(s->lease, sender, &err);
	sound = !rc;
	if (!rc) {
		memcpy(&q, s->message, sizeof(q));
		rc = answer(s, &q, &n, &err);
		if (rc == JM_EGONE) /* to the client this would mean that the guard has gone */
			rc = JM_EIO;
	}
	taken = reply(s, rc ? jm_wire_put_refusal(s->message, rc, err.text)
			    : jm_wire_put_reply(s->message, (enum jm_wire_op)q.op, n));
	if (rc && s->lease)
		jm_lease_tell_refused(s->lease, err.text);
	return !s->lease || (sound && taken);
}

/* The client learns why, if it still asks. */
static void over(struct server *s)
{
	char text[sizeof(((struct jm_wire_reply *)0)->text)];

	memset(s->message, 0, sizeof(struct jm_wire_reply));
	jm_lease_over_text(s->lease, text, sizeof(text));
	send(s->fd, s->message, jm_wire_put_refusal(s->message, JM_EGONE, text),
		MSG_NOSIGNAL | MSG_DONTWAIT);
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
		/* a lease that asks too fast has its next request read later */
		p[0].fd = s->lease && jm_lease_pause_ms(s->lease) ? -1 : s->fd;
		if (poll(p, 3, s->lease ? jm_lease_wait_ms(s->lease) : -1) < 0) {
			if (errno == EINTR)
				continue;
			return;
		}
		if (p[1].revents || p[2].revents)
			return;
		if (s->lease && jm_lease_is_over(s->lease)) {
			over(s);
			return;
		}
		if (p[0].revents && !serve_one(s))
			return;
	}
}

/* A reader of the client's output must not wait for the driver. */
static void give_up_stderr(void)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (null < 0)
		return;
	dup2(null, STDERR_FILENO);
	close(null);
}

/* The client has ended and gets no reply. A busy driver is tried again, and a driver call that
 * does not return is awaited without a limit, because its setting may still take effect. */
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

	signal(SIGPIPE, SIG_IGN);
	if (s->lease) {
		s->client = s->lease->terms->client.pid;
		s->pidfd = s->lease->terms->pidfd;
		return jm_signals_catch(&s->signals, err);
	}
	if (getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return jm_err_set(err, JM_EUSAGE,
			"'guard' is joulemark's own helper; it is not for the command line.");
	s->client = peer.pid;
	s->pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	return jm_signals_catch(&s->signals, err);
}

/* Asks the kernel to kill other processes first when memory runs out; without root this fails,
 * which does no harm. */
static void ask_to_be_spared(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "-1000", 5) < 0)
		errno = 0;
	close(fd);
}

static int serve_on(struct jm_ctx *ctx, int fd, struct jm_lease *lease, struct jm_err *err)
{
	struct server *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the guard.");
	s->ctx = ctx;
	s->fd = fd;
	s->lease = lease;
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
	/* pending signals stay blocked: they must not end the process before its status is sent */
	if (s->signals.fd >= 0)
		close(s->signals.fd);
	close(fd);
	free(s);
	return rc;
}

int jm_guard_serve(struct jm_ctx *ctx, int fd, struct jm_err *err)
{
	return serve_on(ctx, fd, NULL, err);
}

int jm_guard_serve_lease(
	struct jm_ctx *ctx, int fd, const struct jm_guard_terms *terms, struct jm_err *err)
{
	struct jm_lease lease;
	int rc = jm_lease_begin(&lease, ctx, fd, terms, err);

	if (!rc)
		rc = serve_on(ctx, fd, &lease, err);
	if (!rc)
		jm_lease_tell_end(&lease);
	return rc;
}
