/* SPDX-License-Identifier: Apache-2.0 */
/* The child: sources opened, rights dropped, work done phase by phase, record sent. */
#include "worker.h"

#include "frame.h"
#include "launch.h"
#include "meters_json.h"
#include "provenance.h"
#include "workload.h"

#include <fcntl.h>
#include <grp.h>
#include <math.h>
#include <pwd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PROGRESS_NS    (JM_SECOND / 5) /* between messages, on the machine's clock */
#define MAX_SETTLE_NS  (2 * JM_SECOND)
#define DEFAULT_STEPS  3
#define DEFAULT_TIME_S 10.0
#define WARM_STEPS     2
#define WARM_TIME_S    1.0

struct worker {
	struct jm_ctx *ctx;
	const json_t *job, *parameters;
	int fd;
	pthread_mutex_t lock; /* frames come from two threads */
	struct jm_session *session;
	json_t *record;
	struct jm_sleeper sleeper;
	bool sleeping_here; /* the sleeper has joined */
	int main_phase;
	int64_t last_progress;
};

/* ---- to the parent ---- */

static int on_chunk(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	struct worker *w = arg;
	struct jm_frame_chunk head = {.signal = chunk->signal,
		.n = chunk->n,
		.t0_ns = chunk->t0_ns,
		.t1_ns = chunk->t1_ns};
	int rc;

	pthread_mutex_lock(&w->lock);
	rc = jm_frame_write(
		w->fd, JM_FRAME_CHUNK, &head, sizeof(head), chunk->data, chunk->bytes, err);
	pthread_mutex_unlock(&w->lock);
	return rc;
}

static int send_json(struct worker *w, enum jm_frame_type type, json_t *json, struct jm_err *err)
{
	int rc;

	if (!json)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a message.");
	pthread_mutex_lock(&w->lock);
	rc = jm_frame_write_json(w->fd, type, json, err);
	pthread_mutex_unlock(&w->lock);
	json_decref(json);
	return rc;
}

static void on_log(void *arg, enum jm_level level, const char *line)
{
	send_json(arg, JM_FRAME_LOG, json_pack("{s:i, s:s}", "level", (int)level, "line", line),
		NULL);
}

static void send_progress(
	struct worker *w, const char *phase, double items, double seconds, double share)
{
	struct jm_frame_progress p = {.items = items, .seconds = seconds, .share = share};
	int64_t now = jm_clock_now(jm_clock_real());

	if (now < w->last_progress + PROGRESS_NS)
		return;
	w->last_progress = now;
	strncpy(p.phase, phase, sizeof(p.phase) - 1);
	pthread_mutex_lock(&w->lock);
	jm_frame_write(w->fd, JM_FRAME_PROGRESS, &p, sizeof(p), NULL, 0, NULL);
	pthread_mutex_unlock(&w->lock);
}

/* ---- rights ---- */

static int take_identity(uid_t uid, gid_t gid, struct jm_err *err)
{
	const struct passwd *user = getpwuid(uid);
	int rc = user ? initgroups(user->pw_name, gid) : setgroups(1, &gid);

	if (rc || setresgid(gid, gid, gid) || setresuid(uid, uid, uid) || !setuid(0))
		return jm_err_set(err, JM_EPERM,
			"The rights of root could not be given up for user %ld, so nothing was "
			"run.",
			(long)uid);
	if (user) {
		setenv("HOME", user->pw_dir, 1);
		setenv("USER", user->pw_name, 1);
		setenv("LOGNAME", user->pw_name, 1);
	}
	return 0;
}

int jm_worker_drop_rights(bool *ret_dropped, struct jm_err *err)
{
	const char *uid = getenv("SUDO_UID"), *gid = getenv("SUDO_GID");
	long u = uid ? strtol(uid, NULL, 10) : 0, g = gid ? strtol(gid, NULL, 10) : 0;
	int rc = 0;

	if (geteuid() == 0 && u > 0 && g > 0)
		rc = take_identity((uid_t)u, (gid_t)g, err);
	if (ret_dropped)
		*ret_dropped = !rc && geteuid() != 0 && u > 0;
	return rc;
}

