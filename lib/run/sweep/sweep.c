/* SPDX-License-Identifier: Apache-2.0 */
/* The loop over a plan: settings, worker, record, again after what was killed. */
#include "sweep.h"
#include "guard/guard_requests.h"
#include "store/store_run.h"
#include "base/clock.h"
#include "base/text/json.h"
#include "base/ctx.h"
#include "kept_process.h"
#include "run/plan/case_settings.h"
#include "run/plan/repeat_until.h"
#include "result/record.h"
#include "run/worker/worker_parent.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAME_SIGNAL_MS 100 /* within which it reaches all processes */
#define MAX_TRIES      100 /* of a case whose guard is killed again and again */

struct run {
	struct jm_ctx *ctx;
	const struct jm_run_options *o;
	const struct jm_plan *plan;
	struct jm_guard **guard;
	json_t **slots; /* record of case i, repeat r at i * plan->repeat + r - 1; NULL = none */
	int number, ran;
	int blocks;		/* number of blocks of the plan that is known so far */
	struct jm_err no_trace; /* why the store did not take all of the last trace */
	bool asked;		/* a case was asked to end; it may have been complete by then */
	struct jm_kept_process kept;
};

/* One run of a case. */
struct turn {
	const struct jm_plan_case *c;
	int index, block, position; /* from 0 */
};

int jm_shard_blocks(const struct jm_run_options *o, int blocks)
{
	return o->shards < 2 ? blocks : (blocks - o->shard + o->shards) / o->shards;
}

/* The first place in the order of a block with n cases that belongs to the part. */
static int part_begin(const struct jm_run_options *o, int part, int n)
{
	return (int)((int64_t)part * n / o->parts);
}

int jm_part_cases(const struct jm_run_options *o, int n)
{
	return o->parts < 2 ? n : part_begin(o, o->part + 1, n) - part_begin(o, o->part, n);
}

static json_t **slot(const struct run *r, const struct turn *t)
{
	return &r->slots[t->index * r->plan->repeat + t->block];
}

/* A signal between two cases counts as well. */
static bool cancelled(const struct run *r)
{
	struct pollfd p = {.fd = r->o->cancel_fd, .events = POLLIN};

	return r->o->cancel_fd >= 0 && poll(&p, 1, 0) > 0;
}

/* The signal that has ended the run, if no case has read it: the next one hurries. */
static void take_first(const struct run *r)
{
	char bytes[256]; /* at least one signalfd_siginfo */

	if (!r->asked && cancelled(r) && read(r->o->cancel_fd, bytes, sizeof(bytes)) < 0)
		jm_log(r->ctx, JM_WARNING, "The signal that ends the run cannot be read.");
}

/* ---- settings ---- */

static int restart_guard(struct run *r, struct jm_err *err)
{
	int rc;

	jm_guard_stop(*r->guard, NULL);
	*r->guard = NULL;
	rc = jm_guard_start(r->ctx, r->o->controls, r->guard, err);
	return rc ? rc : jm_guard_state(*r->guard, r->o->stated, false, err);
}

/* Sets, and reads back. A guard that was killed has put everything back; another one begins
 * anew. */
static int apply(struct run *r, const json_t *parameters, json_t **ret_rows, struct jm_err *err)
{
	int rc = 0;

	if (!jm_case_sets(parameters)) {
		*ret_rows = json_array();
		return 0;
	}
	if (!*r->guard || !jm_guard_alive(*r->guard))
		rc = restart_guard(r, err);
	return rc ? rc
		  : jm_case_apply(*r->guard, json_object_get(r->plan->request, "found"), parameters,
			    NULL, ret_rows, err);
}

/* Another run of a plan file may have set knobs that this one does not set. */
static int put_back_others(struct run *r, struct jm_err *err)
{
	return *r->guard && jm_guard_alive(*r->guard) ? jm_guard_restore(*r->guard, err) : 0;
}

/* ---- one run of a case ---- */

static void tell(struct run *r, const struct turn *t, enum jm_run_event_kind kind,
	const struct jm_case_progress *progress, const json_t *record)
{
	struct jm_run_event event = {.kind = kind,
		.c = t->c,
		.repeat = t->block + 1,
		.number = r->number,
		.total = jm_part_cases(r->o, r->plan->n) * jm_shard_blocks(r->o, r->plan->repeat),
		.progress = progress,
		.record = record};

	if (r->o->event)
		r->o->event(r->o->event_arg, &event);
}

