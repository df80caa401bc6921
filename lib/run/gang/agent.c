/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"
#include "guard/guard_requests.h"
#include "base/clock.h"
#include "frame.h"
#include "guard/guard_recover.h"
#include "gang_meeting.h"
#include "launcher.h"
#include "heartbeat.h"
#include "run/plan/case_settings.h"
#include "run/plan/environment.h"
#include "base/process/child_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS 500

struct agent {
	struct jm_ctx *ctx;
	const struct jm_agent_options *o;
	int link;
	struct jm_heartbeat *heartbeat; /* of the head */
	struct jm_frame_reader orders;	/* of the head */
	struct jm_guard *guard;
	json_t *found; /* as a plan's "found" */
	/* the case that is under way */
	struct jm_rank worker;
	struct jm_frame_reader told; /* by the worker */
	bool runs, bye;
	bool asked; /* to end, by Ctrl-C */
};

/* ---- to the head ----------------------------------------------------------------------------- */

static int say(const struct agent *a, enum jm_frame_type type, const void *data, size_t n,
	struct jm_err *err)
{
	return jm_frame_write(a->link, type, data, n, NULL, 0, err);
}

/* The case fails here, and nothing of it runs any more. */
static int say_failure(const struct agent *a, const struct jm_err *why, struct jm_err *err)
{
	json_t *error = json_pack("{s:i, s:s}", "code", why->code, "text", why->text);
	int code = jm_frame_write_json(a->link, JM_FRAME_ERROR, error, err);

	json_decref(error);
	return code;
}

static int say_exit(const struct agent *a, int status, struct jm_err *err)
{
	const int32_t word = status;

	return say(a, JM_FRAME_EXIT, &word, sizeof(word), err);
}

/* ---- a case ---------------------------------------------------------------------------------- */

/* The guard, and every knob of this host as it was found. */
static int start_guard(struct agent *a, struct jm_err *err)
{
	int code = jm_guard_recover(a->ctx, &(int){0}, err);
	const struct jm_knobs *knobs;
	struct jm_applied *now;

	if (!code)
		code = jm_guard_start(a->ctx, a->o->controls, &a->guard, err);
	if (!code)
		code = jm_guard_state(a->guard, a->o->stated, false, err);
	if (code)
		return code;
	knobs = jm_guard_knobs(a->guard);
	now = calloc((size_t)knobs->n + 1, sizeof(*now));
	code = now ? jm_guard_get(a->guard, now, err)
		   : jm_err_set(err, JM_ENOMEM, "Out of memory for the knobs.");
	json_array_clear(a->found);
	for (int i = 0; i < knobs->n && !code; i++) { /* the guard restores the accepted value */
		const struct jm_knob_value *value =
			jm_knob_value_known(&now[i].accepted) ? &now[i].accepted : &now[i].enforced;

		json_array_append_new(a->found, jm_case_found(&knobs->knob[i], value));
	}
	free(now);
	return code;
}

static void stop_guard(struct agent *a)
{
	jm_guard_stop(a->guard, NULL);
	a->guard = NULL;
}

static int make_settings(struct agent *a, json_t *job, struct jm_err *err)
{
	const json_t *parameters = json_object_get(job, "parameters");
	json_t *rows = NULL;
	int code = 0;

	if (!jm_case_sets(parameters) ||
		!json_is_true(json_object_get(json_object_get(job, "gang"), "measures")))
		return 0; /* or the first rank of this host makes them */
	if (a->guard && !jm_guard_alive(a->guard))
		stop_guard(a);
	if (!a->guard) {
		code = start_guard(a, err);
		if (code) /* a guard without what was stated, or found, is none */
			stop_guard(a);
	}
	if (!code)
		code = jm_case_apply(a->guard, a->found, parameters, NULL, &rows, err);
	if (!code)
		json_object_set(job, "settings", rows);
	json_decref(rows);
	return code;
}

static int start_worker(struct agent *a, const json_t *job, struct jm_err *err)
{
	const json_t *parameters = json_object_get(job, "parameters");
	char **own = jm_environment_new(json_object_get(parameters, "environment"), NULL);
	char **env = own && *own ? jm_proc_environment((const char *const *)own) : NULL;
	const struct jm_launch what = {
		.program = a->o->program, .job = job, .out_fd = -1, .env = env};
	int32_t pid;
	int code = jm_rank_start(&what, json_object_get(job, "gang"), -1, &a->worker, err);

	free(env);
	jm_environment_free(own);
	a->runs = !code;
	pid = a->worker.pid;
	return code ? code : say(a, JM_FRAME_STARTED, &pid, sizeof(pid), err);
}

