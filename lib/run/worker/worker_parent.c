/* SPDX-License-Identifier: Apache-2.0 */
/* The parent: starts the workers of a case, receives their messages, and makes a record of the
 * case, whatever its result. */
#include "worker_parent.h"
#include "store/store_trace.h"
#include "worker_watch.h"
#include "base/clock.h"
#include "base/net/meeting.h"
#include "base/process/child_process.h"
#include "base/printable.h"
#include "measure/command/launch.h"
#include "meter/meters_json.h"
#include "orders.h"
#include "result/record.h"
#include "run/plan/environment.h"
#include "worker_end.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMIT_NS JM_SECOND

static int64_t real_now(void)
{
	return jm_clock_now(jm_clock_real());
}

/* ---- starting ---- */

/* The environment of a worker. A command gets its variables from the worker, but libraries of
 * native work read theirs when they are loaded. *ret_env = NULL: the parent's environment; own: the
 * texts that
 * *ret_env points to. */
static int environment(const struct jm__child *c, char **own, char ***ret_env, struct jm_err *err)
{
	const json_t *parameters = json_object_get(c->o->job, "parameters");
	const char *const mark[] = {c->reaper.variable, NULL};
	bool command = json_object_get(parameters, "command") != NULL;
	bool same = command ? c->reaper.pid <= 0 : own && !*own;

	*ret_env = same ? NULL : jm_proc_environment(command ? mark : (const char *const *)own);
	if (!own || (!same && !*ret_env))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the environment of the case.");
	return 0;
}

static int start(struct jm__child *c, struct jm_err *err)
{
	const json_t *parameters = json_object_get(c->o->job, "parameters");
	char **own = jm_environment_new(json_object_get(parameters, "environment"), c->o->variable);
	char **env;
	struct jm_rank rank[JM_MEET_MOST];
	int rc = environment(c, own, &env, err);
	struct jm_launch what = {.program = c->o->program,
		.job = c->o->job,
		.world = c->world,
		.agents = c->o->agents,
		.out_fd = c->o->out_fd,
		.env = env};

	if (!rc)
		rc = c->launcher->start(&what, rank, err);
	free(env);
	jm_environment_free(own);
	for (int r = 0; r < c->world && !rc; r++)
		c->member[r] = (struct jm__member){.rank = rank[r], .pid = rank[r].pid};
	return rc;
}

/* ---- messages of the worker ---- */

/* A store that takes no trace does not end hours of work: the record comes nevertheless. */
static void note_store(struct jm__child *c, int rc)
{
	if (rc)
		jm_log(c->ctx, JM_WARNING,
			"%s The case goes on without a trace in the store, and its record is "
			"written at its end.",
			c->o->no_trace->text);
}

static bool takes_trace(const struct jm__child *c)
{
	return c->o->store && !c->o->no_trace->code;
}

static void on_chunk(struct jm__child *c, const struct jm__member *m, const struct jm_frame *f)
{
	struct jm_frame_chunk head;
	struct jm_chunk chunk;
	void *moved = NULL;

	if (f->size < sizeof(head) || !takes_trace(c))
		return;
	memcpy(&head, f->data, sizeof(head));
	chunk = (struct jm_chunk){.signal = head.signal,
		.t0_ns = head.t0_ns,
		.t1_ns = head.t1_ns,
		.n = head.n,
		.data = f->data + sizeof(head),
		.bytes = f->size - sizeof(head)};
	if (!c->o->agents || jm__host_traces_move(&c->traces, c->o->agents, (int)(m - c->member),
				     &chunk, &moved))
		note_store(c, jm_store_add_chunk(c->o->store, &chunk, c->o->no_trace));
	free(moved);
}

