/* SPDX-License-Identifier: Apache-2.0 */
#include "result/record_jobs.h"
#include "base/text/json.h"
#include "result/record.h"
#include "result/record_hosts.h"
#include "result/record_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

json_t *jm_record_job(const char *name)
{
	const char *id = name ? name : secure_getenv("SLURM_JOB_ID");
	const char *step = name ? NULL : secure_getenv("SLURM_STEP_ID");

	if (!id || !*id)
		return NULL;
	return json_pack("{s:s, s:s?, s:i}", "id", id, "step", step, "process", (int)getpid());
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Seconds since 1970 of "2026-01-31T12:00:00.123Z"; NAN = no such time. */
static double wall_of(const char *text)
{
	struct tm tm = {0};
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	double part = rest && *rest == '.' ? strtod(rest, NULL) : 0;

	return rest ? (double)timegm(&tm) + part : NAN;
}

static const json_t *main_phase(const json_t *record)
{
	return jm_json_find(
		json_object_get(record, "phases"), "name", jm_json_text(record, "phase"));
}

/* False: it belongs to no job, or its time is not known. */
static bool read_part(const json_t *record, size_t at, struct jm_part *ret)
{
	const json_t *job = json_object_get(record, "job"), *phase = main_phase(record);
	const json_t *from = json_object_get(record, "provenance");
	double start = jm_json_real_of(record, "start_ns") * 1e-9;
	const char *boot = jm_json_text(from, "boot_id");

	*ret = (struct jm_part){.record = record, .at = at, .group = -1};
	ret->job = jm_json_text(job, "id");
	ret->step = jm_json_text(job, "step");
	ret->process = json_integer_value(json_object_get(job, "process"));
	ret->host = jm_json_text(from, "host");
	ret->machine = *boot ? boot : ret->host;
	ret->t0 = start + jm_json_real_of(phase, "start_s");
	ret->t1 = start + jm_json_real_of(phase, "end_s");
	ret->wall0 = wall_of(jm_json_text(record, "started"));
	ret->wall1 = ret->wall0 + (ret->t1 - ret->t0);
	return *ret->job && ret->process > 0 && ret->t1 > ret->t0 && isfinite(ret->wall1) &&
	       json_is_array(json_object_get(record, "meters"));
}

static int by_job_and_time(const void *pa, const void *pb)
{
	const struct jm_part *a = pa, *b = pb;
	int order = strcmp(a->job, b->job);

	order = order ? order : strcmp(a->step, b->step);
	if (!order)
		order = (a->wall0 > b->wall0) - (a->wall0 < b->wall0);
	return order ? order : (a->at > b->at) - (a->at < b->at);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Of one run; open ones are in an array. */
struct group {
	int number, last; /* last: index of its newest part */
	double end;
};

static bool has_process(const struct jm_part *part, int last, const struct jm_part *one)
{
	for (int i = last; i >= 0; i = part[i].before)
		if (part[i].process == one->process && !strcmp(part[i].machine, one->machine))
			return true;
	return false;
}

static bool same_job(const struct jm_part *a, const struct jm_part *b)
{
	return !strcmp(a->job, b->job) && !strcmp(a->step, b->step);
}

/* Those that this part and later ones can still belong to. Returns how many. */
static int keep_open(
	const struct jm_part *part, struct group *open, int n, const struct jm_part *one)
{
	int kept = 0;

	for (int i = 0; i < n; i++)
		if (open[i].end > one->wall0 && same_job(&part[open[i].last], one))
			open[kept++] = open[i];
	return kept;
}

/* Parts are in order of job and time; each goes into the group with which it has most time in
 * common. open: room for n */
static void find_groups(struct jm_part *part, int n, struct group *open)
{
	int groups = 0, n_open = 0;

	for (int i = 0; i < n; i++) {
		struct jm_part *one = &part[i];
		struct group *best = NULL;

		n_open = keep_open(part, open, n_open, one);
		for (int k = 0; k < n_open; k++)
			if ((!best || fmin(open[k].end, one->wall1) > best->end) &&
				!has_process(part, open[k].last, one))
				best = &open[k];
		if (!best) {
			best = &open[n_open++];
			*best = (struct group){groups++, -1, one->wall1};
		}
		one->group = best->number;
		one->before = best->last;
		best->last = i;
		best->end = fmax(best->end, one->wall1);
	}
}

/* ---- one run --------------------------------------------------------------------------------- */

/* Of all parts; NAN = one does not know it. */
static double sum_of(const struct jm_part *part, int n, const char *key)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += jm_json_real_of(part[i].record, key);
	return sum;
}

static bool same_unit(const struct jm_part *part, int n)
{
	for (int i = 1; i < n; i++)
		if (strcmp(jm_json_text(part[i].record, "unit"),
			    jm_json_text(part[0].record, "unit")) != 0)
			return false;
	return true;
}

static void add_results(json_t *record, const struct jm_part *part, int n, double span)
{
	static const char *const sums[] = {"user_s", "system_s", "items", "throughput"};
	json_t *phase = json_array_get(json_object_get(record, "phases"), 0);

	for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
		jm_record_set(record, sums[i],
			jm_json_number(
				i < 2 || same_unit(part, n) ? sum_of(part, n, sums[i]) : NAN));
	json_object_set(phase, "items", json_object_get(record, "items"));
	jm_record_set(record, "wall_s", jm_json_number(span));
	json_object_del(record, "wall_least_s");
	for (int i = 0; i < n; i++) {
		static const char *const failed[] = {
			"status", "reason", "failure", "exit_status", "signal"};
		const char *status = jm_json_text(part[i].record, "status");
		bool fails = *status ? strcmp(status, "ok") != 0
				     : json_integer_value(
					       json_object_get(part[i].record, "exit_status")) != 0;

		for (size_t k = 0; fails && k < sizeof(failed) / sizeof(failed[0]); k++)
			if (json_object_get(part[i].record, failed[k]))
				json_object_set(record, failed[k],
					json_object_get(part[i].record, failed[k]));
		if (fails)
			break;
	}
	json_object_set_new(record, "job",
		json_pack("{s:s, s:s?, s:n, s:i}", "id", part[0].job, "step",
			*part[0].step ? part[0].step : NULL, "process", "parts", n));
}

static int list_machines(const struct jm_part *part, int n, int *first)
{
	int machines = 0;

	for (int i = 0; i < n; i++) {
		bool known = false;

		for (int k = 0; k < machines; k++)
			known = known || !strcmp(part[first[k]].machine, part[i].machine);
		if (!known)
			first[machines++] = i;
	}
	return machines;
}

static json_t *numbers_of(const struct jm_part *part, int n, const char *machine)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		if (!strcmp(part[i].machine, machine))
			json_array_append_new(list, json_integer(i));
	return list;
}

