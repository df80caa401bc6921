/* SPDX-License-Identifier: Apache-2.0 */
/* The parent: starts a worker, takes in what it sends, and makes a record of whatever becomes of it. */
#include "run/worker.h"

#include "run/case_keeper.h"

#include "base/clock.h"
#include "run/frame.h"
#include "meter/meters_json.h"
#include "base/stray_processes.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TAIL_SIZE     4096 /* of its standard error, for the reason of a failure */
#define TAIL_SHOWN    400
#define GRACE_NS      (5 * JM_SECOND) /* between SIGTERM and SIGKILL */
#define COMMIT_NS     JM_SECOND
#define WORKER_FD     3
#define POLL_LIMIT_MS 1000

enum stop { RUNNING, CANCELLED, TIMED_OUT, WATCHED_GONE };

struct child {
	struct jm_ctx *ctx;
	const struct jm_case_options *o;
	pid_t pid;
	int frames_fd, err_fd, watch_fd;
	struct jm_frame_reader reader;
	json_t *record;	     /* as it came */
	struct jm_err error; /* as it came */
	char tail[TAIL_SIZE + 1];
	size_t n_tail;
	int64_t start_ns, kill_ns, commit_ns; /* on the machine's clock */
	enum stop stop;
	struct jm_case_keeper keeper;
	bool ended, hurried; /* hurried: cancelled while it was being stopped */
	long oom_before;
};

static int64_t real_now(void)
{
	return jm_clock_now(jm_clock_real());
}

/* ---- starting ---- */

/* An unnamed file that holds the job; its offset is at the start. */
static int job_file(const json_t *job, struct jm_err *err)
{
	char *text = json_dumps(job, JSON_COMPACT | JSON_REAL_PRECISION(15));
	int fd = memfd_create("job", MFD_CLOEXEC);
	size_t n = text ? strlen(text) : 0;

	if (!text || fd < 0 || write(fd, text, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET) < 0) {
		if (fd >= 0)
			close(fd);
		fd = jm_err_set(err, JM_EIO, "The job of a worker could not be written: %s.",
			strerror(errno));
	}
	free(text);
	return fd;
}

/* environ with the mark of the case, if it has one; the caller frees it. */
static char **marked_environment(const struct jm_case_keeper *keeper)
{
	static const char name[] = JM_MARK_VARIABLE "=";
	size_t n = 0, used = 0;
	char **env;

	while (environ[n])
		n++;
	env = calloc(n + 2, sizeof(*env));
	for (size_t i = 0; env && i < n; i++)
		if (keeper->pid <= 0 || strncmp(environ[i], name, sizeof(name) - 1) != 0)
			env[used++] = environ[i];
	if (env && keeper->pid > 0)
		env[used] = (char *)(uintptr_t)keeper->variable;
	return env;
}

static int spawn(const char *program, int job_fd, int out_fd, int err_fd, int frames_fd,
	char *const *env, pid_t *ret)
{
	char *argv[] = {(char *)(uintptr_t) "joulemark", (char *)(uintptr_t) "worker", NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	/* its own group: Ctrl-C of the terminal reaches only the parent, which then decides */
	posix_spawnattr_setflags(
		&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, job_fd, STDIN_FILENO);
	if (out_fd >= 0)
		posix_spawn_file_actions_adddup2(&files, out_fd, STDOUT_FILENO);
	else
		posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&files, err_fd, STDERR_FILENO);
	posix_spawn_file_actions_adddup2(&files, frames_fd, WORKER_FD);
	rc = posix_spawn(ret, program, &files, &attr, argv, env ? env : environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return rc;
}

/* Descriptors below 4 would be overwritten in the child before they are used. */
static int high(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, 16);

	close(fd);
	return moved;
}

static int start(struct child *c, struct jm_err *err)
{
	const char *program = c->o->program ? c->o->program : "/proc/self/exe";
	int frames[2] = {-1, -1}, errs[2] = {-1, -1}, job_fd = job_file(c->o->job, err), rc;
	char **env;

	if (job_fd < 0)
		return job_fd;
	job_fd = high(job_fd);
	rc = pipe2(frames, O_CLOEXEC) || pipe2(errs, O_CLOEXEC) ? errno : 0;
	if (!rc) {
		frames[1] = high(frames[1]);
		errs[1] = high(errs[1]);
		env = marked_environment(&c->keeper);
		rc = spawn(program, job_fd, c->o->out_fd, errs[1], frames[1], env, &c->pid);
		free(env);
		close(frames[1]);
		close(errs[1]);
	}
	close(job_fd);
	c->frames_fd = frames[0];
	c->err_fd = errs[0];
	if (rc)
		return jm_err_set(err, JM_ECHILD, "No worker could be started from %s: %s.",
			program, strerror(rc));
	fcntl(c->err_fd, F_SETFL, O_NONBLOCK);
	return 0;
}