/* The kernel forgets this wish when the identity changes, so it comes after. */
static int die_with_parent(const struct worker *w, struct jm_err *err)
{
	json_int_t parent = json_integer_value(json_object_get(w->job, "parent"));

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (parent && getppid() != (pid_t)parent)
		return jm_err_set(err, JM_EGONE, "The program that started this worker is gone.");
	return 0;
}

static int command_dies_with_worker(void *arg)
{
	(void)arg;
	return prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* ---- phases ---- */

static int begin(struct worker *w, const char *phase, struct jm_err *err)
{
	return jm_session_begin(w->session, phase, jm_ctx_now(w->ctx), err);
}

static void end(struct worker *w, int phase)
{
	if (phase >= 0)
		jm_session_end(w->session, phase, jm_ctx_now(w->ctx));
}

/* How long a reading may still speak of the time before a setting was changed. */
static int64_t sensor_window(const struct jm_meters *set)
{
	int64_t longest = 0;

	for (int i = 0; i < set->n_signals; i++) {
		const struct jm_signal *s = &set->signal[i];
		int64_t window = (s->window_ns > 0 ? s->window_ns : 0) + s->refresh_ns;

		if (s->quantity == JM_Q_POWER && window > longest)
			longest = window;
	}
	return longest < MAX_SETTLE_NS ? longest : MAX_SETTLE_NS;
}

static int settle(struct worker *w, struct jm_err *err)
{
	int phase;

	if (!json_array_size(json_object_get(w->job, "settings")))
		return 0;
	phase = begin(w, "settle", err);
	if (phase < 0)
		return phase;
	jm_sleep_until(
		&w->sleeper, jm_ctx_now(w->ctx) + sensor_window(jm_session_meters(w->session)));
	end(w, phase);
	return 0;
}

/* ---- native work ---- */

struct native {
	const struct jm_workload *workload;
	struct jm_work work;
	struct jm_values values;
	void *state;
	/* when to stop */
	double warm_steps, warm_s, steps, seconds;
	/* what came of it; sums over the steady steps */
	double items, flops_model, flops_executed, loss_first, loss_last;
	double elapsed_s;
	long n_warm, n_steady;
};

static double parameter(const struct worker *w, const char *name)
{
	return jm_json_real(json_object_get(w->parameters, name));
}

static void read_lengths(const struct worker *w, struct native *n, struct jm_err *err)
{
	const char *warm = json_string_value(json_object_get(w->parameters, "warmup"));

	n->steps = parameter(w, "steps");
	n->seconds = parameter(w, "seconds");
	if (isnan(n->steps) && isnan(n->seconds)) {
		n->steps = DEFAULT_STEPS;
		n->seconds = DEFAULT_TIME_S;
	}
	n->warm_steps = warm ? 0 : WARM_STEPS;
	n->warm_s = warm ? 0 : WARM_TIME_S;
	if (!warm)
		return;
	if (warm[strspn(warm, "0123456789")])
		jm_parse_quantity(warm, "s", true, &n->warm_s, err);
	else
		n->warm_steps = strtod(warm, NULL);
}

static int read_options(const struct worker *w, struct native *n, struct jm_err *err)
{
	const char *name;
	json_t *value;
	int rc = jm_values_init(&n->values, n->workload->options, err);

	if (rc)
		return rc;
	json_object_foreach(json_object_get(w->parameters, "options"), name, value)
	{
		rc = jm_values_set(&n->values, name, json_string_value(value), err);
		if (rc)
			return rc;
	}
	read_lengths(w, n, err);
	return err->code;
}

static int setup(struct worker *w, struct native *n, struct jm_err *err)
{
	const json_t *p = w->parameters;
	int phase = begin(w, "setup", err), rc;

	if (phase < 0)
		return phase;
	n->work = (struct jm_work){
		.ctx = w->ctx,
		.sleeper = &w->sleeper,
		.options = &n->values,
		.device = json_string_value(json_object_get(p, "device")),
		.precision = json_string_value(json_object_get(p, "precision")),
		.seed = (uint64_t)json_integer_value(
			json_object_get(json_object_get(w->job, "case"), "seed")),
		.n_devices = 1,
	};
	rc = n->workload->setup(&n->work, &n->state, err);
	end(w, phase);
	return rc;
}

static int one_step(
	struct worker *w, struct native *n, int phase, struct jm_step *ret, struct jm_err *err)
{
	int rc = n->workload->step(n->state, ret, err);

	if (rc)
		return rc;
	jm_session_credit(w->session, phase, ret->items);
	if (isnan(n->loss_first))
		n->loss_first = ret->loss;
	n->loss_last = ret->loss;
	return 0;
}

static double seconds_since(const struct worker *w, int64_t t0)
{
	return (double)(jm_ctx_now(w->ctx) - t0) / 1e9;
}

static int warm_up(struct worker *w, struct native *n, struct jm_err *err)
{
	int phase = begin(w, "warmup", err), rc = phase < 0 ? phase : 0;
	int64_t t0 = jm_ctx_now(w->ctx);
	struct jm_step step;

	while (!rc && ((double)n->n_warm < n->warm_steps || seconds_since(w, t0) < n->warm_s)) {
		rc = one_step(w, n, phase, &step, err);
		n->n_warm += !rc;
		send_progress(w, "warmup", 0, 0, 0);
	}
	end(w, phase);
	return rc;
}

/* Steps and seconds that are given must both be reached. */
static double share_done(const struct native *n)
{
	double by_steps = isnan(n->steps) ? 1 : (double)n->n_steady / n->steps;
	double by_time = isnan(n->seconds) ? 1 : n->elapsed_s / n->seconds;

	return by_steps < by_time ? by_steps : by_time;
}

static int steady(struct worker *w, struct native *n, struct jm_err *err)
{
	int phase = begin(w, "steady", err), rc = phase < 0 ? phase : 0;
	int64_t t0 = jm_ctx_now(w->ctx);
	struct jm_step step;

	w->main_phase = phase;
	while (!rc && share_done(n) < 1) {
		rc = one_step(w, n, phase, &step, err);
		if (rc)
			break;
		n->n_steady++;
		n->items += step.items;
		n->flops_model += step.flops_model;
		n->flops_executed += step.flops_executed;
		n->elapsed_s = seconds_since(w, t0);
		send_progress(w, "steady", n->items, n->elapsed_s, share_done(n));
	}
	end(w, phase);
	return rc;
}

static int verify(struct worker *w, struct native *n, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int phase = begin(w, "verify", err), rc;

	if (phase < 0)
		return phase;
	rc = n->workload->verify(n->state, &why);
	end(w, phase);
	jm_record_set(w->record, "verified", json_boolean(!rc));
	if (!rc)
		return 0;
	jm_record_set(w->record, "verify_reason", json_string(why.text));
	return jm_err_set(err, rc, "The result of the work is not right: %s", why.text);
}

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : NULL;
}