/* From the first begin to the last end; of one machine by its own clock. */
static double span_of(const struct jm_part *part, int n, bool one_machine)
{
	double t0 = INFINITY, t1 = -INFINITY;

	for (int i = 0; i < n; i++) {
		t0 = fmin(t0, one_machine ? part[i].t0 : part[i].wall0);
		t1 = fmax(t1, one_machine ? part[i].t1 : part[i].wall1);
	}
	return t1 - t0;
}

/* The parts of one run, in order of time; NULL: an error */
static json_t *join(const struct jm_part *part, int n, struct jm_err *err)
{
	int *first = calloc((size_t)n, sizeof(*first));
	int machines = first ? list_machines(part, n, first) : 0, rc = first ? 0 : -1;
	struct jm_host_part *host = calloc((size_t)n, sizeof(*host));
	double span = span_of(part, n, machines == 1);
	json_t **of = calloc((size_t)n, sizeof(json_t *)), *joined = NULL;

	for (int i = 0; host && of && i < machines; i++) {
		of[i] = jm__machine_record(part, n, first[i], span);
		host[i] = (struct jm_host_part){.host = part[first[i]].host,
			.machine = part[first[i]].machine,
			.record = of[i],
			.ranks = numbers_of(part, n, part[first[i]].machine),
			.start_s = part[first[i]].wall0 - part[0].wall0,
			.doubt_s = NAN};
	}
	if (!host || !of || rc)
		jm_err_set(err, JM_ENOMEM, "Out of memory for the parts of a job.");
	else if (machines == 1 || !jm_record_join(of[0], host, machines, err))
		joined = json_incref(of[0]);
	if (joined)
		add_results(joined, part, n, span);
	for (int i = 0; of && i < machines; i++)
		json_decref(of[i]);
	if (host && machines == 1)
		json_decref(host[0].ranks);
	free(of);
	free(host);
	free(first);
	return joined;
}