/* ---- what it sends ---- */

static int on_chunk(struct child *c, const struct jm_frame *f, struct jm_err *err)
{
	struct jm_frame_chunk head;
	struct jm_chunk chunk;

	if (f->size < sizeof(head) || !c->o->store)
		return 0;
	memcpy(&head, f->data, sizeof(head));
	chunk = (struct jm_chunk){.signal = head.signal,
		.t0_ns = head.t0_ns,
		.t1_ns = head.t1_ns,
		.n = head.n,
		.data = f->data + sizeof(head),
		.bytes = f->size - sizeof(head)};
	return jm_store_add_chunk(c->o->store, &chunk, err);
}

static void on_progress(struct child *c, const struct jm_frame *f)
{
	struct jm_frame_progress p;
	struct jm_case_progress told;

	if (f->size != sizeof(p) || !c->o->progress)
		return;
	memcpy(&p, f->data, sizeof(p));
	p.phase[sizeof(p.phase) - 1] = '\0';
	told = (struct jm_case_progress){
		p.phase, p.items, p.seconds, p.share, p.watts, (enum jm_origin)p.origin};
	if (p.origin < 0 || p.origin >= JM_ORIGIN_COUNT)
		return;
	c->o->progress(c->o->progress_arg, &told);
}

static int on_signals(struct child *c, const json_t *json, struct jm_err *err)
{
	struct jm_meters set;
	int rc;

	if (!c->o->store)
		return 0;
	rc = jm_meters_from_json(json, &set, err);
	if (rc)
		return rc;
	rc = jm_store_add_signals(c->o->store, &set, err);
	jm_meters_done(&set);
	return rc;
}

static void on_error(struct child *c, const json_t *json)
{
	const char *text = json_string_value(json_object_get(json, "text"));

	jm_err_set(&c->error, (int)json_integer_value(json_object_get(json, "code")), "%s",
		text ? text : "The worker failed without an error message.");
}

static int on_json(struct child *c, const struct jm_frame *f, struct jm_err *err)
{
	json_t *json = json_loadb(f->data, f->size, 0, NULL);
	const char *line = json_string_value(json_object_get(json, "line"));
	int rc = 0;

	if (!json)
		return jm_err_set(err, JM_EFORMAT, "A worker sent JSON that cannot be read.");
	if (f->type == JM_FRAME_SIGNALS)
		rc = on_signals(c, json, err);
	else if (f->type == JM_FRAME_ERROR)
		on_error(c, json);
	else if (f->type == JM_FRAME_LOG && line)
		jm_log(c->ctx, (enum jm_level)json_integer_value(json_object_get(json, "level")),
			"%s", line);
	if (f->type == JM_FRAME_RECORD && !c->record)
		c->record = json;
	else
		json_decref(json);
	return rc;
}

static int take_frames(struct child *c, struct jm_err *err)
{
	struct jm_frame f;
	int rc = jm_frame_fill(&c->reader, c->frames_fd, &c->ended, err), got = 1;

	while (!rc && (got = jm_frame_next(&c->reader, &f, err)) > 0) {
		if (f.type == JM_FRAME_CHUNK)
			rc = on_chunk(c, &f, err);
		else if (f.type == JM_FRAME_PROGRESS)
			on_progress(c, &f);
		else
			rc = on_json(c, &f, err);
	}
	if (!rc && got < 0)
		rc = got;
	if (!rc && c->o->store && real_now() > c->commit_ns + COMMIT_NS) {
		rc = jm_store_commit(c->o->store, err);
		c->commit_ns = real_now();
	}
	return rc;
}

static void keep_tail(struct child *c, const char *bytes, size_t n)
{
	if (n > TAIL_SIZE) {
		bytes += n - TAIL_SIZE;
		n = TAIL_SIZE;
	}
	if (c->n_tail + n > TAIL_SIZE) {
		size_t drop = c->n_tail + n - TAIL_SIZE;

		memmove(c->tail, c->tail + drop, c->n_tail - drop);
		c->n_tail -= drop;
	}
	memcpy(c->tail + c->n_tail, bytes, n);
	c->n_tail += n;
	c->tail[c->n_tail] = '\0';
}

