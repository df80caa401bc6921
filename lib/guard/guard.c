/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of the guard: starts it, asks it, and takes its place when it is killed. */
#include "guard/guard_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct jm_guard {
	struct jm_ctx *ctx;
	pid_t pid;
	int fd;
	pthread_t watcher;
	bool watched;
	pthread_mutex_t lock; /* of what follows */
	bool stopping, changed;
	atomic_bool gone;
	int recovered; /* code of the recovery after the guard was killed */
	struct jm_err why;
	struct jm_knobs knobs;
	char message[JM_WIRE_MAX];
};

/* ---- starting ------------------------------------------------------------------------------------------ */

/* In the child; only calls that are safe after fork. */
static _Noreturn void become_guard(int fd)
{
	char *const argv[] = {(char *)"joulemark", (char *)"guard", NULL};
	sigset_t none;
	int null;

	setsid();
	if (fd == JM_WIRE_FD)
		fcntl(fd, F_SETFD, 0);
	else
		dup2(fd, JM_WIRE_FD);
	null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	close_range(JM_WIRE_FD + 1, ~0U, 0);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	execv("/proc/self/exe", argv);
	_exit(127);
}

static int launch(struct jm_guard *g, struct jm_err *err)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return jm_err_set(err, JM_EIO, "Cannot start the guard: %s.", strerror(errno));
	g->pid = fork();
	if (!g->pid)
		become_guard(pair[1]);
	close(pair[1]);
	g->fd = pair[0];
	if (g->pid < 0)
		return jm_err_set(err, JM_EIO, "Cannot start the guard: %s.", strerror(errno));
	return 0;
}

/* ---- when it is killed ------------------------------------------------------------------------------- */

/* Once: takes the dead guard's place and restores from its journal. */
static void take_over(struct jm_guard *g)
{
	int n = 0;

	pthread_mutex_lock(&g->lock);
	if (!g->gone) {
		g->gone = true;
		/* its locks are free only when it has ended altogether */
		while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
			;
		if (g->changed) {
			jm_log(g->ctx, JM_WARNING,
				"The guard (process %d) was killed; restoring in its place.",
				(int)g->pid);
			g->recovered = jm_guard_recover(g->ctx, &n, &g->why);
		}
	}
	pthread_mutex_unlock(&g->lock);
}

static bool is_stopping(struct jm_guard *g)
{
	bool stopping;

	pthread_mutex_lock(&g->lock);
	stopping = g->stopping;
	pthread_mutex_unlock(&g->lock);
	return stopping;
}

/* Waits for the other end to close. */
static void *watch(void *arg)
{
	struct jm_guard *g = arg;
	struct pollfd p = {.fd = g->fd};

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	if (!is_stopping(g))
		take_over(g);
	return NULL;
}

static void start_watcher(struct jm_guard *g)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	g->watched = !pthread_create(&g->watcher, NULL, watch, g);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* ---- asking -------------------------------------------------------------------------------------------- */

static int gone(struct jm_guard *g, struct jm_err *err)
{
	take_over(g);
	if (g->recovered)
		return jm_err_set(err, g->recovered, "The guard was killed, and: %s", g->why.text);
	return jm_err_set(err, JM_EGONE, "The guard (process %d) was killed; %s.", (int)g->pid,
		g->changed ? "every setting is back as it was found"
			   : "it had changed nothing that was not to stay");
}

/* Sends the request at the start of the message with `bytes` behind it; the reply takes its place. */
static int ask(struct jm_guard *g, int op, int n, size_t bytes, struct jm_err *err)
{
	struct jm_wire_request *q = (struct jm_wire_request *)g->message;
	struct jm_wire_reply *r = (struct jm_wire_reply *)g->message;
	ssize_t got;

	q->op = op;
	q->n = n;
	do
		got = send(g->fd, g->message, sizeof(*q) + bytes, MSG_NOSIGNAL);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return gone(g, err);
	do
		got = recv(g->fd, g->message, sizeof(g->message), 0);
	while (got < 0 && errno == EINTR);
	if (got < (ssize_t)sizeof(*r))
		return gone(g, err);
	r->text[sizeof(r->text) - 1] = '\0';
	return r->rc ? jm_err_set(err, r->rc, "%s", r->text) : 0;
}

static const void *payload(const struct jm_guard *g)
{
	return g->message + sizeof(struct jm_wire_reply);
}

static int reply_count(const struct jm_guard *g)
{
	return ((const struct jm_wire_reply *)g->message)->n;
}