static int begin_case(struct agent *a, const struct jm_frame *f, struct jm_err *err)
{
	json_t *job = json_loadb(f->data, f->size, 0, NULL);
	struct jm_err why = JM_ERR_INIT;
	int code = job && !a->runs ? 0 : jm_err_set(&why, JM_EFORMAT, "A job came that is none.");

	if (!code)
		code = jm_gang_meeting_key(json_object_get(job, "gang"), a->o->place->key, &why);
	if (!code)
		json_object_set_new(job, "parent", json_integer(getpid()));
	if (!code)
		code = make_settings(a, job, &why);
	if (!code)
		code = start_worker(a, job, &why);
	json_decref(job);
	if (!code)
		return 0;
	code = say_failure(a, &why, err);
	return code ? code : say_exit(a, 0, err);
}

/* What the worker wrote last is read before its end is told. */
static void pass_stderr(struct agent *a)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(a->worker.err_fd, bytes, sizeof(bytes))) > 0)
		say(a, JM_FRAME_STDERR, bytes, (size_t)n, NULL);
	if (n == 0) {
		close(a->worker.err_fd);
		a->worker.err_fd = -1;
	}
}

static int end_case(struct agent *a, struct jm_err *err)
{
	int status = jm_launcher_local.wait(&a->worker);

	if (a->worker.err_fd >= 0)
		pass_stderr(a);
	jm_rank_close(&a->worker);
	jm_frame_reader_done(&a->told);
	a->runs = false;
	return say_exit(a, status, err);
}

static int pass_frames(struct agent *a, struct jm_err *err)
{
	struct jm_frame f;
	bool ended = false;
	int code = jm_frame_fill(&a->told, a->worker.frames_fd, &ended, err), got = 1;

	while (!code && (got = jm_frame_next(&a->told, &f, err)) > 0)
		if (f.type != JM_FRAME_PROGRESS)
			code = say(a, f.type, f.data, f.size, err);
	if (!code && got < 0)
		code = got;
	return code || !ended ? code : end_case(a, err);
}

/* Without its guard the settings of a case do not hold. */
static int check_guard(struct agent *a, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;

	if (!a->runs || !a->guard || jm_guard_alive(a->guard))
		return 0;
	jm_launcher_local.signal(&a->worker, SIGKILL, true);
	stop_guard(a);
	jm_err_set(&why, JM_EGONE, "The guard process of the settings has ended.");
	return say_failure(a, &why, err);
}

static int check_stopped(struct agent *a, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;

	if (!a->runs || !jm_rank_end_stopped(&a->worker, &why))
		return 0;
	return say_failure(a, &why, err);
}

/* ---- the head's orders ----------------------------------------------------------------------- */

static int obey(struct agent *a, const struct jm_frame *f, struct jm_err *err)
{
	const int64_t now = jm_clock_now(jm_clock_real());
	struct jm_frame_signal s;

	switch (f->type) {
	case JM_FRAME_JOB:
		return begin_case(a, f, err);
	case JM_FRAME_SIGNAL:
		if (f->size == sizeof(s) && a->runs) {
			memcpy(&s, f->data, sizeof(s));
			jm_launcher_local.signal(&a->worker, s.number, s.with_children);
		}
		return 0;
	case JM_FRAME_PING:
		if (jm_tcp_send(a->link, &now, sizeof(now), now + JM_SECOND))
			return 0;
		return jm_err_set(err, JM_EGONE, "Rank 0 does not read any more.");
	case JM_FRAME_BYE:
		a->bye = true;
		return 0;
	default:
		return jm_err_set(err, JM_EFORMAT, "Rank 0 sent an order that is none.");
	}
}

