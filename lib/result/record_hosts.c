/* SPDX-License-Identifier: Apache-2.0 */
#include "result/record_hosts.h"
#include "base/text/json.h"
#include "result/metric.h"
#include "meter/meter.h"
#include "result/phase_energy.h"

#include <stdio.h>
#include <string.h>

#define ID_SIZE 512

/* A meter's id in the joined record. */
static const char *joined_id(const struct jm_host_part *part, int i, const char *id, char *out)
{
	snprintf(out, ID_SIZE, "%s%s%s", i ? part[i].host : "", i ? "/" : "", id);
	return out;
}

static json_t *meter_of(const json_t *meters, const char *id)
{
	json_t *meter;
	size_t i;

	json_array_foreach(meters, i, meter)
	{
		if (!strcmp(jm_json_text(meter, "id"), id))
			return meter;
	}
	return NULL;
}

/* Is it a real sensor, which two hosts of one machine have in common? */
static bool is_real(const json_t *meter)
{
	const char *origin = jm_json_text(meter, "origin");

	return !strcmp(origin, jm_origin_name(JM_MEASURED)) ||
	       !strcmp(origin, jm_origin_name(JM_ESTIMATED));
}

/* The id in the joined record of the same meter of an earlier part; "" = there is none. */
static void find_twin(const struct jm_host_part *part, int i, const json_t *meter, char *out)
{
	const char *id = jm_json_text(meter, "id");

	*out = '\0';
	for (int k = 0; k < i && is_real(meter) && *part[i].machine; k++)
		if (!strcmp(part[k].machine, part[i].machine) && part[k].record &&
			meter_of(json_object_get(part[k].record, "meters"), id)) {
			joined_id(part, k, id, out);
			return;
		}
}

/* ---- meters ---------------------------------------------------------------------------------- */

static void prefix(json_t *object, const char *key, const struct jm_host_part *part, int i)
{
	char id[ID_SIZE];

	if (*jm_json_text(object, key))
		json_object_set_new(object, key,
			json_string(joined_id(part, i, jm_json_text(object, key), id)));
}

/* What another host of the machine knows of a meter: that its work ran there, or that a meter which
 * only this host reads includes it. True: other meters count now. */
static bool teach_twin(
	json_t *meters, const struct jm_host_part *part, int i, const json_t *own, const char *twin)
{
	const char *cover = jm_json_text(own, "covered_by");
	const json_t *above = meter_of(json_object_get(part[i].record, "meters"), cover);
	json_t *known = meter_of(meters, twin), *joined;
	char id[ID_SIZE], other[ID_SIZE] = "";
	bool used = json_is_true(json_object_get(known, "elsewhere")) &&
		    !json_is_true(json_object_get(own, "elsewhere"));

	if (used)
		json_object_del(known, "elsewhere");
	if (above)
		find_twin(part, i, above, other);
	if (!above || *other)
		return used;
	joined_id(part, i, cover, id);
	if (!*jm_json_text(known, "covered_by"))
		return !json_object_set_new(known, "covered_by", json_string(id));
	/* two meters include it, and what else they have in common is unknown */
	joined = meter_of(meters, id);
	if (joined && !*jm_json_text(joined, "covered_by"))
		json_object_set(joined, "overlaps", json_object_get(known, "covered_by"));
	return true;
}

static bool teach_twins(json_t *meters, const struct jm_host_part *part, int i)
{
	bool changed = false;
	const json_t *own;
	char twin[ID_SIZE];
	size_t k;

	json_array_foreach(json_object_get(part[i].record, "meters"), k, own)
	{
		find_twin(part, i, own, twin);
		if (*twin && teach_twin(meters, part, i, own, twin))
			changed = true;
	}
	return changed;
}

/* Twins go with the meter that they are, as if it included them. */
static int add_meter(json_t *meters, const struct jm_host_part *part, int i, const json_t *own)
{
	json_t *meter = json_copy((json_t *)(uintptr_t)own);
	char twin[ID_SIZE], label[ID_SIZE];

	find_twin(part, i, own, twin);
	prefix(meter, "id", part, i);
	prefix(meter, "covered_by", part, i);
	prefix(meter, "overlaps", part, i);
	snprintf(label, sizeof(label), "%s of %s", jm_json_text(own, "label"), part[i].host);
	json_object_set_new(meter, "label", json_string(label));
	json_object_set_new(meter, "host", json_string(part[i].host));
	if (*twin)
		json_object_set_new(meter, "covered_by", json_string(twin));
	return json_array_append_new(meters, meter);
}

