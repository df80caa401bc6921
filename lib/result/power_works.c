/* SPDX-License-Identifier: Apache-2.0 */
#include "result/power_works.h"
#include "base/text/json.h"
#include "result/metric.h"

#include <stdio.h>
#include <stdlib.h>

/* The model in the name of a GPU, which ends with its UUID; the whole of other names. */
static size_t model_length(const char *name)
{
	const char *uuid = strstr(name, " GPU-");

	return uuid ? (size_t)(uuid - name) : strlen(name);
}

static bool same_device(const json_t *record, const struct jm_power_query *q)
{
	const char *device = jm_json_text(record, "device");
	const json_t *gpu = json_object_get(record, "ran_on");
	const char *name = gpu ? jm_json_text(gpu, "name")
			       : jm_json_text(json_object_get(record, "provenance"), "cpu");
	size_t n = strlen(q->backend), length = model_length(name);

	if (strncmp(device, q->backend, n) != 0 || (device[n] && device[n] != ':') || !length)
		return false;
	if (json_is_true(json_object_get(gpu, "slice")))
		return !strcmp(name, q->device);
	if (strncmp(name, q->device, length) != 0)
		return false;
	return gpu ? model_length(q->device) == length : strchr(",", q->device[length]) != NULL;
}

/* Of the GPU, or of all processors: without settings that need it, they are not told apart. */
static bool counts(const json_t *meter, const json_t *gpu)
{
	if (gpu)
		return !strcmp(jm_json_text(meter, "id"), jm_json_text(gpu, "meter"));
	return !strcmp(jm_json_text(meter, "scope"), "package") &&
	       json_is_null(json_object_get(meter, "covered_by"));
}

/* NAN: unknown, or an estimate. */
static double watts_of(const json_t *record, bool *ret_simulated)
{
	const json_t *gpu = json_object_get(record, "ran_on"), *meter;
	double sum = 0;
	int n = 0;
	size_t i;

	json_array_foreach(json_object_get(record, "meters"), i, meter)
	{
		const char *origin = jm_json_text(meter, "origin");
		bool simulated = !strcmp(origin, "simulated");
		double watts = jm_json_real_of(meter, "watts_mean");

		if (!counts(meter, gpu))
			continue;
		if (!simulated && strcmp(origin, "measured") != 0)
			return NAN;
		sum += watts;
		n++;
		*ret_simulated = *ret_simulated || simulated;
	}
	return n ? sum : NAN;
}

/* A number of threads or ranks of its own makes another power of the same work. */
static bool is_shared_out(const json_t *record)
{
	const json_t *options = json_object_get(record, "options");
	const char *threads = jm_json_text(options, "threads");
	const char *ranks = jm_json_text(options, "ranks");

	return (*threads && strcmp(threads, "0") != 0) || (*ranks && strcmp(ranks, "1") != 0) ||
	       json_is_object(json_object_get(record, "gang"));
}

static bool read_work(const json_t *record, struct jm_power_work *ret, bool *ret_simulated)
{
	double items = jm_json_real_of(record, "items") / jm_json_real_of(record, "steps");

	ret->flops = items * jm_json_real_of(record, "flops_executed_per_item");
	ret->bytes = items * jm_json_real_of(record, "bytes_per_item");
	ret->seconds = items / jm_json_real_of(record, "throughput");
	ret->watts = watts_of(record, ret_simulated);
	return isfinite(ret->flops + ret->bytes + ret->seconds + ret->watts) && ret->flops > 0 &&
	       ret->bytes > 0 && ret->seconds > 0 && ret->watts > 0;
}