static void take_stderr(struct child *c)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(c->err_fd, bytes, sizeof(bytes))) > 0) {
		keep_tail(c, bytes, (size_t)n);
		if (c->o->echo && write(STDERR_FILENO, bytes, (size_t)n) < 0)
			return;
	}
	if (n == 0) {
		close(c->err_fd);
		c->err_fd = -1;
	}
}

/* ---- stopping ---- */

static void stop_worker(struct child *c, enum stop why)
{
	if (c->stop == RUNNING) {
		c->kill_ns = real_now() + GRACE_NS;
		kill(c->pid, SIGTERM);
	} else {
		c->hurried = c->hurried || why == CANCELLED;
		kill(-c->pid, SIGKILL);
	}
	/* a signal that ends the run is handled even while a case is being stopped */
	if (c->stop == RUNNING || why == CANCELLED)
		c->stop = why;
}

static void take_cancel(struct child *c)
{
	char bytes[256]; /* at least one signalfd_siginfo */

	if (read(c->o->cancel_fd, bytes, sizeof(bytes)) > 0)
		stop_worker(c, CANCELLED);
}

static void check_deadlines(struct child *c)
{
	int64_t now = real_now();

	if (c->stop != RUNNING && now > c->kill_ns)
		kill(-c->pid, SIGKILL);
	else if (c->stop == RUNNING && c->o->timeout_s > 0 &&
		 now > c->start_ns + (int64_t)(c->o->timeout_s * 1e9))
		stop_worker(c, TIMED_OUT);
}

static int poll_time_ms(const struct child *c)
{
	int64_t until = JM_FOREVER, ms;

	if (c->stop != RUNNING)
		until = c->kill_ns;
	else if (c->o->timeout_s > 0)
		until = c->start_ns + (int64_t)(c->o->timeout_s * 1e9);
	if (until == JM_FOREVER)
		return POLL_LIMIT_MS;
	ms = (until - real_now()) / JM_MILLISECOND + 1;
	return ms < 0 ? 0 : ms < POLL_LIMIT_MS ? (int)ms : POLL_LIMIT_MS;
}

static int serve(struct child *c, struct jm_err *err)
{
	int rc = 0;

	while (!c->ended && !rc) {
		struct pollfd fds[] = {{.fd = c->frames_fd, .events = POLLIN},
			{.fd = c->err_fd, .events = POLLIN},
			{.fd = c->o->cancel_fd, .events = POLLIN},
			{.fd = c->stop == RUNNING ? c->watch_fd : -1, .events = POLLIN}};

		if (poll(fds, 4, poll_time_ms(c)) < 0 && errno != EINTR)
			return jm_err_set(
				err, JM_EIO, "Waiting for a worker failed: %s.", strerror(errno));
		if (fds[1].revents)
			take_stderr(c);
		if (fds[2].revents)
			take_cancel(c);
		if (fds[3].revents)
			stop_worker(c, WATCHED_GONE);
		if (fds[0].revents)
			rc = take_frames(c, err);
		check_deadlines(c);
	}
	return rc;
}

/* ---- its end ---- */

/* How many processes the kernel has killed because memory ran out; -1 = unknown. */
static long oom_kills(void)
{
	char line[128];
	long n = -1;
	FILE *f = fopen("/proc/vmstat", "re");

	while (f && n < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, "oom_kill ", 9))
			n = strtol(line + 9, NULL, 10);
	if (f)
		fclose(f);
	return n;
}

/* The last words of its standard error on one line, or "". */
static void last_words(const struct child *c, char *out, size_t size)
{
	const char *from = c->tail + (c->n_tail > TAIL_SHOWN ? c->n_tail - TAIL_SHOWN : 0);
	size_t n = strlen(from), used;

	while (n && strchr(" \n\r\t", from[n - 1]))
		n--;
	if (!n) {
		*out = '\0';
		return;
	}
	used = (size_t)snprintf(
		out, size, " The last line of its standard error: %.*s", (int)n, from);
	for (size_t i = 0; i < used && i < size; i++)
		if (out[i] == '\n' || out[i] == '\r')
			out[i] = ' ';
}