static int take_orders(struct agent *a, struct jm_err *err)
{
	bool gone = false;
	struct jm_frame f;
	int code = jm_frame_fill(&a->orders, a->link, &gone, err), got = 1;

	while (!code && !a->bye && (got = jm_frame_next(&a->orders, &f, err)) > 0)
		code = obey(a, &f, err);
	if (!code && got < 0)
		code = got;
	if (!code && (gone || jm_tcp_lost(a->link)) && !a->bye)
		code = jm_err_set(err, JM_EGONE,
			"The run of rank 0 has ended, or its host does not answer any more; the "
			"work "
			"of rank %d was ended and its settings are put back.",
			a->o->place->rank);
	return code;
}

/* mpirun and srun pass Ctrl-C on to all ranks: the head, which keeps the result, says when this one
 * ends. The second time, and by any other signal, it ends at once. */
static int take_cancel(struct agent *a, struct jm_err *err)
{
	char bytes[16];
	ssize_t n = read(a->o->cancel_fd, bytes, sizeof(bytes));

	if (n != 1 || bytes[0] != SIGINT || a->asked)
		return jm_err_set(err, JM_EINTR, "Interrupted.");
	a->asked = true;
	jm_log(a->ctx, JM_WARNING,
		"Rank %d goes on until rank 0 ends, which Ctrl-C there brings about; press Ctrl-C "
		"again to end rank %d at once.",
		a->o->place->rank, a->o->place->rank);
	return 0;
}

static int take_turn(struct agent *a, struct jm_err *err)
{
	struct pollfd p[] = {{.fd = a->link, .events = POLLIN},
		{.fd = a->o->cancel_fd, .events = POLLIN},
		{.fd = a->runs ? a->worker.err_fd : -1, .events = POLLIN},
		{.fd = a->runs ? a->worker.frames_fd : -1, .events = POLLIN}};
	int code = 0;

	if (poll(p, sizeof(p) / sizeof(*p), LOOK_MS) < 0)
		return errno == EINTR ? 0
				      : jm_err_set(err, JM_EIO, "Waiting for rank 0 failed: %s.",
						strerror(errno));
	if (p[1].revents)
		code = take_cancel(a, err);
	if (code)
		return code;
	if (p[0].revents || jm_tcp_lost(a->link))
		code = take_orders(a, err);
	if (!code && p[2].revents && a->runs)
		pass_stderr(a);
	if (!code && p[3].revents && a->runs)
		code = pass_frames(a, err);
	if (!code)
		code = check_stopped(a, err);
	return code ? code : check_guard(a, err);
}

/* ---- from the meeting to the goodbye --------------------------------------------------------- */

static int join(struct agent *a, struct jm_err *err)
{
	struct jm_rank_host of;
	int fd[JM_MEET_MOST];
	int code = jm_agents_meet(a->ctx, a->o->place, fd, err);

	if (code)
		return code;
	a->link = fd[0];
	for (int r = 1; r < a->o->place->world; r++) {
		if (fd[r] >= 0)
			close(fd[r]);
		fd[r] = -1;
	}
	jm_rank_host_own(a->ctx, &of);
	if (!jm_tcp_send(a->link, &of, sizeof(of), jm_clock_now(jm_clock_real()) + JM_SECOND))
		return jm_err_set(err, JM_EGONE, "The run of rank 0 has ended.");
	return jm_agents_start_heartbeat(a->ctx, a->o->place, fd, &a->heartbeat, err);
}

static int leave(struct agent *a, int code, struct jm_err *err)
{
	struct jm_err late = JM_ERR_INIT;

	if (a->runs) {
		jm_launcher_local.signal(&a->worker, SIGKILL, true);
		jm_launcher_local.wait(&a->worker);
		jm_rank_close(&a->worker);
	}
	jm_frame_reader_done(&a->told);
	jm_frame_reader_done(&a->orders);
	if (jm_guard_stop(a->guard, &late) && !code)
		code = jm_err_set(err, late.code, "%s", late.text);
	json_decref(a->found);
	jm_heartbeat_stop(a->heartbeat);
	if (a->link >= 0)
		close(a->link);
	return code;
}

int jm_agent_serve(struct jm_ctx *ctx, const struct jm_agent_options *o, struct jm_err *err)
{
	struct agent a = {.ctx = ctx, .o = o, .link = -1, .found = json_array()};
	int code = join(&a, err);

	while (!code && !a.bye)
		code = take_turn(&a, err);
	return leave(&a, code, err);
}