static void record_native(struct worker *w, const struct native *n)
{
	json_t *r = w->record;
	double rate = n->elapsed_s > 0 ? n->items / n->elapsed_s : NAN;
	bool some = n->n_steady > 0 && n->items > 0;

	jm_record_set(r, "unit", json_string(n->workload->unit));
	jm_record_set(r, "devices", json_integer(n->work.n_devices));
	jm_record_set(r, "steps", json_integer(n->n_steady));
	jm_record_set(r, "warmup_steps", json_integer(n->n_warm));
	jm_record_set(r, "items", some ? jm_json_number(n->items) : NULL);
	jm_record_set(r, "throughput", jm_json_number(rate));
	jm_record_set(r, "throughput_per_device", jm_json_number(rate / n->work.n_devices));
	jm_record_set(r, "loss_first", jm_json_number(n->loss_first));
	jm_record_set(r, "loss_last", jm_json_number(n->loss_last));
	if (some && n->flops_model > 0)
		jm_record_set(r, "flops_model_per_item", jm_json_number(n->flops_model / n->items));
	if (some && n->flops_executed > 0)
		jm_record_set(
			r, "flops_executed_per_item", jm_json_number(n->flops_executed / n->items));
	jm_record_set(r, "detail", text_or_null(n->work.detail));
	jm_record_set(r, "note", text_or_null(n->work.note));
}

