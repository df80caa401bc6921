/* SPDX-License-Identifier: Apache-2.0 */
/* From the command line, a plan file or a store to the plans that a call of `run` works off. */
#include "planned.h"
#include "cli/settings/probe.h"
#include "guard/guard_requests.h"
#include "run/sweep/sweep_found.h"
#include "store/store_run.h"
#include "guard/guard_recover.h"
#include "run/plan/plan_lookup.h"
#include "run/plan/plan_text.h"
#include "run/worker/case_reaper.h"
#include "run_job.h"
#include "run_request.h"
#include "run_settings.h"
#include "run_words.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_planned(
	struct jm_run_call *r, const struct jm_plan_run *run, int place, json_t *request)
{
	struct jm_planned *grown = reallocarray(r->planned, (size_t)r->n + 1, sizeof(*grown));

	if (!grown) {
		json_decref(request);
		return jm_err_set(&r->cli->err, JM_ENOMEM, "Out of memory for the plan.");
	}
	r->planned = grown;
	grown[r->n++] = (struct jm_planned){.run = run, .place = place, .request = request};
	return 0;
}

/* ---- requests ---- */

/* Cases whose commands differ in values only are points of one work in tables. */
static int add_template(const struct jm_plan_run *run, json_t *name, struct jm_err *err)
{
	json_t *words = json_array();
	int rc = jm_plan_command(run, NULL, words, err);

	if (!rc)
		json_object_set(name, "template", words);
	json_decref(words);
	return rc;
}

/* For the records. */
static int name_run(const struct jm_plan_run *run, json_t *request, struct jm_err *err)
{
	const json_t *what = json_object_get(request, "what");
	json_t *name = json_pack("{s:s}", "run", run->name);
	int rc = 0;

	if (json_array_size(run->tags))
		json_object_set(name, "tags", run->tags);
	if (run->command && json_array_size(json_object_get(what, "parts")) > 1)
		rc = add_template(run, name, err);
	json_object_set_new(request, "run", name);
	return rc;
}

static int read_file(struct jm_run_call *r)
{
	int rc = jm_plan_request_load(r->cli, &r->given.plan, r->cli->args[0], &r->file);

	for (int i = 0; i < r->file.n && !rc; i++) {
		json_t *request;

		if (!jm_plan_request_selected(&r->given.plan, &r->file.run[i]))
			continue;
		rc = jm_plan_request_make(r->cli, &r->file.run[i], &request);
		if (!rc)
			rc = name_run(&r->file.run[i], request, &r->cli->err);
		if (!rc && r->file.n > 1)
			json_object_set_new(request, "file", json_string(r->cli->args[0]));
		if (!rc)
			rc = add_planned(r, &r->file.run[i], i, request);
	}
	if (!rc && !r->n)
		rc = jm_err_set(&r->cli->err, JM_EUSAGE,
			"No run of %s has a tag of '--tag %s'; the key 'tags' of a run in that "
			"file lists its tags.",
			r->cli->args[0], r->given.plan.tag);
	return rc;
}

static int check_file_options(struct jm_run_call *r)
{
	const struct jm_plan_selection *p = &r->given.plan;
	const char *name = p->platform ? "platform" : "tag";

	if (!p->platform && !p->tag)
		return 0;
	return jm_err_set(&r->cli->err, JM_EUSAGE,
		"--%s is for plan files; give a plan such as plan.yaml, or omit --%s.", name, name);
}

/* key: "set" as the user wrote them, "settings" of a request that is complete */
static bool any_sets(const struct jm_run_call *r, const char *key)
{
	for (int i = 0; i < r->n; i++)
		if (jm_run_request_sets(r->planned[i].request, key))
			return true;
	return false;
}

static int check_stated(struct jm_run_call *r, const char *key)
{
	char *const *stated = r->given.sweep.stated;

	if (!stated || !*stated || any_sets(r, key))
		return 0;
	return jm_err_set(&r->cli->err, JM_EUSAGE,
		"--found %s states what a knob has that --set changes; give --set, or omit "
		"--found.",
		*stated);
}

static int read_requests(struct jm_run_call *r)
{
	json_t *request;
	int rc;

	if (r->given.job) {
		rc = jm_run_job_read(r->cli, r->given.job, &r->given.sweep, &request);
		return rc ? rc : add_planned(r, NULL, 0, request);
	}
	if (r->cli->n_args && jm_plan_is_file(r->cli->args[0]) && !r->cli->command)
		return read_file(r);
	rc = check_file_options(r);
	if (rc)
		return rc;
	request = jm_run_request(r->cli);
	return request ? add_planned(r, NULL, 0, request) : r->cli->err.code;
}

int jm_planned_read(struct jm_run_call *r)
{
	int rc = read_requests(r);

	return rc ? rc : check_stated(r, "set");
}

/* ---- the guard ---- */