struct watcher {
	struct run *run;
	const struct turn *turn;
};

static void on_progress(void *arg, const struct jm_case_progress *progress)
{
	const struct watcher *w = arg;

	tell(w->run, w->turn, JM_RUN_GOES_ON, progress, NULL);
}

static int on_phase(void *arg, const char *phase, json_t **ret_rows, struct jm_err *err)
{
	const struct watcher *w = arg;
	struct run *r = w->run;

	if (!*r->guard || !jm_guard_alive(*r->guard))
		return jm_err_set(err, JM_EGONE, "The guard process of the settings has ended.");
	return jm_case_apply(*r->guard, json_object_get(r->plan->request, "found"),
		w->turn->c->parameters, phase, ret_rows, err);
}

static void on_keep(void *arg, pid_t pid)
{
	const struct watcher *w = arg;

	jm_kept_process_take(&w->run->kept, pid);
}

/* Steals `settings`. */
static json_t *make_job(const struct run *r, const struct turn *t, json_t *settings)
{
	const json_t *request = r->plan->request, *run = json_object_get(request, "run");
	json_t *job = json_object(), *c = json_object(), *how = json_object_get(request, "how");

	jm_json_set_text(&c, "id", t->c->id);
	jm_json_set(&c, "parameters", json_incref(t->c->parameters));
	jm_json_set_int(&c, "repeat", t->block + 1);
	jm_json_set_int(&c, "block", t->block + 1);
	jm_json_set_int(&c, "position", t->position + 1);
	jm_json_set_bool(&c, "reference", t->c->reference);
	jm_json_set_int(&c, "seed", (json_int_t)jm_plan_seed(r->plan, t->block + 1));
	/* both are for people: they are no part of what the case is */
	if (run)
		json_object_update(c, (json_t *)(uintptr_t)run);
	jm_json_set(&job, "parameters", json_incref(t->c->parameters));
	jm_json_set(&job, "case", c);
	jm_json_set(&job, "settings", settings);
	jm_json_set(&job, "how", how ? json_incref(how) : json_null());
	jm_json_set_int(&job, "parent", getpid());
	jm_json_set_bool(&job, "several", r->plan->n * r->plan->repeat > 1);
	return job;
}

static int run_worker(struct run *r, const struct turn *t, json_t *job, bool guarded,
	json_t **ret_record, struct jm_err *err)
{
	struct watcher watcher = {r, t};
	pid_t kept;
	bool keeps = !r->o->agents && jm_kept_process_for(&r->kept, r->ctx, r->o->program,
					      t->c->parameters, r->o->cancel_fd, &kept);
	const json_t *how = json_object_get(r->plan->request, "how");
	struct jm_case_options o = {.program = r->o->program,
		.job = job,
		.timeout_s = json_number_value(json_object_get(how, "timeout_s")),
		.cancel_fd = r->o->cancel_fd,
		.asked = &r->asked,
		.watch_pid = guarded ? jm_guard_pid(*r->guard) : 0,
		.agents = r->o->agents,
		.store = r->o->store,
		.no_trace = &r->no_trace,
		.out_fd = r->o->out_fd,
		.echo = r->o->echo,
		.progress = on_progress,
		.phase = on_phase,
		.variable = keeps ? r->kept.reaper.variable : NULL,
		.keep = on_keep,
		.arg = &watcher};

	if (keeps)
		json_object_set_new(job, "kept", json_integer(kept));
	r->no_trace = (struct jm_err)JM_ERR_INIT;
	return jm_case_run(r->ctx, &o, ret_record, err);
}

/* A case that could not even begin still has its record. */
static int failed_before_work(
	struct run *r, const struct turn *t, const char *why, json_t **ret, struct jm_err *err)
{
	json_t *job = make_job(r, t, json_array()), *record;
	int rc = 0;

	record = job ? jm_record_new(job, err) : NULL;
	json_decref(job);
	if (!record)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a record.");
	jm_record_failed(record, "%s", why);
	if (r->o->store)
		rc = jm_store_begin(r->o->store, t->c->id, t->block + 1, err);
	if (rc)
		json_decref(record);
	else
		*ret = record;
	return rc;
}