static int open_controls(struct jm_guard *g, const char *controls, struct jm_err *err)
{
	size_t n = controls ? strlen(controls) : 0;
	int rc;

	if (n > 1000)
		return jm_err_set(err, JM_EUSAGE, "The list of controls is too long.");
	if (controls && !n)
		return jm_err_set(
			err, JM_EUSAGE, "No control is named; 'joulemark list' shows them.");
	if (n)
		memcpy(g->message + sizeof(struct jm_wire_request), controls, n);
	rc = ask(g, JM_WIRE_OPEN, (int)n, n, err);
	if (rc)
		return rc;
	g->knobs.n = reply_count(g);
	g->knobs.knob = calloc((size_t)g->knobs.n + 1, sizeof(struct jm_knob));
	if (!g->knobs.knob)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d knobs.", g->knobs.n);
	memcpy(g->knobs.knob, payload(g), (size_t)g->knobs.n * sizeof(struct jm_knob));
	return 0;
}

int jm_guard_start(
	struct jm_ctx *ctx, const char *controls, struct jm_guard **ret, struct jm_err *err)
{
	struct jm_guard *g = calloc(1, sizeof(*g));
	int rc;

	if (!g)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the guard.");
	g->ctx = ctx;
	g->fd = -1;
	pthread_mutex_init(&g->lock, NULL);
	rc = launch(g, err);
	if (!rc)
		rc = open_controls(g, controls, err);
	if (rc) {
		jm_guard_stop(g, NULL);
		return rc;
	}
	start_watcher(g);
	*ret = g;
	return 0;
}

const struct jm_knobs *jm_guard_knobs(const struct jm_guard *g)
{
	return &g->knobs;
}

int jm_guard_get(struct jm_guard *g, struct jm_applied *out, struct jm_err *err)
{
	int rc = ask(g, JM_WIRE_GET, 0, 0, err);

	if (!rc)
		memcpy(out, payload(g), (size_t)g->knobs.n * sizeof(*out));
	return rc;
}

int jm_guard_set(struct jm_guard *g, const struct jm_setting *settings, int n,
	struct jm_applied *out, int *ret_n, struct jm_err *err)
{
	size_t bytes = (size_t)n * sizeof(*settings);
	int rc;

	if (bytes > JM_WIRE_MAX - sizeof(struct jm_wire_request))
		return jm_err_set(err, JM_EUSAGE, "%d settings at once are too many.", n);
	pthread_mutex_lock(&g->lock);
	g->changed = true;
	pthread_mutex_unlock(&g->lock);
	memcpy(g->message + sizeof(struct jm_wire_request), settings, bytes);
	rc = ask(g, JM_WIRE_SET, n, bytes, err);
	if (rc)
		return rc;
	*ret_n = reply_count(g);
	memcpy(out, payload(g), (size_t)*ret_n * sizeof(*out));
	return 0;
}

int jm_guard_restore(struct jm_guard *g, struct jm_err *err)
{
	return ask(g, JM_WIRE_RESTORE, 0, 0, err);
}

int jm_guard_keep(struct jm_guard *g, struct jm_err *err)
{
	int rc = ask(g, JM_WIRE_KEEP, 0, 0, err);

	/* from here on a guard that is killed leaves nothing to be put back */
	pthread_mutex_lock(&g->lock);
	g->changed = g->changed && rc;
	pthread_mutex_unlock(&g->lock);
	return rc;
}

/* ---- ending -------------------------------------------------------------------------------------------- */

/* A guard that was killed before it changed anything leaves nothing to say. */
static int say_stop(struct jm_guard *g, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int rc;

	pthread_mutex_lock(&g->lock);
	g->stopping = true;
	pthread_mutex_unlock(&g->lock);
	rc = ask(g, JM_WIRE_STOP, 0, 0, &why);
	if (rc == JM_EGONE && !g->changed)
		return 0;
	return rc ? jm_err_set(err, rc, "%s", why.text) : 0;
}

int jm_guard_stop(struct jm_guard *g, struct jm_err *err)
{
	int rc = 0;

	if (!g)
		return 0;
	if (g->pid > 0)
		rc = say_stop(g, err);
	if (g->watched)
		pthread_join(g->watcher, NULL);
	if (g->fd >= 0)
		close(g->fd);
	if (g->pid > 0 && !g->gone)
		while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
			;
	pthread_mutex_destroy(&g->lock);
	jm_knobs_done(&g->knobs);
	free(g);
	return rc;
}

bool jm_guard_alive(const struct jm_guard *g)
{
	return !g->gone;
}

int jm_guard_pid(const struct jm_guard *g)
{
	return g->pid;
}