/* ---- totals ---------------------------------------------------------------------------------- */

static bool counts(const json_t *meter, enum jm_origin origin)
{
	return !strcmp(jm_json_text(meter, "origin"), jm_origin_name(origin)) &&
	       !*jm_json_text(meter, "covered_by") &&
	       !json_is_true(json_object_get(meter, "elsewhere"));
}

/* Adds a value to a number of the total; first: the total has none of that origin so far. */
static void add(json_t *total, const char *key, double value, bool first)
{
	double before = jm_json_real_of(total, key);

	json_object_set_new(total, key, jm_json_number(first ? value : before + value));
}

static bool has_origin(const json_t *meters, size_t n, enum jm_origin origin)
{
	for (size_t i = 0; i < n; i++)
		if (counts(json_array_get(meters, i), origin))
			return true;
	return false;
}

/*
 * Adds the energy of the meters from number `from` on, which `values` have, maybe of one phase.
 * What is unknown, or shared by two meters, makes the sum unknown. Uncertainties of hosts are
 * added.
 */
static void add_total(json_t *total, const json_t *meters, size_t from, const json_t *values)
{
	for (int o = 0; o < JM_ORIGIN_COUNT; o++) {
		bool first = !has_origin(meters, from, (enum jm_origin)o);
		char joules[40], error[40];

		snprintf(joules, sizeof(joules), "joules_%s", jm_origin_name((enum jm_origin)o));
		snprintf(
			error, sizeof(error), "error_%s_joules", jm_origin_name((enum jm_origin)o));
		for (size_t i = from; i < json_array_size(meters); i++) {
			const json_t *meter = json_array_get(meters, i);
			const json_t *value = meter_of(values, jm_json_text(meter, "id"));
			bool shared = *jm_json_text(meter, "overlaps") != '\0';

			if (!counts(meter, (enum jm_origin)o))
				continue;
			add(total, joules, shared ? NAN : jm_json_real_of(value, "joules"), first);
			add(total, error, shared ? NAN : jm_json_real_of(value, "error_joules"),
				first);
			first = false;
		}
	}
}