/* A case whose setting another program changed while it ran has no figures of that setting. Phases
 * change theirs. */
static void judge_held(
	const struct run *r, const struct turn *t, const json_t *settings, json_t *record)
{
	struct jm_err why = JM_ERR_INIT;

	if (jm_case_sets_in(t->c->parameters, NULL) || !*r->guard || !jm_guard_alive(*r->guard) ||
		!jm_case_check_held(*r->guard, settings, &why))
		return;
	jm_record_failed(record, "%s", why.text);
	jm_record_set_failure(record, JM_FAILURE_DEVICE);
	if (!json_is_array(json_object_get(record, "command"))) /* whose status is its own */
		jm_record_set(record, "exit_status", json_integer(JM_EXIT_DEVICE));
}

/* With the settings made. */
static int run_set(struct run *r, const struct turn *t, json_t *settings, json_t **ret_record,
	struct jm_err *err)
{
	bool guarded = jm_case_sets(t->c->parameters);
	json_t *job = make_job(r, t, settings);
	int rc = 0;

	if (!job)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the job of a case.");
	tell(r, t, JM_RUN_STARTS, NULL, NULL);
	if (r->o->store)
		rc = jm_store_begin(r->o->store, t->c->id, t->block + 1, err);
	if (!rc)
		rc = run_worker(r, t, job, guarded, ret_record, err);
	if (!rc && guarded && jm_record_is_ok(*ret_record))
		judge_held(r, t, json_object_get(job, "settings"), *ret_record);
	json_decref(job);
	return rc;
}

/* If a device refuses its setting, the case fails; if this process may not set it, the run ends.
 * If the guard was killed meanwhile, everything was restored, so the case must be run again
 * (JM_EGONE). */
static int try_once(struct run *r, const struct turn *t, json_t **ret_record, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	json_t *settings = NULL;
	int rc = apply(r, t->c->parameters, &settings, &why);

	if (rc == JM_EIO)
		return failed_before_work(r, t, why.text, ret_record, err);
	if (rc)
		return jm_err_set(err, rc, "%s", why.text);
	return run_set(r, t, settings, ret_record, err);
}

/* Its record, however it ended. */
static int run_tried(struct run *r, const struct turn *t, json_t **ret_record, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int rc = JM_EGONE;

	for (int i = 0; i < MAX_TRIES && rc == JM_EGONE; i++) {
		why = (struct jm_err)JM_ERR_INIT;
		rc = try_once(r, t, ret_record, &why);
		if (rc == JM_EGONE)
			jm_log(r->ctx, JM_WARNING, "%s The case is run again.", why.text);
	}
	if (rc == JM_EGONE)
		return failed_before_work(r, t, why.text, ret_record, err);
	return rc ? jm_err_set(err, rc, "%s", why.text) : 0;
}

/* Is a retry due after a failure of this kind? Counts the retries. A case that was asked to end may
 * fail all the same, and then it is not marked as interrupted. */
static bool try_again(const struct run *r, const json_t *record, int *tried)
{
	const json_t *how = json_object_get(r->plan->request, "how");
	enum jm_failure kind = jm_record_failure(record);
	json_int_t most = 0;

	if (kind < JM_FAILURE_KINDS)
		most = json_integer_value(
			json_object_get(json_object_get(how, "retries"), jm_failure_words[kind]));
	if (r->asked || jm_record_is_interrupted(record) || kind == JM_FAILURE_KINDS ||
		tried[kind] >= most)
		return false;
	tried[kind]++;
	jm_log(r->ctx, JM_INFO, "%s The case is run again (%s, %d of %lld).",
		json_string_value(json_object_get(record, "reason")), jm_failure_words[kind],
		tried[kind], (long long)most);
	return true;
}

/* Simulated devices need no pause: their time begins anew with each case, and they are at rest
 * then. */
static bool needs_pause(const struct run *r, const struct turn *t)
{
	const char *device = json_string_value(json_object_get(t->c->parameters, "device"));
	const json_t *how = json_object_get(r->plan->request, "how");

	return r->plan->cooldown_s > 0 && r->ran > 0 &&
	       (!jm_case_simulated(device) || json_is_true(json_object_get(how, "real_time")));
}