static int run_native(struct worker *w, struct jm_err *err)
{
	struct native n = {.loss_first = NAN, .loss_last = NAN};
	const char *name = json_string_value(json_object_get(w->parameters, "workload"));
	int rc;

	n.workload = jm_workload_find(name, err);
	if (!n.workload)
		return err->code;
	rc = read_options(w, &n, err);
	if (!rc)
		rc = setup(w, &n, err);
	if (!rc)
		rc = settle(w, err);
	if (!rc)
		rc = warm_up(w, &n, err);
	if (!rc)
		rc = steady(w, &n, err);
	if (!rc)
		rc = verify(w, &n, err);
	record_native(w, &n);
	jm_record_set(w->record, "exit_status", rc ? NULL : json_integer(0));
	if (n.state)
		n.workload->teardown(n.state);
	jm_values_done(&n.values);
	return rc;
}

/* ---- an outside command ---- */

static char **command_line(const json_t *command)
{
	char **argv = calloc(json_array_size(command) + 1, sizeof(*argv));
	const json_t *word;
	size_t i;

	if (!argv)
		return NULL;
	json_array_foreach(command, i, word)
	{
		argv[i] = (char *)(uintptr_t)json_string_value(word);
	}
	return argv;
}

static void record_command(struct worker *w, const struct jm_outcome *o)
{
	const json_t *throughput = json_object_get(w->parameters, "throughput");
	const char *unit = json_string_value(json_object_get(throughput, "unit"));
	json_t *r = w->record;

	w->main_phase = o->phase;
	jm_record_set(r, "exit_status", json_integer(o->status));
	jm_record_set(r, "signal", o->signal ? json_integer(o->signal) : NULL);
	jm_record_set(r, "wall_s", jm_json_number(o->wall_s));
	jm_record_set(r, "unit", json_string(unit ? unit : "item"));
	jm_record_set(r, "items", jm_json_number(o->items));
	jm_record_set(r, "throughput", jm_json_number(o->throughput));
}

static int run_command(struct worker *w, struct jm_err *err)
{
	const json_t *throughput = json_object_get(w->parameters, "throughput");
	struct jm_launch_options o = {
		.argv = command_line(json_object_get(w->parameters, "command")),
		.items_regex = json_string_value(json_object_get(throughput, "regex")),
		.items_json = json_string_value(json_object_get(throughput, "json")),
		.out_fd = STDOUT_FILENO,
		.before_exec = command_dies_with_worker,
	};
	struct jm_outcome outcome = {.phase = -1};
	int rc;

	if (!o.argv)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a command line.");
	rc = settle(w, err);
	send_progress(w, "command", 0, 0, NAN);
	if (!rc)
		rc = jm_launch(w->ctx, w->session, &o, &outcome, err);
	if (rc)
		jm_record_set(w->record, "exit_status", json_integer(jm_proc_status_of(rc)));
	else
		record_command(w, &outcome);
	free((void *)(uintptr_t)o.argv);
	if (!rc && outcome.signal)
		rc = jm_err_set(err, JM_ECHILD, "The command was killed by signal %d (%s).",
			outcome.signal, strsignal(outcome.signal));
	else if (!rc && outcome.status)
		rc = jm_err_set(
			err, JM_ECHILD, "The command ended with status %d.", outcome.status);
	return rc;
}

/* ---- a case from start to end ---- */

static const char **source_list(const json_t *sources)
{
	const char **list = calloc(json_array_size(sources) + 1, sizeof(*list));
	const json_t *one;
	size_t i;

	if (!list)
		return NULL;
	json_array_foreach(sources, i, one)
	{
		list[i] = json_string_value(one);
	}
	return list;
}

static int open_session(struct worker *w, struct jm_err *err)
{
	const json_t *how = json_object_get(w->job, "how");
	const json_t *sources = json_object_get(how, "sources");
	const char **list = source_list(sources);
	struct jm_session_options o = {.on_chunk = on_chunk, .on_chunk_arg = w};
	double interval_s = jm_json_real(json_object_get(how, "interval_s"));
	int rc;

	if (!list)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the list of sources.");
	if (json_array_size(sources))
		o.sources = list;
	if (interval_s > 0)
		o.interval_ns = (int64_t)(interval_s * 1e9);
	rc = jm_session_open(w->ctx, &o, &w->session, err);
	free(list);
	if (rc)
		return rc;
	return send_json(
		w, JM_FRAME_SIGNALS, jm_meters_to_json(jm_session_meters(w->session)), err);
}