static void on_progress(struct jm__child *c, const struct jm_frame *f)
{
	struct jm_frame_progress p;
	struct jm_case_progress told;

	if (f->size != sizeof(p))
		return;
	memcpy(&p, f->data, sizeof(p));
	p.phase[sizeof(p.phase) - 1] = '\0';
	/* the worker sends one when it begins its measured phase */
	c->has_begun = c->has_begun || !strncmp(p.phase, "steady", strlen("steady"));
	c->verifies = !strcmp(p.phase, "verify");
	if (!c->o->progress)
		return;
	p.unit[sizeof(p.unit) - 1] = '\0';
	jm_text_tame(p.unit);
	told = (struct jm_case_progress){.phase = p.phase,
		.unit = p.unit,
		.items = p.items,
		.seconds = p.seconds,
		.share = p.share,
		.watts = p.watts,
		.origin = (enum jm_origin)p.origin};
	if (p.origin < 0 || p.origin >= JM_ORIGIN_COUNT)
		return;
	c->o->progress(c->o->arg, &told);
}

static int on_signals(
	struct jm__child *c, const struct jm__member *m, const json_t *json, struct jm_err *err)
{
	struct jm_meters set;
	int rc;

	if (!takes_trace(c))
		return 0;
	rc = c->o->agents ? jm__host_traces_add(
				    &c->traces, c->o->agents, (int)(m - c->member), json, &set, err)
			  : jm_meters_from_json(json, &set, err);
	if (rc)
		return rc;
	note_store(c, jm_store_add_signals(c->o->store, &set, c->o->no_trace));
	jm_meters_done(&set);
	return 0;
}

static void on_error(struct jm__member *m, const json_t *json)
{
	const char *text = json_string_value(json_object_get(json, "text"));

	jm_err_set(&m->error, (int)json_integer_value(json_object_get(json, "code")), "%s",
		text ? text : "The worker failed without an error message.");
}

/* Messages of ranks other than the first are redundant, except errors. */
static void on_log(struct jm__child *c, const struct jm__member *m, const json_t *json)
{
	const char *line = json_string_value(json_object_get(json, "line"));
	enum jm_level level = (enum jm_level)json_integer_value(json_object_get(json, "level"));

	if (line && m == c->member)
		jm_log(c->ctx, level, "%s", line);
	else if (line && level != JM_INFO)
		jm_log(c->ctx, level, "Rank %d: %s", (int)(m - c->member), line);
}

/* What an agent tells of its worker. */
static int on_agent(struct jm__member *m, const struct jm_frame *f, struct jm_err *err)
{
	int32_t word = 0;

	if (f->type == JM_FRAME_STDERR) {
		jm__keep_tail(m, f->data, f->size);
		return 0;
	}
	if (!m->rank.link || f->size != sizeof(word))
		return jm_err_set(err, JM_EFORMAT, "A worker sent a message of an agent.");
	memcpy(&word, f->data, sizeof(word));
	if (f->type == JM_FRAME_STARTED) {
		m->pid = word;
	} else if (f->type == JM_FRAME_EXIT) {
		m->rank.status = word;
		m->ended = m->rank.exited = true;
	}
	return 0;
}

/* Sends the rows of jm_case_apply, and then the order which says that the settings are in force. */
static int tell_settings(
	struct jm__child *c, const char *phase, const json_t *rows, struct jm_err *err)
{
	int fd = c->member[0].rank.orders_fd, rc = 0;
	json_int_t now = real_now();
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		json_object_set_new(row, "t_ns", json_integer(now));
		if (!rc)
			rc = jm_order_send_json(fd, JM_ORDER_APPLIED, row, err);
	}
	return rc ? rc : jm_order_send(fd, JM_ORDER_SETTING, phase, err);
}

static void on_phase(struct jm__child *c, const json_t *json)
{
	const char *phase = json_string_value(json_object_get(json, "phase"));
	struct jm_err why = JM_ERR_INIT;
	json_t *rows = NULL;
	int rc;

	if (!phase || !c->o->phase || c->stop != JM__RUNNING)
		return;
	rc = c->o->phase(c->o->arg, phase, &rows, &why);
	if (!rc)
		rc = tell_settings(c, phase, rows, &why);
	json_decref(rows);
	if (!rc)
		return;
	jm_err_set(&c->refusal, rc, "The settings of the phase '%s' could not be made: %s", phase,
		why.text);
	jm__stop_workers(c, rc == JM_EGONE ? JM__WATCHED_GONE : JM__REFUSED);
}