/* Returns early when the run is cancelled, which the next case notices. */
static void cool_down(struct run *r, const struct turn *t)
{
	int64_t end = jm_clock_now(jm_clock_real()) + (int64_t)(r->plan->cooldown_s * 1e9), left;
	struct pollfd p = {.fd = r->o->cancel_fd, .events = POLLIN};

	if (!needs_pause(r, t))
		return;
	tell(r, t, JM_RUN_COOLS, NULL, NULL);
	while (!p.revents && (left = end - jm_clock_now(jm_clock_real())) > 0)
		poll(&p, 1, (int)(left / 1000000 < 1000 ? left / 1000000 + 1 : 1000));
}

/* Stores the record; a run whose store failed ends with this case. */
static int keep(struct run *r, json_t *record, struct jm_err *err)
{
	int rc;

	if (!r->o->store)
		return 0;
	rc = jm_store_finish(r->o->store, record, err);
	if (rc)
		json_array_append(r->o->unstored, record);
	else if (r->no_trace.code)
		rc = jm_err_set(err, r->no_trace.code, "%s", r->no_trace.text);
	return rc;
}

/* A signal to all processes of a batch job may end the work before it reaches this one: such a case
 * did not fail. */
static bool ended_with_run(const struct run *r, const json_t *record)
{
	struct pollfd p = {.fd = r->o->cancel_fd, .events = POLLIN};

	return p.fd >= 0 && !r->asked && !jm_record_is_ok(record) &&
	       poll(&p, 1, SAME_SIGNAL_MS) > 0;
}

static int run_turn(struct run *r, const struct turn *t, struct jm_err *err)
{
	int tried[JM_FAILURE_KINDS] = {0}, rc;
	json_t *record = NULL;

	cool_down(r, t);
	if (cancelled(r))
		return jm_err_set(err, JM_EINTR, "Interrupted.");
	r->ran++;
	do {
		json_decref(record);
		record = NULL;
		rc = run_tried(r, t, &record, err);
		if (!rc && ended_with_run(r, record))
			rc = jm_err_set(err, JM_EINTR, "Interrupted.");
	} while (!rc && try_again(r, record, tried));
	if (rc) {
		json_decref(record);
		return rc;
	}
	rc = keep(r, record, err);
	json_decref(*slot(r, t));
	*slot(r, t) = record;
	tell(r, t, JM_RUN_ENDS, NULL, record);
	if (rc)
		return rc;
	return r->asked ? jm_err_set(err, JM_EINTR, "Interrupted.") : 0;
}

/* ---- the plan ---- */

/* Is the block, from 0, one of this runner's? */
static bool own_block(const struct run *r, int block)
{
	return r->o->shards < 2 || block % r->o->shards == r->o->shard - 1;
}

static bool already_done(const struct run *r, const struct turn *t)
{
	const json_t *record = *slot(r, t);

	if (r->o->rerun && record)
		return strncmp(t->c->id, r->o->rerun, strlen(r->o->rerun)) != 0;
	if (r->o->only_failed && record)
		return jm_record_is_ok(record);
	return record &&
	       (jm_record_is_ok(record) || (!r->o->retry && !jm_record_is_interrupted(record)));
}

/* What was never run is left to another call. */
static bool left_out(const struct run *r, const struct turn *t)
{
	return !*slot(r, t) && (r->o->only_failed || r->o->rerun);
}

/* A store of a part has the cases of the part alone. */
static int add_own_case(struct run *r, const struct jm_plan_case *c, struct jm_err *err)
{
	return r->o->parts < 2 || !r->o->store
		       ? 0
		       : jm_store_add_case(r->o->store, c->id, c->parameters, err);
}

static int run_block(struct run *r, int block, const int *order, struct jm_err *err)
{
	int first = r->o->parts < 2 ? 0 : part_begin(r->o, r->o->part, r->plan->n), rc = 0;

	for (int i = first; i < first + jm_part_cases(r->o, r->plan->n) && !rc; i++) {
		struct turn t = {.c = &r->plan->cases[order[i]],
			.index = order[i],
			.block = block,
			.position = i};

		r->number++;
		if (cancelled(r))
			return jm_err_set(err, JM_EINTR, "Interrupted.");
		if (left_out(r, &t))
			continue;
		if (already_done(r, &t)) {
			tell(r, &t, JM_RUN_WAS_THERE, NULL, *slot(r, &t));
			continue;
		}
		rc = add_own_case(r, t.c, err);
		if (!rc)
			rc = run_turn(r, &t, err);
		if (!rc && r->o->fail_fast && !jm_record_is_ok(*slot(r, &t)))
			rc = jm_err_set(err, JM_ECHILD,
				"A case failed, and the remaining cases were skipped because of "
				"--fail-fast.");
	}
	return rc;
}