static void describe_death(struct child *c, int status, char *out, size_t size)
{
	if (c->stop == TIMED_OUT)
		snprintf(out, size, "The case did not end within %g s (--timeout) and was stopped.",
			c->o->timeout_s);
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && oom_kills() > c->oom_before)
		snprintf(out, size,
			"The worker was killed, most likely because memory ran out: the kernel "
			"killed a process for this reason at the same time.");
	else if (WIFSIGNALED(status))
		snprintf(out, size, "The worker was killed by signal %d (%s).", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else if (c->error.code)
		snprintf(out, size, "%s", c->error.text);
	else
		snprintf(out, size, "The worker ended with status %d before it sent a result.",
			WEXITSTATUS(status));
}

/* The record of a worker that left none, or whose work failed. */
static int complete_record(struct child *c, int status, struct jm_err *err)
{
	bool lived = c->record && c->stop == RUNNING;
	char why[600], words[TAIL_SHOWN + 32];
	const char *reason;

	last_words(c, words, sizeof(words));
	if (!c->record)
		c->record = jm_record_new(c->o->job, err);
	if (!c->record)
		return err->code;
	reason = json_string_value(json_object_get(c->record, "reason"));
	if (!lived) {
		describe_death(c, status, why, sizeof(why));
		jm_record_failed(c->record, "%s%s", why, c->error.code ? "" : words);
	} else if (reason) {
		snprintf(why, sizeof(why), "%s", reason);
		jm_record_failed(c->record, "%s%s", why, words);
	} else if (status) {
		jm_record_failed(c->record,
			"The worker sent its result, but then ended with %s %d; the result may be "
			"wrong.%s",
			WIFSIGNALED(status) ? "signal" : "status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), words);
	}
	return 0;
}

static void finish(struct child *c, int *ret_status)
{
	siginfo_t info;

	if (!c->ended)
		kill(-c->pid, SIGKILL);
	while (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	kill(-c->pid, SIGKILL); /* what it may have left behind; its number is not free yet */
	while (waitpid(c->pid, ret_status, 0) < 0 && errno == EINTR)
		;
	if (c->err_fd >= 0)
		take_stderr(c);
}

static void release(struct child *c)
{
	const int fds[] = {c->frames_fd, c->err_fd, c->watch_fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	jm_frame_reader_done(&c->reader);
	json_decref(c->record);
}

static enum jm_strays_end end_of_strays(const struct child *c, int status)
{
	if (c->hurried)
		return JM_STRAYS_KILL;
	return c->stop != RUNNING || WIFSIGNALED(status) ? JM_STRAYS_ASK : JM_STRAYS_LEAVE;
}

static int run_child(struct child *c, struct jm_err *err)
{
	struct jm_strays strays;
	int rc, status = 0;

	/* before the strays, so that it is not taken for one */
	if (json_object_get(json_object_get(c->o->job, "parameters"), "command"))
		jm_case_keeper_start(c->ctx, c->o->program, &c->keeper);
	jm_strays_begin(&strays, c->ctx);
	rc = start(c, err);
	if (rc) {
		jm_strays_end(&strays, JM_STRAYS_LEAVE, -1);
		jm_case_keeper_stop(&c->keeper);
		return rc;
	}
	rc = serve(c, err);
	finish(c, &status);
	jm_strays_end(&strays, end_of_strays(c, status), c->o->cancel_fd);
	jm_case_keeper_stop(&c->keeper);
	if (!rc && c->stop == CANCELLED)
		rc = jm_err_set(err, JM_EINTR, "Interrupted.");
	if (!rc && c->stop == WATCHED_GONE)
		rc = jm_err_set(err, JM_EGONE, "The guard process of the settings has ended.");
	return rc ? rc : complete_record(c, status, err);
}

int jm_case_run(struct jm_ctx *ctx, const struct jm_case_options *options, json_t **ret_record,
	struct jm_err *err)
{
	struct child c = {.ctx = ctx,
		.o = options,
		.frames_fd = -1,
		.err_fd = -1,
		.watch_fd = -1,
		.start_ns = real_now(),
		.commit_ns = real_now(),
		.oom_before = oom_kills()};
	int rc;

	if (options->watch_pid)
		c.watch_fd = (int)syscall(SYS_pidfd_open, options->watch_pid, 0);
	if (options->watch_pid && c.watch_fd < 0 && errno == ESRCH)
		return jm_err_set(err, JM_EGONE, "The guard process of the settings has ended.");
	rc = run_child(&c, err);
	if (!rc) {
		*ret_record = c.record;
		c.record = NULL;
	}
	release(&c);
	return rc;
}