/* A process that others end, and all that it has started, is none of the case. */
static void leave_alone(struct jm__child *c, pid_t pid)
{
	jm_strays_know(&c->strays, pid, c->o->variable ? jm_innermost_mark(c->o->variable) : "");
}

static void on_keep(struct jm__child *c, const json_t *json)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(json, "pid"));

	if (pid <= 1 || !c->o->keep)
		return;
	leave_alone(c, pid);
	c->o->keep(c->o->arg, pid);
}

static int on_json(
	struct jm__child *c, struct jm__member *m, const struct jm_frame *f, struct jm_err *err)
{
	json_t *json = json_loadb(f->data, f->size, 0, NULL);
	int rc = 0;

	if (!json)
		return jm_err_set(err, JM_EFORMAT, "A worker sent JSON that cannot be read.");
	if (f->type == JM_FRAME_SIGNALS &&
		jm_agent_links_measures(c->o->agents, (int)(m - c->member)))
		rc = on_signals(c, m, json, err);
	else if (f->type == JM_FRAME_ERROR)
		on_error(m, json);
	else if (f->type == JM_FRAME_LOG)
		on_log(c, m, json);
	else if (f->type == JM_FRAME_PHASE && m == c->member)
		on_phase(c, json);
	else if (f->type == JM_FRAME_KEEP && m == c->member)
		on_keep(c, json);
	if (f->type == JM_FRAME_RECORD && !m->record)
		m->record = json;
	else
		json_decref(json);
	return rc;
}

static int take_frame(
	struct jm__child *c, struct jm__member *m, const struct jm_frame *f, struct jm_err *err)
{
	if (f->type >= JM_FRAME_STARTED)
		return on_agent(m, f, err);
	if (f->type != JM_FRAME_CHUNK && m == c->member)
		jm__note_heard(c);
	if (f->type != JM_FRAME_CHUNK && f->type != JM_FRAME_PROGRESS)
		return on_json(c, m, f, err);
	if (f->type == JM_FRAME_CHUNK &&
		jm_agent_links_measures(c->o->agents, (int)(m - c->member)))
		on_chunk(c, m, f);
	else if (f->type == JM_FRAME_PROGRESS && m == c->member)
		on_progress(c, f);
	return 0;
}

static int take_frames(struct jm__child *c, struct jm__member *m, struct jm_err *err)
{
	struct jm_frame f;
	int rc = jm_frame_fill(&m->reader, m->rank.frames_fd, &m->ended, err), got = 1;

	while (!rc && (got = jm_frame_next(&m->reader, &f, err)) > 0)
		rc = take_frame(c, m, &f, err);
	if (!rc && got < 0)
		rc = got;
	m->ended = m->ended || jm_rank_lost(&m->rank);
	if (m->rank.link && m->ended && !m->rank.exited)
		jm_err_set(&m->error, JM_EGONE,
			"The agent on this host has ended, or the host does not answer any more.");
	if (!rc && takes_trace(c) && real_now() > c->commit_ns + COMMIT_NS) {
		note_store(c, jm_store_commit(c->o->store, c->o->no_trace));
		c->commit_ns = real_now();
	}
	jm__note_failure(c, m);
	return rc;
}

static void take_stderr(const struct jm__child *c, struct jm__member *m)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(m->rank.err_fd, bytes, sizeof(bytes))) > 0) {
		jm__keep_tail(m, bytes, (size_t)n);
		if (c->o->echo && write(STDERR_FILENO, bytes, (size_t)n) < 0)
			return;
	}
	if (n == 0) {
		close(m->rank.err_fd);
		m->rank.err_fd = -1;
	}
}

/* ---- stopping ---- */

/* Ctrl-C: native work ends after the current step; the second time, and by any other signal,
 * immediately. */