/* Simulated time for simulated devices, unless the user wants the machine's. */
static int choose_clock(struct worker *w, struct jm_err *err)
{
	const char *device = json_string_value(json_object_get(w->parameters, "device"));
	bool real = json_is_true(json_object_get(json_object_get(w->job, "how"), "real_time"));

	if (real || !device || strncmp(device, "sim:", 4) != 0 ||
		json_object_get(w->parameters, "command"))
		return 0;
	w->ctx->clock = jm_clock_new_simulated(jm_clock_wall(jm_clock_real()));
	if (!w->ctx->clock)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a clock.");
	jm_record_set(w->record, "clock", json_string("simulated"));
	return 0;
}

static int work(struct worker *w, struct jm_err *err)
{
	int rc;

	jm_sleeper_init(&w->sleeper, w->ctx->clock);
	w->sleeping_here = true;
	rc = jm_session_start(w->session, err);
	if (rc)
		return rc;
	if (json_object_get(w->parameters, "command"))
		return run_command(w, err);
	return run_native(w, err);
}

/* What the session knows, also of a case that failed half way. */
static int add_report(struct worker *w, struct jm_err *err)
{
	json_t *report, *provenance = jm_provenance(w->ctx, jm_session_meters(w->session), err);
	int rc;

	jm_record_set(w->record, "provenance", provenance);
	if (w->main_phase < 0)
		return 0;
	report = jm_session_report(w->session, w->main_phase, err);
	if (!report)
		return err->code;
	rc = json_object_update(w->record, report);
	json_decref(report);
	if (rc)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a record.");
	return jm_record_judge_settings(w->record, w->session, w->main_phase, err);
}

static int run_session(struct worker *w, struct jm_err *err)
{
	struct jm_err late = JM_ERR_INIT;
	int64_t t0 = jm_ctx_now(w->ctx);
	char started[40];
	int rc;

	jm_time_text(jm_clock_wall(w->ctx->clock), started, sizeof(started));
	jm_record_set(w->record, "started", json_string(started));
	rc = work(w, err);
	if (json_is_null(json_object_get(w->record, "wall_s")))
		jm_record_set(w->record, "wall_s", jm_json_number(seconds_since(w, t0)));
	jm_session_announce_stop(w->session);
	jm_sleeper_done(&w->sleeper);
	if (jm_session_stop(w->session, &late))
		jm_log(w->ctx, JM_WARNING, "%s", late.text);
	late = (struct jm_err)JM_ERR_INIT;
	if (add_report(w, &late))
		return jm_err_set(err, late.code, "%s", late.text);
	return rc;
}

static int run_job(struct worker *w, struct jm_err *err)
{
	int rc = choose_clock(w, err);

	if (!rc)
		rc = open_session(w, err);
	if (!rc)
		rc = jm_worker_drop_rights(NULL, err);
	if (!rc)
		rc = die_with_parent(w, err);
	if (!rc)
		rc = run_session(w, err);
	if (rc)
		jm_record_failed(w->record, "%s", err->text);
	else
		jm_record_set(w->record, "status", json_string("ok"));
	return rc;
}

int jm_worker_run(struct jm_ctx *ctx, const json_t *job, int fd, struct jm_err *err)
{
	struct worker w = {.ctx = ctx,
		.job = job,
		.parameters = json_object_get(job, "parameters"),
		.fd = fd,
		.main_phase = -1};
	int rc;

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	signal(SIGPIPE, SIG_IGN);
	pthread_mutex_init(&w.lock, NULL);
	w.record = jm_record_new(job, err);
	if (!w.record)
		return err->code;
	ctx->log = on_log;
	ctx->log_arg = &w;
	rc = run_job(&w, err);
	if (rc && !w.session) /* nothing of it was measured */
		send_json(&w, JM_FRAME_ERROR,
			json_pack("{s:i, s:s}", "code", rc, "text", err->text), NULL);
	else if (send_json(&w, JM_FRAME_RECORD, json_incref(w.record), err))
		rc = err->code;
	json_decref(w.record);
	jm_session_close(w.session);
	jm_clock_free(ctx->clock);
	pthread_mutex_destroy(&w.lock);
	return rc;
}