/* JM_POWER_UNFITS: it is fit. */
static enum jm_power_unfit judge(const json_t *record, const struct jm_power_query *q,
	struct jm_power_work *ret, bool *ret_simulated)
{
	if (jm_metric_failed(record))
		return JM_POWER_FAILED;
	if (!same_device(record, q))
		return JM_POWER_DEVICE;
	if (json_integer_value(json_object_get(record, "devices")) != 1)
		return JM_POWER_SEVERAL;
	if (is_shared_out(record))
		return JM_POWER_THREADS;
	if (strcmp(jm_json_text(record, "precision"), q->precision) != 0)
		return JM_POWER_PRECISION;
	if (json_array_size(json_object_get(record, "settings")) ||
		json_is_object(json_object_get(record, "soft")))
		return JM_POWER_SETTINGS;
	return read_work(record, ret, ret_simulated) ? JM_POWER_UNFITS : JM_POWER_UNKNOWN;
}

/* The place of the record's case among the works; -1 = out of memory. */
static int place_of(json_t *places, const json_t *record, struct jm_power_works *works)
{
	const char *id = jm_json_text(json_object_get(record, "case"), "id");
	const json_t *place = json_object_get(places, id);

	if (place)
		return (int)json_integer_value(place);
	if (json_object_set_new_nocheck(places, id, json_integer(works->n)))
		return -1;
	return works->n++;
}

static void add(struct jm_power_work *sum, const struct jm_power_work *one)
{
	sum->flops += one->flops;
	sum->bytes += one->bytes;
	sum->seconds += one->seconds;
	sum->watts += one->watts;
}

static int add_all(const json_t *records, const struct jm_power_query *q, json_t *places, int *runs,
	struct jm_power_works *ret)
{
	const json_t *record;
	size_t i;

	json_array_foreach(records, i, record)
	{
		struct jm_power_work one;
		bool simulated = false;
		enum jm_power_unfit unfit = judge(record, q, &one, &simulated);
		int at;

		ret->n_records++;
		if (unfit != JM_POWER_UNFITS) {
			ret->unfit[unfit]++;
			continue;
		}
		at = place_of(places, record, ret);
		if (at < 0)
			return at;
		add(&ret->work[at], &one);
		runs[at]++;
		ret->n_runs++;
		ret->simulated = ret->simulated || simulated;
	}
	return 0;
}

static void divide(struct jm_power_work *w, int runs)
{
	w->flops /= runs;
	w->bytes /= runs;
	w->seconds /= runs;
	w->watts /= runs;
}

int jm_power_works_of(const json_t *records, const struct jm_power_query *query,
	struct jm_power_works *ret, struct jm_err *err)
{
	size_t most = json_array_size(records) + 1;
	json_t *places = json_object();
	int *runs = calloc(most, sizeof(*runs)), rc = -1;

	*ret = (struct jm_power_works){.work = calloc(most, sizeof(*ret->work))};
	if (places && runs && ret->work)
		rc = add_all(records, query, places, runs, ret);
	for (int i = 0; !rc && i < ret->n; i++)
		divide(&ret->work[i], runs[i]);
	json_decref(places);
	free(runs);
	if (!rc)
		return 0;
	jm_power_works_done(ret);
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the works of %zu records.", most - 1);
}

void jm_power_works_done(struct jm_power_works *works)
{
	free(works->work);
	works->work = NULL;
}

void jm_power_works_text(const struct jm_power_works *works, char *out, size_t size)
{
	static const char *const words[] = {
#define X(name, text) text,
		JM_POWER_UNFIT(X)
#undef X
	};
	size_t n = (size_t)snprintf(out, size, "Of %d run%s %d count%s", works->n_records,
		works->n_records == 1 ? "" : "s", works->n_runs, works->n_runs == 1 ? "s" : "");
	const char *before = ";";

	for (int i = 0; i < JM_POWER_UNFITS && n < size; i++) {
		if (!works->unfit[i])
			continue;
		n += (size_t)snprintf(
			out + n, size - n, "%s %d %s", before, works->unfit[i], words[i]);
		before = ",";
	}
	if (n < size)
		snprintf(out + n, size - n, ".");
}