static bool ask_to_stop(struct jm__child *c, const char *bytes, ssize_t n)
{
	const json_t *parameters = json_object_get(c->o->job, "parameters");

	if (c->asked || c->stop != JM__RUNNING || n != 1 || bytes[0] != SIGINT ||
		!json_object_get(parameters, "workload"))
		return false;
	c->asked = !jm_order_send(c->member[0].rank.orders_fd, JM_ORDER_NOTE,
			   "Interrupted by Ctrl-C (SIGINT).", NULL) &&
		   !jm_order_send(c->member[0].rank.orders_fd, JM_ORDER_STOP, "", NULL);
	c->asked_ns = real_now();
	if (c->asked)
		jm_log(c->ctx, JM_WARNING, "Interrupted: %s; press Ctrl-C again to stop at once.",
			c->has_begun ? "the step that is under way is finished, and the result is "
				       "kept"
				     : "the case ends before its measured phase, without a result");
	return c->asked;
}

static void take_cancel(struct jm__child *c)
{
	char bytes[256]; /* at least one signalfd_siginfo */
	ssize_t n = read(c->o->cancel_fd, bytes, sizeof(bytes));

	if (n > 0 && c->o->asked)
		*c->o->asked = true;
	if (n > 0 && !ask_to_stop(c, bytes, n))
		jm__stop_workers(c, JM__CANCELLED);
}

static bool all_ended(const struct jm__child *c)
{
	for (int r = 0; r < c->world; r++)
		if (!c->member[r].ended)
			return false;
	return true;
}

#define OWN_FDS 2 /* besides two of each rank */

static int take_all(struct jm__child *c, const struct pollfd *fds, struct jm_err *err)
{
	int rc = 0;

	for (int r = 0; r < c->world; r++)
		if (fds[OWN_FDS + 2 * r].revents)
			take_stderr(c, &c->member[r]);
	if (fds[0].revents)
		take_cancel(c);
	if (fds[1].revents)
		jm__stop_workers(c, JM__WATCHED_GONE);
	for (int r = 0; r < c->world && !rc; r++)
		if (fds[OWN_FDS + 2 * r + 1].revents ||
			(!c->member[r].ended && jm_rank_lost(&c->member[r].rank)))
			rc = take_frames(c, &c->member[r], err);
	return rc;
}

static int serve(struct jm__child *c, struct jm_err *err)
{
	struct pollfd fds[OWN_FDS + 2 * JM_MEET_MOST];
	int rc = 0;

	while (!all_ended(c) && !rc) {
		fds[0] = (struct pollfd){.fd = c->o->cancel_fd, .events = POLLIN};
		fds[1] = (struct pollfd){
			.fd = c->stop == JM__RUNNING ? c->watch_fd : -1, .events = POLLIN};
		for (int r = 0; r < c->world; r++) {
			const struct jm__member *m = &c->member[r];

			fds[OWN_FDS + 2 * r] =
				(struct pollfd){.fd = m->rank.err_fd, .events = POLLIN};
			fds[OWN_FDS + 2 * r + 1] = (struct pollfd){
				.fd = m->ended ? -1 : m->rank.frames_fd, .events = POLLIN};
		}
		if (poll(fds, (nfds_t)(OWN_FDS + 2 * c->world), jm__watch_ms(c)) < 0) {
			if (errno != EINTR)
				return jm_err_set(err, JM_EIO, "Waiting for a worker failed: %s.",
					strerror(errno));
			continue;
		}
		rc = take_all(c, fds, err);
		jm__watch(c);
	}
	return rc;
}

/* ---- the end of the worker ---- */

static void finish(struct jm__child *c)
{
	for (int r = 0; r < c->world; r++)
		if (!c->member[r].ended || c->member[r].overdue)
			c->launcher->signal(&c->member[r].rank, SIGKILL, true);
	for (int r = 0; r < c->world; r++) {
		struct jm__member *m = &c->member[r];

		m->status = c->launcher->wait(&m->rank);
		jm__note_end(c, m);
		if (m->rank.err_fd >= 0)
			take_stderr(c, m);
	}
}

static void release(struct jm__child *c)
{
	for (int r = 0; r < c->world && c->member; r++) {
		jm_rank_close(&c->member[r].rank);
		jm_frame_reader_done(&c->member[r].reader);
		json_decref(c->member[r].record);
	}
	free(c->member);
	jm__host_traces_done(&c->traces);
	if (c->watch_fd >= 0)
		close(c->watch_fd);
}