static int take_stored(void *arg, json_t *record, struct jm_err *err)
{
	struct run *r = arg;
	const json_t *c = json_object_get(record, "case");
	const char *id = json_string_value(json_object_get(c, "id"));
	int repeat = (int)json_integer_value(json_object_get(c, "repeat"));

	(void)err;
	for (int i = 0; i < r->plan->n && id; i++) {
		json_t **at = &r->slots[i * r->plan->repeat + repeat - 1];

		if (strcmp(r->plan->cases[i].id, id) || repeat < 1 || repeat > r->plan->repeat)
			continue;
		json_decref(*at);
		*at = json_incref(record);
	}
	return 0;
}

/* The plan and its cases go in first: their places do not depend on what is run when. A part has
 * neither: a plan of many cases has many parts. */
static int prepare_store(struct run *r, struct jm_err *err)
{
	struct jm_store *s = r->o->store;
	bool whole = r->o->parts < 2;
	int rc = 0;

	if (!s)
		return 0;
	if (whole)
		rc = jm_store_add_plan(s, r->plan->key, r->plan->request, err);
	for (int i = 0; whole && i < r->plan->n && !rc; i++)
		rc = jm_store_add_case(s, r->plan->cases[i].id, r->plan->cases[i].parameters, err);
	if (!rc)
		rc = jm_store_commit(s, err);
	return rc ? rc : jm_store_records(s, false, take_stored, r, err);
}

/* Are the intervals narrow enough after so many blocks? Then there are no more. */
static void look(struct run *r, int blocks)
{
	const struct jm_plan *plan = r->plan;
	double level = jm_until_level(plan->repeat - plan->least_repeat + 1), worst;

	if (!(plan->until > 0) || blocks < plan->least_repeat || r->o->only_failed || r->o->rerun)
		return;
	if (jm_until_reached(r->slots, plan->n, plan->repeat, blocks, plan->until, level, &worst))
		r->blocks = blocks;
	else if (blocks == plan->repeat && !isnan(worst))
		jm_log(r->ctx, JM_WARNING,
			"After %d repeats (--max-repeat) an interval is still ± %.3g %% wide; %.3g "
			"%% "
			"was asked for (--until-interval).",
			blocks, 100 * worst, 100 * plan->until);
}

static int run_blocks(struct run *r, struct jm_err *err)
{
	int *order = calloc((size_t)r->plan->n + 1, sizeof(*order)), rc;

	if (!order)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the plan.");
	rc = prepare_store(r, err);
	for (int b = 0; b < r->blocks && !rc; b++) {
		if (!own_block(r, b))
			continue;
		jm_plan_order(r->plan, b, order);
		rc = run_block(r, b, order, err);
		if (!rc)
			look(r, b + 1);
	}
	free(order);
	return rc;
}

int jm_run_plan(struct jm_ctx *ctx, const struct jm_run_options *options, struct jm_guard **guard,
	json_t *records, struct jm_err *err)
{
	struct run r = {.ctx = ctx,
		.o = options,
		.plan = options->plan,
		.guard = guard,
		.blocks = options->plan->repeat};
	size_t n = (size_t)options->plan->n * (size_t)options->plan->repeat;
	int rc;

	r.slots = calloc(n + 1, sizeof(json_t *));
	if (!r.slots)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the records of the plan.");
	rc = put_back_others(&r, err);
	if (!rc)
		rc = run_blocks(&r, err);
	if (rc)
		take_first(&r);
	jm_kept_process_end(&r.kept, options->cancel_fd);
	for (size_t i = 0; i < n; i++) {
		if (r.slots[i])
			json_array_append_new(records, r.slots[i]);
	}
	free(r.slots);
	if (options->ret_blocks)
		*options->ret_blocks = r.blocks;
	return rc;
}