static void forget_totals(json_t *total)
{
	const char *key;
	json_t *value;

	json_object_foreach(total, key, value) json_object_set_new(total, key, json_null());
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* The phase of that name, after as many others of the same name. */
static const json_t *same_phase(const json_t *phases, const json_t *all, size_t which)
{
	const char *name = jm_json_text(json_array_get(all, which), "name");
	const json_t *phase;
	size_t i, before = 0;

	for (i = 0; i < which; i++)
		before += !strcmp(jm_json_text(json_array_get(all, i), "name"), name);
	json_array_foreach(phases, i, phase)
	{
		if (!strcmp(jm_json_text(phase, "name"), name) && !before--)
			return phase;
	}
	return NULL;
}

static void add_phase(json_t *phase, const json_t *other, const json_t *meters, size_t from,
	const struct jm_host_part *part, int i)
{
	json_t *values = json_object_get(phase, "meters"), *value;
	size_t k;

	if (!other) {
		forget_totals(json_object_get(phase, "total"));
		return;
	}
	json_array_foreach(json_object_get(other, "meters"), k, value)
	{
		json_t *copy = json_copy(value);

		prefix(copy, "id", part, i);
		json_array_append_new(values, copy);
	}
	add_total(json_object_get(phase, "total"), meters, from, values);
}

/* ---- totals anew ----------------------------------------------------------------------------- */

/* The sum over all meters, which no longer is what it was before the last part. */
static void sum_again(json_t *record, const struct jm_host_part *part, int i)
{
	const json_t *meters = json_object_get(record, "meters");
	json_t *phases = json_object_get(record, "phases"), *phase;
	bool whole = true;
	size_t p;

	for (int k = 0; k < i; k++)
		whole = whole && part[k].record;
	if (!whole)
		return;
	forget_totals(json_object_get(record, "total"));
	add_total(json_object_get(record, "total"), meters, 0, meters);
	json_array_foreach(phases, p, phase)
	{
		whole = true;
		for (int k = 1; k <= i; k++)
			whole = whole &&
				same_phase(json_object_get(part[k].record, "phases"), phases, p);
		forget_totals(json_object_get(phase, "total"));
		if (whole)
			add_total(json_object_get(phase, "total"), meters, 0,
				json_object_get(phase, "meters"));
	}
}

/* ---- one part -------------------------------------------------------------------------------- */

/* The grade of all is that of the worst: "A" is the best, "none" the worst. */
static void add_quality(json_t *quality, const json_t *other, const char *host)
{
	const char *own = jm_json_text(quality, "grade"), *its = jm_json_text(other, "grade");
	const json_t *reason;
	char text[400];
	size_t i;

	if (*its && (!strcmp(its, "none") || (strcmp(own, "none") != 0 && strcmp(its, own) > 0)))
		json_object_set(quality, "grade", json_object_get(other, "grade"));
	json_array_foreach(json_object_get(other, "reasons"), i, reason)
	{
		snprintf(text, sizeof(text), "%s: %.300s", host, json_string_value(reason));
		json_array_append_new(json_object_get(quality, "reasons"), json_string(text));
	}
}

static bool is_new_machine(const struct jm_host_part *part, int i)
{
	for (int k = 0; k < i && *part[i].machine; k++)
		if (!strcmp(part[k].machine, part[i].machine))
			return false;
	return true;
}

static void add_devices(json_t *record, const struct jm_host_part *part, int i)
{
	json_t *own = json_object_get(json_object_get(record, "provenance"), "devices");

	if (is_new_machine(part, i))
		json_array_extend(own,
			json_object_get(json_object_get(part[i].record, "provenance"), "devices"));
}

static void join(json_t *record, const struct jm_host_part *part, int i)
{
	json_t *meters = json_object_get(record, "meters"),
	       *phases = json_object_get(record, "phases"), *phase;
	size_t from = json_array_size(meters), k;
	const json_t *meter;
	bool again;

	if (!part[i].record) {
		forget_totals(json_object_get(record, "total"));
		return;
	}
	json_array_foreach(json_object_get(part[i].record, "meters"), k, meter)
		add_meter(meters, part, i, meter);
	again = teach_twins(meters, part, i);
	add_total(json_object_get(record, "total"), meters, from, meters);
	json_array_foreach(phases, k, phase)
		add_phase(phase, same_phase(json_object_get(part[i].record, "phases"), phases, k),
			meters, from, part, i);
	if (again)
		sum_again(record, part, i);
	add_devices(record, part, i);
	add_quality(json_object_get(record, "quality"), json_object_get(part[i].record, "quality"),
		part[i].host);
}

static json_t *host_json(const struct jm_host_part *part)
{
	const json_t *phases = json_object_get(part->record, "phases"), *phase;
	json_t *settings = json_object_get(part->record, "settings");
	json_t *times = json_array(), *json = json_object();
	size_t i;

	json_array_foreach(phases, i, phase) json_array_append_new(times,
		json_pack("{s:O, s:o, s:o}", "name", json_object_get(phase, "name"), "start_s",
			jm_json_number(part->start_s + jm_json_real_of(phase, "start_s")), "end_s",
			jm_json_number(part->start_s + jm_json_real_of(phase, "end_s"))));
	jm_json_set_text(&json, "name", part->host);
	jm_json_set(&json, "machine", jm_json_said(part->machine));
	jm_json_set(&json, "ranks", part->ranks);
	jm_json_set_number(&json, "start_s", part->start_s);
	jm_json_set_number(&json, "start_doubt_s", part->doubt_s);
	jm_json_set(&json, "phases", times);
	jm_json_set(&json, "settings", settings ? json_incref(settings) : json_null());
	return json;
}

int jm_record_join(json_t *record, struct jm_host_part *part, int n, struct jm_err *err)
{
	json_t *hosts = json_array(), *meter;
	size_t k;

	for (int i = 0; i < n; i++)
		json_array_append_new(hosts, host_json(&part[i]));
	json_array_foreach(json_object_get(record, "meters"), k, meter)
		json_object_set_new(meter, "host", json_string(part[0].host));
	for (int i = 1; i < n; i++)
		join(record, part, i);
	jm_record_idle_gpus(record);
	jm_record_until_energy(record);
	jm_record_overlap_energy(record);
	if (json_array_size(hosts) == (size_t)n && !json_object_set_new(record, "hosts", hosts))
		return 0;
	json_decref(hosts);
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the record of %d hosts.", n);
}