/* ---- all records ----------------------------------------------------------------------------- */

static int by_group(const void *pa, const void *pb)
{
	const struct jm_part *a = pa, *b = pb;

	if (a->group != b->group)
		return a->group - b->group;
	return by_job_and_time(pa, pb);
}

/* Joins part [first, first + n) into the place of the one that was given first. */
static int join_group(
	const struct jm_part *part, int n, json_t **at, size_t *home, struct jm_err *err)
{
	size_t place = part[0].at;
	json_t *joined = join(part, n, err);

	if (!joined)
		return err->code;
	for (int i = 0; i < n; i++)
		place = part[i].at < place ? part[i].at : place;
	for (int i = 0; i < n; i++) {
		json_decref(at[part[i].at]);
		at[part[i].at] = NULL;
		home[part[i].at] = place;
	}
	at[place] = joined;
	return 0;
}

static int join_groups(
	struct jm_part *part, int n, json_t **at, struct jm_joined *ret, struct jm_err *err)
{
	int rc = 0;

	qsort(part, (size_t)n, sizeof(*part), by_group);
	for (int first = 0, k; first < n && !rc; first += k) {
		for (k = 1; first + k < n && part[first + k].group == part[first].group; k++)
			;
		if (k == 1)
			continue;
		rc = join_group(&part[first], k, at, ret->place, err);
		ret->n_parts += k;
		ret->n_runs++;
	}
	return rc;
}

/* What is left, and where each record went. Takes the records. */
static void close_up(json_t **at, size_t n, struct jm_joined *ret)
{
	for (size_t i = 0, next = 0; i < n; i++) {
		ret->place[i] = at[i] ? next++ : ret->place[ret->place[i]];
		if (at[i])
			json_array_append_new(ret->records, at[i]);
	}
}

int jm_record_join_jobs(const json_t *records, struct jm_joined *ret, struct jm_err *err)
{
	size_t n = json_array_size(records);
	struct jm_part *part = calloc(n + 1, sizeof(*part));
	struct group *open = calloc(n + 1, sizeof(*open));
	json_t **at = calloc(n + 1, sizeof(json_t *));
	int parts = 0, rc = 0;

	*ret = (struct jm_joined){json_array(), calloc(n + 1, sizeof(*ret->place)), 0, 0};
	if (!part || !at || !open || !ret->records || !ret->place)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the parts of jobs.");
	for (size_t i = 0; !rc && i < n; i++) {
		at[i] = json_incref(json_array_get(records, i));
		ret->place[i] = i;
		parts += read_part(at[i], i, &part[parts]);
	}
	if (!rc && parts > 1) {
		qsort(part, (size_t)parts, sizeof(*part), by_job_and_time);
		find_groups(part, parts, open);
		rc = join_groups(part, parts, at, ret, err);
	}
	if (at && ret->records && ret->place)
		close_up(at, n, ret);
	free(at);
	free(open);
	free(part);
	return rc;
}