static bool same_controls(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

void jm_planned_change_guard(struct jm_run_call *r, const struct jm_planned *p)
{
	if (!r->guard || same_controls(r->guarded, p->controls_used))
		return;
	jm_guard_stop(r->guard, NULL);
	r->guard = NULL;
}

static void seek_knobs(struct jm_guard *guard, const json_t *request)
{
	json_t *what = json_object_get(request, "what"), *part, *text;
	size_t k;

	for (size_t i = 0; (part = jm_plan_part(what, i)); i++)
		json_array_foreach(json_object_get(part, "set"), k, text)
			jm_guard_seek(guard, json_string_value(text));
}

static int start_guard(struct jm_run_call *r, struct jm_planned *p)
{
	bool runs;
	int rc = 0;

	jm_planned_change_guard(r, p);
	r->guarded = p->controls_used;
	runs = r->guard != NULL;
	if (!runs)
		rc = jm_guard_start(&r->cli->ctx, p->controls_used, &r->guard, &r->cli->err);
	if (!rc)
		seek_knobs(r->guard, p->request);
	if (rc || runs)
		return rc;
	if (r->given.dry_run) /* which makes no GPU busy */
		return jm_guard_state(r->guard, r->given.sweep.stated, false, &r->cli->err);
	return jm_probe_state(
		r->cli, r->guard, r->given.sweep.stated, r->given.probe_load, &r->cli->err);
}

/* ---- plans ---- */

/* What an earlier call found and drew stays as it was, or the cases would not be the same. */
static int take_over(struct jm_run_call *r, struct jm_planned *p, const json_t *stored)
{
	const json_t *seed = json_object_get(stored, "seed"),
		     *found = json_object_get(stored, "found");
	bool asked = r->given.seed_given || (p->run && jm_plan_key(p->run, "seed"));

	if (asked && !json_equal(json_object_get(p->request, "seed"), seed))
		return jm_err_set(&r->cli->err, JM_EUSAGE,
			"The store '%s' holds this plan with --seed %lld; omit --seed, or give "
			"another file to --store.",
			jm_store_path(r->store), (long long)json_integer_value(seed));
	json_object_set(p->request, "seed", (json_t *)(uintptr_t)seed);
	json_object_set(p->request, "found", (json_t *)(uintptr_t)found);
	return 0;
}

static int check_stored(struct jm_run_call *r, const json_t *plan)
{
	char what[PATH_MAX + 32];

	snprintf(what, sizeof(what), "the plan in the store '%s'", jm_store_path(r->store));
	return jm_plan_check(plan, what, &r->cli->err);
}

static int look_for_stored(struct jm_run_call *r, struct jm_planned *p, bool *ret_stored)
{
	struct jm_err none = JM_ERR_INIT;
	char key[JM_CASE_ID];
	json_t *stored;
	int rc = jm_json_hash(json_object_get(p->request, "what"), key, &r->cli->err);

	*ret_stored = false;
	if (rc || !r->store)
		return rc;
	rc = jm_store_plan(r->store, key, &stored, &none);
	if (rc == JM_ENOENT)
		return 0;
	if (rc)
		return jm_err_set(&r->cli->err, rc, "%s", none.text);
	rc = check_stored(r, stored);
	if (!rc)
		rc = take_over(r, p, stored);
	json_decref(stored);
	*ret_stored = true;
	return rc;
}

/* A guard that is killed during this has changed nothing, so another one is started and checks
 * again. */
static int find_found(struct jm_run_call *r, struct jm_planned *p)
{
	const json_t *what = json_object_get(p->request, "what");
	struct jm_err *err = &r->cli->err;
	json_t *found;
	int rc = jm_run_found(&r->cli->ctx, r->guard, what, &found, err);

	for (int i = 0; i < 3 && rc == JM_EGONE && r->guard && !jm_guard_alive(r->guard); i++) {
		jm_guard_stop(r->guard, NULL);
		r->guard = NULL;
		*err = (struct jm_err)JM_ERR_INIT;
		rc = start_guard(r, p);
		if (!rc)
			rc = jm_run_found(&r->cli->ctx, r->guard, what, &found, err);
	}
	if (!rc)
		json_object_set_new(p->request, "found", found);
	return rc;
}

/* Without the knobs: in the units that the texts have. */
static int assume_settings(struct jm_run_call *r, struct jm_planned *p)
{
	struct jm_knobs knobs = {0};
	int rc = jm_run_assume_knobs(p->request, &knobs, &r->cli->err);

	if (!rc)
		rc = jm_run_request_settings(r->cli, &knobs, p->request);
	jm_knobs_done(&knobs);
	return rc;
}

static int read_settings(struct jm_run_call *r, struct jm_planned *p)
{
	int rc = jm_run_request_settings(r->cli, jm_guard_knobs(r->guard), p->request);

	p->wrong_settings = rc != 0;
	return rc;
}

/* A plan may be looked at where nothing can be set. */
static int look_at_settings(struct jm_run_call *r, struct jm_planned *p)
{
	json_t *asked = json_deep_copy(json_object_get(p->request, "what"));
	int rc = start_guard(r, p);

	if (!rc)
		rc = read_settings(r, p);
	if (!rc)
		rc = find_found(r, p);
	if (!rc || rc == JM_ENOMEM || !asked) {
		json_decref(asked);
		return rc;
	}
	json_object_set_new(r->cli->lacks, "knobs", json_string(r->cli->err.text));
	r->cli->err = (struct jm_err)JM_ERR_INIT;
	json_object_set_new(p->request, "what", asked);
	return assume_settings(r, p);
}

static int complete_request(struct jm_run_call *r, struct jm_planned *p)
{
	bool stored, set = jm_run_request_sets(p->request, "set");
	int rc = 0;

	if (set && r->cli->lacks)
		return look_at_settings(r, p);
	if (set)
		rc = start_guard(r, p);
	if (!rc && set)
		rc = read_settings(r, p);
	if (!rc)
		rc = look_for_stored(r, p, &stored);
	if (!rc && set && !stored)
		rc = find_found(r, p);
	return rc;
}

static int request_from_store(struct jm_run_call *r, struct jm_planned *p)
{
	int rc = jm_store_last_plan(r->store, &p->request, &r->cli->err);

	if (!rc)
		rc = check_stored(r, p->request);
	if (!rc && json_is_string(json_object_get(p->request, "file")))
		rc = jm_err_set(&r->cli->err, JM_EUSAGE,
			"The last plan of the store '%s' is one of several runs of a plan file; "
			"continue all of them with 'joulemark run %.200s --store %s'.",
			jm_store_path(r->store),
			json_string_value(json_object_get(p->request, "file")),
			jm_store_path(r->store));
	if (rc)
		return rc;
	if (r->given.repeat_given)
		json_object_set_new(p->request, "repeat", json_integer(r->given.repeat));
	p->controls_used =
		jm_run_controls(r->given.control, p->request, p->controls, sizeof(p->controls));
	return jm_run_request_sets(p->request, "settings") ? start_guard(r, p) : 0;
}

/* Sentences on a run of a plan file name its place. */
static int make_plan(struct jm_run_call *r, struct jm_planned *p)
{
	const struct jm_plan_key *set = p->run ? jm_plan_key(p->run, "set") : NULL;
	struct jm_err why;
	int rc;

	p->controls_used =
		jm_run_controls(r->given.control, p->request, p->controls, sizeof(p->controls));
	rc = r->given.resume ? 0 : complete_request(r, p);
	if (!rc)
		rc = jm_plan_new(p->request, &p->plan, &r->cli->err);
	if (!rc || !p->run)
		return rc;
	why = r->cli->err;
	r->cli->err = (struct jm_err)JM_ERR_INIT;
	return jm_yaml_fail(set && p->wrong_settings ? set->value : p->run->where, rc, &r->cli->err,
		"%s", why.text);
}

static int make_plans(struct jm_run_call *r)
{
	int rc = 0;

	if (r->given.resume) {
		rc = add_planned(r, NULL, 0, NULL);
		if (!rc)
			rc = request_from_store(r, &r->planned[0]);
		if (!rc)
			rc = check_stated(r, "settings");
	}
	for (int i = 0; i < r->n && !rc; i++)
		rc = make_plan(r, &r->planned[i]);
	return rc;
}

/* What a call that was killed has left; a list of cases changes nothing. */
static int recover(struct jm_run_call *r, struct jm_err *err)
{
	int n, rc;

	if (r->given.dry_run)
		return 0;
	rc = jm_guard_recover(&r->cli->ctx, &n, err);
	if (!rc && n)
		jm_log(&r->cli->ctx, JM_INFO, "Restored %d settings of a run that was killed.", n);
	jm_case_reaper_recover(&r->cli->ctx, true); /* two of a case must not run at once */
	return rc;
}

int jm_planned_make(struct jm_run_call *r)
{
	struct jm_err lost = JM_ERR_INIT;
	int lost_rc = recover(r, &lost), rc = make_plans(r);

	if (!rc && lost_rc && any_sets(r, "settings")) /* else the warning is enough */
		rc = jm_err_set(&r->cli->err, lost_rc, "%s", lost.text);
	return rc;
}

int jm_planned_cases(const struct jm_run_call *r)
{
	int n = 0;

	for (int i = 0; i < r->n; i++)
		n += r->planned[i].plan.n * r->planned[i].plan.repeat;
	return n;
}

void jm_planned_done(struct jm_run_call *r)
{
	for (int i = 0; i < r->n; i++) {
		jm_plan_done(&r->planned[i].plan);
		json_decref(r->planned[i].request);
	}
	free(r->planned);
	jm_plan_file_done(&r->file);
}
