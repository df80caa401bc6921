/* SPDX-License-Identifier: Apache-2.0 */
/* The child: sources opened, rights dropped, work done phase by phase, record sent. */
#include "worker.h"
#include "measure/command/processor_share.h"
#include "measure/session/session_report.h"
#include "result/profile_energy.h"
#include "result/metric.h"
#include "base/ctx.h"
#include "base/files/state_folder.h"
#include "run/gang/frame.h"
#include "run/gang/launcher.h"
#include "meter/meters_json.h"
#include "result/provenance.h"
#include "result/phase_energy.h"
#include "result/serving_energy.h"
#include "result/setting_state.h"
#include "loading_energy.h"
#include "worker_affinity.h"
#include "worker_command.h"
#include "worker_native.h"
#include "worker_orders.h"
#include "worker_pace.h"
#include "worker_phases.h"
#include "worker_state.h"

#include <fcntl.h>
#include <grp.h>
#include <math.h>
#include <pwd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- to the parent ---- */

static int on_chunk(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	struct jm__worker *w = arg;
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

static int send_json(
	struct jm__worker *w, enum jm_frame_type type, json_t *json, struct jm_err *err)
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

/* ---- rights ---- */

static int take_identity(uid_t uid, gid_t gid, struct jm_err *err)
{
	const struct passwd *user = getpwuid(uid);
	int rc = user ? initgroups(user->pw_name, gid) : setgroups(1, &gid);

	if (rc || setresgid(gid, gid, gid) || setresuid(uid, uid, uid) || !setuid(0))
		return jm_err_set(err, JM_EPERM,
			"Cannot change from root to user %ld, so the case was not run.", (long)uid);
	if (user) {
		setenv("HOME", user->pw_dir, 1);
		setenv("USER", user->pw_name, 1);
		setenv("LOGNAME", user->pw_name, 1);
	}
	return 0;
}

/* Under sudo: changes permanently to the user who called it, with that user's groups and HOME. */
static int drop_rights(struct jm_err *err)
{
	uid_t uid;
	gid_t gid;

	return jm_sudo_caller(&uid, &gid) ? take_identity(uid, gid, err) : 0;
}

/* The kernel clears this setting when the identity changes, so it is set afterwards. */
static int die_with_parent(const struct jm__worker *w, struct jm_err *err)
{
	json_int_t parent = json_integer_value(json_object_get(w->job, "parent"));

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (parent && getppid() != (pid_t)parent)
		return jm_err_set(err, JM_EGONE, "The program that started this worker has ended.");
	return 0;
}

/* ---- a case from start to end ---- */

static const char *simulated_device(const struct jm__worker *w)
{
	const char *device = json_string_value(json_object_get(w->parameters, "device"));

	return jm_case_simulated(device) ? device : NULL;
}

/* Those that the user names, else a simulated device's own, else NULL: all that open. */
static int list_sources(struct jm__worker *w, struct jm_err *err)
{
	const json_t *sources = json_object_get(json_object_get(w->job, "how"), "sources"), *one;
	size_t i, n = json_array_size(sources);

	if (!n && !simulated_device(w))
		return 0;
	w->sources = calloc(n + 2, sizeof(*w->sources));
	if (!w->sources)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the list of sources.");
	json_array_foreach(sources, i, one)
	{
		w->sources[i] = json_string_value(one);
	}
	if (!n)
		w->sources[0] = simulated_device(w);
	return 0;
}

static int open_session(struct jm__worker *w, struct jm_err *err)
{
	struct jm_session_options o = {.on_chunk = on_chunk, .on_chunk_arg = w};
	static const char *const none[] = {NULL};
	double interval_s =
		jm_json_real(json_object_get(json_object_get(w->job, "how"), "interval_s"));
	int rc = list_sources(w, err);

	o.sources = w->measures ? w->sources : none; /* one sampler per host, however many ranks */
	if (interval_s > 0)
		o.interval_ns = (int64_t)(interval_s * 1e9);
	if (!rc)
		rc = jm_session_open(w->ctx, &o, &w->session, err);
	if (rc)
		return rc;
	return send_json(
		w, JM_FRAME_SIGNALS, jm_meters_to_json(jm_session_meters(w->session)), err);
}

/* Simulated time for simulated devices, unless the user wants the machine's. */
static int choose_clock(struct jm__worker *w, struct jm_err *err)
{
	bool real = json_is_true(json_object_get(json_object_get(w->job, "how"), "real_time"));

	if (real || !simulated_device(w) || json_object_get(w->parameters, "command"))
		return 0;
	w->ctx->clock = jm_clock_new_simulated(jm_clock_wall(jm_clock_real()));
	if (!w->ctx->clock)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a clock.");
	jm_record_set(w->record, "clock", json_string("simulated"));
	return 0;
}

static int work(struct jm__worker *w, struct jm_err *err)
{
	double machine_s;
	int rc;

	jm_sleeper_init(&w->sleeper, w->ctx->clock);
	rc = jm_session_start(w->session, err);
	if (!rc)
		rc = jm__worker_bind_work(w, err);
	if (rc)
		return rc;
	w->start_ns =
		jm_session_began(w->session); /* changes and phases count from the same time */
	if (json_object_get(w->parameters, "command"))
		return jm__worker_command(w, err);
	machine_s = jm_machine_cpu_s(w->ctx);
	jm_outer_marks_open(&w->outer, w->ctx);
	rc = jm__worker_native(w, err);
	w->machine_cpu_s = jm_machine_cpu_s(w->ctx) - machine_s;
	jm_outer_marks_close(&w->outer);
	return rc;
}

/* Adds the report of the session to the record, also for a case that failed before its end. */
static int add_report(struct jm__worker *w, struct jm_err *err)
{
	json_t *report;
	int rc;

	if (!w->measures)
		return 0;
	jm_record_set(
		w->record, "provenance", jm_provenance(w->ctx, jm_session_meters(w->session), err));
	if (w->main_phase < 0)
		return 0;
	report = jm_session_report(w->session, w->main_phase, err);
	if (!report)
		return err->code;
	rc = json_object_update(w->record, report);
	json_decref(report);
	if (rc)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a record.");
	jm_record_share_energy(w->record);
	jm_record_idle_gpus(w->record);
	jm_record_serving_energy(w->record);
	jm_record_until_energy(w->record);
	jm_record_overlap_energy(w->record);
	jm__loading_energy(w->record, jm_session_meters(w->session), w->machine_cpu_s);
	jm__pace_record(w);
	jm__worker_record_settings(w);
	return jm_record_judge_settings(w->record, w->session, w->main_phase, err);
}

static int run_session(struct jm__worker *w, struct jm_err *err)
{
	struct jm_err late = JM_ERR_INIT;
	int64_t t0 = w->start_ns = jm_ctx_now(w->ctx);
	char started[40];
	int rc;

	jm_time_text(jm_clock_wall(w->ctx->clock), started, sizeof(started));
	jm_record_set(w->record, "started", json_string(started));
	rc = work(w, err);
	if (json_is_null(json_object_get(w->record, "wall_s")))
		jm_record_set(w->record, "wall_s", jm_json_number(jm__worker_seconds_since(w, t0)));
	jm_session_announce_stop(w->session);
	jm_sleeper_done(&w->sleeper);
	if (jm_session_stop(w->session, &late))
		jm_log(w->ctx, JM_WARNING, "%s", late.text);
	late = (struct jm_err)JM_ERR_INIT;
	if (add_report(w, &late))
		return jm_err_set(err, late.code, "%s", late.text);
	return rc;
}

static int run_job(struct jm__worker *w, struct jm_err *err)
{
	int rc = choose_clock(w, err);

	if (!rc)
		rc = jm__worker_bind_sampler(w, err);
	if (!rc)
		rc = open_session(w, err);
	if (!rc)
		rc = drop_rights(err);
	if (!rc)
		rc = die_with_parent(w, err);
	if (!rc)
		rc = run_session(w, err);
	if (rc) {
		jm_record_failed(w->record, "%s", err->text);
		if (jm_record_failure(w->record) == JM_FAILURE_KINDS)
			jm_record_set_failure(w->record, jm_failure_of_code(rc));
	} else if (w->stop)
		jm_record_interrupted(w->record);
	else
		jm_record_set(w->record, "status", json_string("ok"));
	return rc;
}

/* Its place in the gang, and the descriptors that it has besides. */
static void take_place(struct jm__worker *w)
{
	const json_t *gang = json_object_get(w->job, "gang");

	w->rank = (int)json_integer_value(json_object_get(gang, "rank"));
	w->world = (int)json_integer_value(json_object_get(gang, "world"));
	if (w->world < 1)
		w->world = 1;
	w->measures = json_object_get(gang, "measures")
			      ? json_is_true(json_object_get(gang, "measures"))
			      : !w->rank;
	fcntl(JM_WORKER_FRAMES, F_SETFD, FD_CLOEXEC);
	fcntl(JM_WORKER_GANG, F_SETFD, FD_CLOEXEC);
	jm_orders_init(
		&w->orders, fcntl(JM_WORKER_ORDERS, F_SETFD, FD_CLOEXEC) ? -1 : JM_WORKER_ORDERS);
}

int jm_worker_run(
	struct jm_ctx *ctx, const json_t *job, jm_affinity_fn *affinity, struct jm_err *err)
{
	struct jm__worker w = {.ctx = ctx,
		.job = job,
		.find_affinity = affinity,
		.parameters = json_object_get(job, "parameters"),
		.fd = JM_WORKER_FRAMES,
		.main_phase = -1,
		.own_meter = -1};
	int rc;

	take_place(&w);
	signal(SIGPIPE, SIG_IGN);
	pthread_mutex_init(&w.lock, NULL);
	w.record = jm_record_new(job, err);
	if (!w.record)
		return err->code;
	ctx->log = on_log;
	ctx->log_arg = &w;
	rc = run_job(&w, err);
	if (rc && !w.session) /* nothing of it was measured */
		jm__worker_tell_failure(&w, rc, err);
	else if (send_json(&w, JM_FRAME_RECORD, json_incref(w.record), err))
		rc = err->code;
	jm__worker_native_end(&w);
	json_decref(w.record);
	jm_live_free(w.live);
	jm_session_close(w.session);
	json_decref(w.affinity);
	free(w.sources);
	free(w.end);
	free(w.span);
	jm_clock_free(ctx->clock);
	pthread_mutex_destroy(&w.lock);
	return rc;
}
