/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of the guard: starts it, sends requests, and restores in its place when it is
 * killed. */
#include "guard/guard_private.h"

#include "base/log_later.h"
#include "base/process/quiet_thread.h"
#include "guard/guard_program.h"
#include "guard/guard_recover.h"
#include "guard/joulemarkd_link.h"
#include "guard/guard_takeover.h"
#include "guard/guard_wait.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ms in which a guard should end after its last reply; after an error it may have to stay */
#define LINGER	      10000
#define LINGER_FAILED 500
#define STARTS	      3

/* ---- starting -------------------------------------------------------------------------------- */

static int launch(struct jm_guard *g, struct jm_err *err)
{
	char program[PATH_MAX];
	int rc;

	if (g->service)
		return jm_joulemarkd_connect(g->ctx, &g->fd, err);
	rc = jm_guard_program(g->ctx, program, sizeof(program), err);
	if (!rc)
		rc = jm_guard_launch(program, &g->self.pid, &g->fd, err);
	if (!rc)
		g->self = jm_process_of(g->self.pid);
	return rc;
}

/* ---- when it is killed ----------------------------------------------------------------------- */

/* Its locks are released only when its process has ended. */
static void reap(struct jm_guard *g)
{
	while (!g->service && waitpid(g->self.pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* The value to restore of each knob; NULL when there is none. */
static struct jm_knob_value *copy_found(struct jm_guard *g)
{
	struct jm_knob_value *found = calloc((size_t)g->knobs.n + 1, sizeof(*found));
	bool some = false;

	pthread_mutex_lock(&g->lock);
	for (int i = 0; i < g->knobs.n && found; i++) {
		found[i] = g->found[i];
		some = some || jm_knob_value_known(&found[i]);
	}
	pthread_mutex_unlock(&g->lock);
	if (some)
		return found;
	free(found);
	return NULL;
}

static bool was_asked(struct jm_guard *g)
{
	bool asked;

	pthread_mutex_lock(&g->lock);
	asked = g->asked;
	pthread_mutex_unlock(&g->lock);
	return asked;
}

static void set_taken(struct jm_guard *g)
{
	pthread_mutex_lock(&g->lock);
	g->taken = true;
	pthread_mutex_unlock(&g->lock);
}

/* Restores first and logs afterwards, because the reader of the log may be stopped. */
static void restore_in_its_place(struct jm_guard *g, const struct jm_knob_value *found)
{
	struct jm_log_later log;
	struct jm_takeover t = {.ctx = &log.ctx,
		.controls = g->controls,
		.knobs = &g->knobs,
		.found = found,
		.guard = g->self};

	jm_log_later_init(&log, g->ctx);
	jm_log(&log.ctx, JM_WARNING, "The guard (process %d) was killed; restoring in its place.",
		(int)g->self.pid);
	g->code = jm_take_over(&t, &g->why);
	g->recovered = true;
	set_taken(g);
	jm_log_later_done(&log);
}

/* Journals of a guard that was killed while it wrote them; it had changed nothing yet. */
static void clear_journals(struct jm_guard *g)
{
	struct jm_log_later log;
	int n;

	jm_log_later_init(&log, g->ctx);
	jm_guard_recover_soon(&log.ctx, &n, NULL);
	jm_log_later_done(&log);
}

/* Runs once, for the first caller, usually the watcher. */
static void *take_over(void *arg)
{
	struct jm_guard *g = arg;
	struct jm_knob_value *found;
	bool first;

	pthread_mutex_lock(&g->lock);
	first = !g->taking;
	g->taking = true;
	pthread_mutex_unlock(&g->lock);
	if (!first)
		return NULL;
	reap(g);
	g->gone = true;
	found = g->service ? NULL : copy_found(g); /* joulemarkd puts back what it held */
	if (found)
		restore_in_its_place(g, found);
	if (!g->service && was_asked(g))
		clear_journals(g);
	set_taken(g);
	free(found);
	return NULL;
}

static bool is_stopping(struct jm_guard *g)
{
	bool stopping;

	pthread_mutex_lock(&g->lock);
	stopping = g->stopping;
	pthread_mutex_unlock(&g->lock);
	return stopping;
}

/* Waits for the other end to close. A guard that was asked to stop closes it, too. */
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

/* ---- waiting --------------------------------------------------------------------------------- */

/* "gpu.power of GPU 1 ... (700W)", the first few of them. */
static void list_held(const struct jm_guard *g, char *out, size_t size)
{
	int n = 0, shown = 0;
	char found[JM_KNOB_TEXT];
	size_t used = 0;

	*out = '\0';
	for (int i = 0; i < g->knobs.n; i++) {
		const struct jm_knob *k = &g->knobs.knob[i];

		if (!jm_knob_value_known(&g->found[i]) || n++ > 2)
			continue;
		jm_knob_value_text(&g->found[i], k->unit, found, sizeof(found));
		used += (size_t)snprintf(out + used, size - used, "%s%s of %.20s (%.24s)",
			shown++ ? ", " : "", k->name, k->label, found);
	}
	if (n > shown)
		snprintf(out + used, size - used, " and %d more", n - shown);
}

static int leave(struct jm_guard *g, const char *what, struct jm_err *err)
{
	char held[200];

	g->left = true;
	list_held(g, held, sizeof(held));
	if (!*held)
		return jm_err_set(err, JM_EINTR,
			"Interrupted. The guard (process %d), which %s, was left; it had changed "
			"nothing.",
			(int)g->self.pid, what);
	return jm_err_set(err, JM_EINTR,
		"Interrupted. The guard (process %d), which %s, was left. NOT restored: %s. The "
		"guard restores it when it can continue; 'joulemark status' shows whether it has, "
		"and if the guard is killed, 'joulemark restore' does it.",
		(int)g->self.pid, what, held);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static bool is_taken(struct jm_guard *g)
{
	bool taken;

	pthread_mutex_lock(&g->lock);
	taken = g->taken;
	pthread_mutex_unlock(&g->lock);
	return taken;
}

static int gone(struct jm_guard *g, struct jm_err *err)
{
	static const char what[] = "was killed and whose settings are being put back";
	struct jm_guard_wait w = jm_guard_wait_begin(g->ctx, g->self.pid, what);
	const struct timespec look = {.tv_nsec = JM_GUARD_LOOK_MS * 1000000L / 10};

	if ((!g->watched || is_stopping(g)) && !g->has_taker) {
		g->has_taker = !jm_quiet_thread(&g->taker, take_over, g);
		if (!g->has_taker)
			take_over(g);
	}
	for (int i = 0; !is_taken(g); i++) {
		nanosleep(&look, NULL);
		if (i % 10 == 9 && !jm_guard_wait_goes_on(&w))
			return leave(g, what, err);
	}
	if (g->service)
		return jm_joulemarkd_lost(g->fd, err);
	if (g->code) /* JM_EGONE says that everything is back */
		return jm_err_set(err, g->code == JM_EGONE ? JM_EIO : g->code,
			"The guard was killed, and: %s", g->why.text);
	return jm_err_set(err, JM_EGONE, "The guard (process %d) was killed; %s.", (int)g->self.pid,
		g->recovered ? "every setting is back as it was found, and was read back"
			     : "it had changed nothing that was not to stay");
}

/* JM_EINTR: the user has ended the wait. */
static int await_reply(struct jm_guard *g, const char *what, struct jm_err *err)
{
	struct pollfd p = {.fd = g->fd, .events = POLLIN};
	struct jm_guard_wait w = jm_guard_wait_begin(g->ctx, g->self.pid, what);

	while (poll(&p, 1, JM_GUARD_LOOK_MS) <= 0)
		if (!jm_guard_wait_goes_on(&w))
			return leave(g, what, err);
	return 0;
}

static const char *const doing[] = {
	[JM_WIRE_OPEN] = "is opening the drivers",
	[JM_WIRE_ABSENT] = "is opening the drivers",
	[JM_WIRE_GET] = "is reading the knobs",
	[JM_WIRE_STATE] = "is taking over the stated values of knobs",
	[JM_WIRE_HOLD] = "is reading the settings that it will change",
	[JM_WIRE_SET] = "is setting knobs",
	[JM_WIRE_RESTORE] = "is putting settings back",
	[JM_WIRE_KEEP] = "is writing down what is kept",
	[JM_WIRE_STOP] = "is putting settings back",
};

int jm__guard_ask(struct jm_guard *g, enum jm_wire_op op, int n, struct jm_err *err)
{
	size_t bytes = jm_wire_put_request(g->message, op, (size_t)n);
	ssize_t got;
	int rc;

	if (g->left)
		return leave(g, doing[op], err);
	do
		got = send(g->fd, g->message, bytes, MSG_NOSIGNAL);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return gone(g, err);
	rc = await_reply(g, doing[op], err);
	if (rc)
		return rc;
	got = jm_wire_receive(g->fd, g->message, g->service ? &g->self.pid : NULL);
	if (got <= 0)
		return gone(g, err);
	return jm_wire_check_reply(g->message, (size_t)got, op, g->knobs.n, err);
}

void jm__guard_forget_found(struct jm_guard *g)
{
	pthread_mutex_lock(&g->lock);
	for (int i = 0; i < g->knobs.n; i++)
		g->found[i] = jm_knob_value_of(NAN);
	pthread_mutex_unlock(&g->lock);
}

int jm__guard_add_knobs(struct jm_guard *g, const struct jm_knobs *more, struct jm_err *err)
{
	const int own = g->knobs.n, n = own + more->n;
	struct jm_knob_value *found = reallocarray(g->found, (size_t)n + 1, sizeof(*found));
	int rc = 0;

	if (!found)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the knobs.");
	g->found = found;
	for (int i = own; i <= n; i++)
		found[i] = jm_knob_value_of(NAN);
	for (int i = 0; i < more->n && rc >= 0; i++) {
		const struct jm_knobs first = {.knob = g->knobs.knob, .n = own};

		if (!jm_knobs_have(&first, more->knob[i].name))
			rc = jm_knobs_add(&g->knobs, &more->knob[i], err);
	}
	return rc < 0 ? rc : 0;
}

static int open_controls(struct jm_guard *g, const char *controls, struct jm_err *err)
{
	size_t n = controls ? strlen(controls) : 0;
	struct jm_knobs got;
	int rc;

	if (n > JM_WIRE_SPECS || (controls && !n))
		return jm_err_set(err, JM_EUSAGE,
			"The list of controls is %s; 'joulemark list' shows them.",
			n ? "too long" : "empty");
	if (n)
		memcpy(jm_wire_request_payload(g->message), controls, n);
	rc = jm__guard_ask(g, JM_WIRE_OPEN, (int)n, err);
	if (rc)
		return rc;
	got = (struct jm_knobs){.knob = jm_wire_reply_payload(g->message), .n = jm__guard_count(g)};
	rc = jm__guard_add_knobs(g, &got, err);
	if (rc)
		return rc;
	rc = jm__guard_ask(g, JM_WIRE_ABSENT, 0, err);
	if (!rc)
		memcpy(g->knobs.absent, jm_wire_reply_payload(g->message),
			(size_t)jm__guard_count(g));
	return rc;
}

static struct jm_guard *new_guard(struct jm_ctx *ctx, bool service, struct jm_err *err)
{
	struct jm_guard *g = calloc(1, sizeof(*g));

	if (!g) {
		jm_err_set(err, JM_ENOMEM, "Out of memory for the guard.");
		return NULL;
	}
	g->ctx = ctx;
	g->fd = -1;
	g->service = service;
	pthread_mutex_init(&g->lock, NULL);
	return g;
}

int jm__guard_open(struct jm_ctx *ctx, const char *controls, bool service, struct jm_guard **ret,
	struct jm_err *err)
{
	struct jm_guard *g = new_guard(ctx, service, err);
	int rc;

	if (!g)
		return JM_ENOMEM;
	g->controls = controls ? strdup(controls) : NULL;
	if (controls && !g->controls)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the guard.");
	else
		rc = launch(g, err);
	if (!rc)
		rc = open_controls(g, controls, err);
	if (rc) {
		jm_guard_stop(g, NULL);
		return rc;
	}
	g->watched = !jm_quiet_thread(&g->watcher, watch, g);
	*ret = g;
	return 0;
}

/* This user has no knob of his own, for the reason `none`: those of a lease are taken. */
static int start_with_lease(
	struct jm_ctx *ctx, const struct jm_err *none, struct jm_guard **ret, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	struct jm_guard *g = new_guard(ctx, false, &why);
	int rc = g ? jm__guard_open(ctx, NULL, true, &g->moved, &why) : JM_ENOMEM;

	if (!rc)
		rc = jm__guard_add_knobs(g, &g->moved->knobs, &why);
	if (!rc) {
		memcpy(g->knobs.absent, g->moved->knobs.absent, sizeof(g->knobs.absent));
		*ret = g;
		return 0;
	}
	jm_guard_stop(g, NULL);
	if (rc == JM_ENOENT) /* there is no joulemarkd */
		return jm_err_set(err, rc, "%s", none->text);
	return jm_err_set(err, rc, "%s %s", why.text, none->text);
}

/* A guard that is killed before its first request has changed nothing: another one replaces it. */
int jm_guard_start(
	struct jm_ctx *ctx, const char *controls, struct jm_guard **ret, struct jm_err *err)
{
	char program[PATH_MAX];
	struct jm_err why = JM_ERR_INIT;
	int rc = jm__guard_open(ctx, controls, false, ret, &why);

	for (int i = 1; i < STARTS && rc == JM_EGONE; i++) {
		why = (struct jm_err)JM_ERR_INIT;
		rc = jm__guard_open(ctx, controls, false, ret, &why);
	}
	if (rc == JM_ENOENT && !controls && geteuid())
		return start_with_lease(ctx, &why, ret, err);
	if (rc == JM_EGONE && !jm_guard_program(ctx, program, sizeof(program), NULL))
		return jm_err_set(err, JM_ECHILD,
			"The guard's program %s ended %d times before it answered, and nothing was "
			"changed. If it is not joulemark %s, set JM_GUARD to the path of that "
			"version.",
			program, STARTS, JM_VERSION);
	return rc ? jm_err_set(err, rc, "%s", why.text) : 0;
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* A guard that was killed before it changed anything needs no message. */
static int say_stop(struct jm_guard *g, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int rc;

	pthread_mutex_lock(&g->lock);
	g->stopping = true;
	pthread_mutex_unlock(&g->lock);
	rc = jm__guard_ask(g, JM_WIRE_STOP, 0, &why);
	if (rc == JM_EGONE && g->gone && !g->recovered && !g->service)
		return 0;
	return rc ? jm_err_set(err, rc, "%s", why.text) : 0;
}

/* A guard whose driver does not return continues, and restores when it does. */
static void let_it_end(struct jm_guard *g, int limit_ms)
{
	const struct timespec look = {.tv_nsec = 10000000};

	for (int ms = 0; ms < limit_ms; ms += 10) {
		pid_t ended = waitpid(g->self.pid, NULL, WNOHANG);

		if (ended > 0 || (ended < 0 && errno != EINTR))
			return;
		nanosleep(&look, NULL);
	}
}

static void free_guard(struct jm_guard *g)
{
	if (g->fd >= 0)
		close(g->fd);
	pthread_mutex_destroy(&g->lock);
	jm_knobs_done(&g->knobs);
	free(g->found);
	free(g->stated);
	free(g->probed);
	free(g->controls);
	free(g);
}

/* False: a thread still needs its memory. */
static bool end(struct jm_guard *g, int *ret_rc, struct jm_err *err)
{
	bool busy;
	int rc = 0;

	if (g->fd >= 0 && (g->self.pid > 0 || g->service))
		rc = say_stop(g, err);
	*ret_rc = rc;
	if (g->fd >= 0)
		shutdown(g->fd, SHUT_RDWR); /* this ends the watcher */
	pthread_mutex_lock(&g->lock);
	busy = g->left && g->taking && !g->taken;
	pthread_mutex_unlock(&g->lock);
	if (busy) /* with a driver call that does not return */
		return false;
	if (g->watched)
		pthread_join(g->watcher, NULL);
	if (g->has_taker)
		pthread_join(g->taker, NULL);
	if (g->self.pid > 0 && !g->service && !g->gone && !g->left)
		let_it_end(g, rc ? LINGER_FAILED : LINGER);
	return true;
}

int jm__guard_leave(struct jm_guard *g, struct jm_err *err)
{
	int rc;

	if (!end(g, &rc, err))
		return rc;
	if (g->fd >= 0)
		close(g->fd);
	g->fd = -1;
	g->watched = g->has_taker = false;
	return rc;
}

int jm_guard_stop(struct jm_guard *g, struct jm_err *err)
{
	int rc = 0, moved_rc;

	if (!g)
		return 0;
	moved_rc = jm_guard_stop(g->moved, err);
	if (end(g, &rc, err))
		free_guard(g);
	return moved_rc ? moved_rc : rc;
}

bool jm_guard_alive(const struct jm_guard *g)
{
	return g->moved ? jm_guard_alive(g->moved) : !g->gone;
}

int jm_guard_pid(const struct jm_guard *g)
{
	return g->moved ? g->moved->self.pid : g->self.pid;
}