static int run_child(struct jm__child *c, struct jm_err *err)
{
	pid_t kept = (pid_t)json_integer_value(json_object_get(c->o->job, "kept"));
	int rc;

	/* the reaper starts before the search for stray processes, or it would be treated as one */
	if (json_object_get(json_object_get(c->o->job, "parameters"), "command"))
		jm_case_reaper_start(c->ctx, c->o->program, &c->reaper);
	jm_strays_begin(&c->strays, c->ctx);
	if (kept > 0)
		leave_alone(c, kept);
	rc = start(c, err);
	if (rc) {
		jm_strays_end(&c->strays, JM_STRAYS_LEAVE, -1);
		jm_case_reaper_stop(&c->reaper);
		return rc;
	}
	rc = serve(c, err);
	finish(c);
	if (c->o->agents)
		jm_agent_links_compare_clocks(c->o->agents, true);
	jm_strays_end(&c->strays, jm__end_of_strays(c), c->o->cancel_fd);
	jm_case_reaper_stop(&c->reaper);
	if (!rc && c->stop == JM__CANCELLED)
		rc = jm_err_set(err, JM_EINTR, "Interrupted.");
	if (!rc && c->stop == JM__WATCHED_GONE)
		rc = jm_err_set(err, JM_EGONE, "The guard process of the settings has ended.");
	return rc ? rc : jm__complete_record(c, err);
}

/* How many ranks the case has: an option of workloads that can run on several. 0 = too many, or
 * none. */
static int world_of(const json_t *job)
{
	const json_t *parameters = json_object_get(job, "parameters");
	const char *text =
		json_string_value(json_object_get(json_object_get(parameters, "options"), "ranks"));
	long n = text ? strtol(text, NULL, 10) : 1;

	return n >= 1 && n <= JM_MEET_MOST ? (int)n : 0;
}

static int watch(struct jm__child *c, struct jm_err *err)
{
	pid_t pid = c->o->watch_pid;

	if (pid)
		c->watch_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pid && c->watch_fd < 0 && errno == ESRCH)
		return jm_err_set(err, JM_EGONE, "The guard process of the settings has ended.");
	return 0;
}

static int make_members(struct jm__child *c, struct jm_err *err)
{
	if (!c->world)
		return jm_err_set(err, JM_ERANGE, "A case can have 1 to %d ranks.", JM_MEET_MOST);
	c->member = calloc((size_t)c->world, sizeof(*c->member));
	if (!c->member)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the workers of a case.");
	for (int r = 0; r < c->world; r++)
		c->member[r].rank =
			(struct jm_rank){.frames_fd = -1, .err_fd = -1, .orders_fd = -1};
	return 0;
}

/* A case that was asked to end early has a result, though it may be a wrong one, if it reached the
 * measured phase. */
static bool was_measured(const json_t *record)
{
	return json_integer_value(json_object_get(record, "steps")) > 0;
}

int jm_case_run(struct jm_ctx *ctx, const struct jm_case_options *options, json_t **ret_record,
	struct jm_err *err)
{
	struct jm__child c = {.ctx = ctx,
		.o = options,
		.launcher = options->agents ? &jm_launcher_agents : &jm_launcher_local,
		.world = world_of(options->job),
		.failed = -1,
		.watch_fd = -1,
		.start_ns = real_now(),
		.heard_ns = real_now(),
		.commit_ns = real_now(),
		.oom_before = jm__oom_kills()};
	int rc = make_members(&c, err);

	if (!rc)
		rc = watch(&c, err);
	if (!rc)
		rc = run_child(&c, err);
	if (!rc && c.asked && !was_measured(c.member[0].record) &&
		!jm_record_is_ok(c.member[0].record))
		rc = jm_err_set(err, JM_EINTR, "Interrupted.");
	if (!rc) {
		*ret_record = c.member[0].record;
		c.member[0].record = NULL;
	}
	release(&c);
	return rc;
}
