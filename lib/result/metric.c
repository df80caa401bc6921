/* SPDX-License-Identifier: Apache-2.0 */
/* What a record means: speed, power, energy per item, and how that compares with a reference. */
#include "result/metric.h"
#include "base/text/json.h"
#include "energy/energy.h"
#include "result/case_id.h"
#include "result/record.h"

#include <math.h>
#include <string.h>

#define JOULES_PER_WH	 3600.0
#define SECONDS_PER_HOUR 3600.0
#define JOULES_PER_KWH	 3.6e6
#define ROUNDING	 1e-12 /* relative */

const struct jm_metric_row jm_metrics[] = {
#define X(name, text, title, unit, better, energy) {text, title, unit, better, energy},
	JM_METRICS(X)
#undef X
};

static bool counts(const json_t *meter)
{
	return !json_is_string(json_object_get(meter, "covered_by")) &&
	       !json_is_true(json_object_get(meter, "elsewhere"));
}

/* Was it read and did the work not run on it? Of the origin that represents the run. */
static bool is_idle_gpu(const json_t *meter, const struct jm_measured *m)
{
	return m->has_energy && !strcmp(jm_json_text(meter, "origin"), jm_origin_name(m->origin)) &&
	       !json_is_string(json_object_get(meter, "covered_by")) &&
	       json_is_true(json_object_get(meter, "elsewhere")) &&
	       !strcmp(jm_json_text(meter, "scope"), jm_scope_name(JM_SCOPE_GPU));
}

static bool topmost_of(const json_t *meter, enum jm_origin origin)
{
	return !strcmp(jm_json_text(meter, "origin"), jm_origin_name(origin)) && counts(meter);
}

static int count_meters(const json_t *record, enum jm_origin origin)
{
	const json_t *meter;
	size_t i;
	int n = 0;

	json_array_foreach(json_object_get(record, "meters"), i, meter) n +=
		topmost_of(meter, origin);
	return n;
}

bool jm_metric_simulated(const json_t *record)
{
	return !strcmp(jm_json_text(record, "clock"), "simulated") ||
	       jm_case_simulated(jm_json_text(record, "device"));
}

/* Which meters represent this run: those of one origin, never a mixture. */
static bool speaks(const json_t *record, enum jm_origin origin, struct jm_measured *m)
{
	m->n_meters = count_meters(record, origin);
	m->has_energy = m->n_meters > 0;
	m->origin = origin;
	return m->has_energy;
}

static void choose_origin(const json_t *record, struct jm_measured *m)
{
	if (jm_metric_simulated(record) && speaks(record, JM_SIMULATED, m))
		return;
	for (int i = 0; i < JM_ORIGIN_COUNT; i++)
		if (speaks(record, jm_origin_order[i], m))
			return;
}

/* Does another meter that counts share a part of this one? */
static bool shares(const json_t *record, const json_t *meter, enum jm_origin origin)
{
	const char *id = jm_json_text(meter, "overlaps");
	const json_t *other =
		*id ? jm_json_find(json_object_get(record, "meters"), "id", id) : NULL;

	return other && topmost_of(other, origin);
}

/* Sum of a field over the topmost meters of the chosen origin; NAN as soon as one is unknown, or
 * when two share a part. */
static double sum_meters(const json_t *record, const struct jm_measured *m, const char *key)
{
	const json_t *meter;
	double sum = 0;
	size_t i;

	if (!m->n_meters)
		return NAN;
	json_array_foreach(json_object_get(record, "meters"), i, meter)
	{
		if (topmost_of(meter, m->origin))
			sum += shares(record, meter, m->origin) ? NAN : jm_json_real_of(meter, key);
	}
	return sum;
}

/* The same of the GPUs on which the work did not run; 0 = there is none. */
static double sum_idle(const json_t *record, const struct jm_measured *m, const char *key)
{
	const json_t *meter;
	double sum = 0;
	size_t i;

	json_array_foreach(json_object_get(record, "meters"), i, meter)
	{
		if (is_idle_gpu(meter, m))
			sum += jm_json_real_of(meter, key);
	}
	return sum;
}

/* The total of the session has precedence (the session knows which meters overlap in part). */
static double total_joules(const json_t *record, const struct jm_measured *m)
{
	const json_t *total = json_object_get(record, "total");
	char key[32] = "joules_";

	if (!m->has_energy)
		return NAN;
	strncat(key, jm_origin_name(m->origin), sizeof(key) - strlen(key) - 1);
	if (json_object_get(total, key))
		return jm_json_real_of(total, key);
	return sum_meters(record, m, "joules");
}

bool jm_metric_origin(const json_t *record, enum jm_origin *ret)
{
	struct jm_measured m = {.has_energy = false};

	choose_origin(record, &m);
	if (m.has_energy)
		*ret = m.origin;
	return m.has_energy;
}

double jm_metric_joules(const json_t *record, enum jm_origin *ret_origin)
{
	struct jm_measured m = {.has_energy = false};

	choose_origin(record, &m);
	*ret_origin = m.origin;
	return total_joules(record, &m);
}

void jm_record_idle_gpus(json_t *record)
{
	struct jm_measured m = {.has_energy = false};
	const json_t *meter;
	double joules;
	size_t i;
	int n = 0;

	choose_origin(record, &m);
	json_array_foreach(json_object_get(record, "meters"), i, meter) n += is_idle_gpu(meter, &m);
	if (!n)
		return;
	joules = sum_idle(record, &m, "joules");
	jm_record_set(record, "idle_gpus",
		json_pack("{s:i, s:o, s:o, s:o}", "n", n, "watts",
			jm_json_number(sum_idle(record, &m, "watts_mean")), "joules",
			jm_json_number(joules), "joules_with",
			jm_json_number(total_joules(record, &m) + joules)));
}

static const json_t *main_phase(const json_t *record)
{
	return jm_json_find(
		json_object_get(record, "phases"), "name", jm_json_text(record, "phase"));
}

/* Items, seconds and seconds per item of the phase that the energy applies to. In a record of
 * `measure` this is the whole command, while the throughput may be that of the marked stretch
 * within it. */
static void measure_work(const json_t *record, struct jm_measured *m)
{
	const json_t *phase = main_phase(record);
	bool whole = !strcmp(jm_json_text(record, "phase"), "command");
	double throughput = whole ? NAN : jm_json_real_of(record, "throughput");
	double devices = jm_json_real_of(record, "devices");

	m->seconds = jm_json_real_of(phase, "end_s") - jm_json_real_of(phase, "start_s");
	m->items = jm_json_real_of(phase, "items");
	if (isnan(m->seconds))
		m->seconds = jm_json_real_of(record, "wall_s");
	if (!(m->items > 0))
		m->items = jm_json_real_of(record, "items");
	if (!(m->items > 0) && !*jm_json_text(record, "unit"))
		m->items = 1;
	if (!(throughput > 0) && m->seconds > 0)
		throughput = m->items / m->seconds;
	if (!(throughput > 0))
		throughput = NAN;
	m->seconds_item = 1 / throughput;
	m->value[JM_M_THROUGHPUT] = throughput;
	if (!whole)
		m->value[JM_M_THROUGHPUT_DEVICE] = jm_json_real_of(record, "throughput_per_device");
	if (isnan(m->value[JM_M_THROUGHPUT_DEVICE]) && devices > 0)
		m->value[JM_M_THROUGHPUT_DEVICE] = throughput / devices;
}

static double node_watts(const json_t *record, const struct jm_measured *m, const char *key,
	double add_watts, bool idle_gpus)
{
	return sum_meters(record, m, key) + (idle_gpus ? sum_idle(record, m, key) : 0) + add_watts;
}

/* Is an earlier host of the list the same machine? */
static bool is_known_machine(const json_t *hosts, size_t n, const char *machine)
{
	for (size_t i = 0; *machine && i < n; i++)
		if (!strcmp(jm_json_text(json_array_get(hosts, i), "machine"), machine))
			return true;
	return false;
}

int jm_metric_nodes(const json_t *record)
{
	const json_t *hosts = json_object_get(record, "hosts"), *host;
	size_t i;
	int n = 0;

	json_array_foreach(hosts, i, host) n +=
		!is_known_machine(hosts, i, jm_json_text(host, "machine"));
	return n ? n : 1;
}

static void measure_energy(
	const json_t *record, double node_rest_watts, bool idle_gpus, struct jm_measured *m)
{
	double add_watts = node_rest_watts * jm_metric_nodes(record), e;

	choose_origin(record, m);
	m->joules = total_joules(record, m) + (idle_gpus ? sum_idle(record, m, "joules") : 0) +
		    add_watts * (add_watts > 0 ? m->seconds : 0);
	m->value[JM_M_WATTS] = m->joules / m->seconds;
	if (isnan(m->value[JM_M_WATTS]))
		m->value[JM_M_WATTS] = node_watts(record, m, "watts_mean", add_watts, idle_gpus);
	m->value[JM_M_WATTS_MEDIAN] = node_watts(record, m, "watts_median", add_watts, idle_gpus);
	m->value[JM_M_WATTS_P99] = node_watts(record, m, "watts_p99", add_watts, idle_gpus);
	m->value[JM_M_WATTS_MAX] = node_watts(record, m, "watts_max", add_watts, idle_gpus);
	m->value[JM_M_HOURS] = m->seconds / SECONDS_PER_HOUR;
	m->value[JM_M_KWH] = m->joules / JOULES_PER_KWH;
	e = m->joules / m->items;
	if (!(e > 0))
		return;
	m->value[JM_M_JOULES_ITEM] = e;
	m->value[JM_M_WH_ITEM] = e / JOULES_PER_WH;
	m->value[JM_M_ITEMS_JOULE] = 1 / e;
	m->value[JM_M_ITEMS_WH] = JOULES_PER_WH / e;
	m->value[JM_M_EDP] = e * m->seconds_item;
	m->value[JM_M_ED2P] = e * m->seconds_item * m->seconds_item;
}

static double mean_utilisation(const json_t *meter)
{
	return jm_json_real_of(jm_json_find(json_object_get(meter, "signals"), "quantity",
				       jm_quantity_name(JM_Q_UTILISATION)),
		"mean");
}

/* Of the GPUs on which the work ran; unknown as soon as it is of one of them. */
static void measure_gpus(const json_t *record, struct jm_measured *m)
{
	const json_t *meter;
	double watts = 0, load = 0;
	size_t i;
	int n = 0;

	json_array_foreach(json_object_get(record, "meters"), i, meter)
	{
		if (strcmp(jm_json_text(meter, "scope"), jm_scope_name(JM_SCOPE_GPU)) != 0 ||
			strcmp(jm_json_text(meter, "origin"), jm_origin_name(m->origin)) != 0 ||
			json_is_true(json_object_get(meter, "elsewhere")))
			continue;
		watts += jm_json_real_of(meter, "watts_mean");
		load += mean_utilisation(meter);
		n++;
	}
	if (n && m->has_energy) {
		m->value[JM_M_WH_GPU_HOUR] = watts / n;
		m->value[JM_M_GPU_LOAD] = 100 * load / n;
	}
}

/* Of requests that were answered; unknown in records of other work. */
static void measure_serving(const json_t *record, struct jm_measured *m)
{
	const json_t *serving = json_object_get(record, "serving");
	const json_t *ttft = json_object_get(serving, "ttft"),
		     *tpot = json_object_get(serving, "tpot");

	m->value[JM_M_TTFT_P50] = jm_json_real_of(ttft, "p50");
	m->value[JM_M_TTFT_P99] = jm_json_real_of(ttft, "p99");
	m->value[JM_M_TPOT_P50] = jm_json_real_of(tpot, "p50");
	m->value[JM_M_TPOT_P99] = jm_json_real_of(tpot, "p99");
	m->value[JM_M_LATENCY_P99] = jm_json_real_of(json_object_get(serving, "latency"), "p99");
	m->value[JM_M_GOODPUT] = jm_json_real_of(serving, "goodput");
}

bool jm_metric_failed(const json_t *record)
{
	const json_t *exit_status = json_object_get(record, "exit_status");

	if (json_is_string(json_object_get(record, "status")))
		return strcmp(jm_json_text(record, "status"), "ok") != 0;
	return json_is_number(exit_status) && json_number_value(exit_status) != 0;
}

/* Does the fault mean that readings were impossible? Missing readings only make the energy
 * unknown. */
static bool tells_impossible(const char *fault)
{
	static const enum jm_fault_kind harmless[] = {
		JM_FAULT_NONE, JM_FAULT_COUNTER_RESET, JM_FAULT_NO_READINGS};

	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (!strcmp(fault, jm_fault_name(harmless[i])))
			return false;
	return *fault != 0;
}

bool jm_metric_faulty(const json_t *record)
{
	const json_t *meter;
	size_t i;

	json_array_foreach(json_object_get(record, "meters"), i, meter)
	{
		if (tells_impossible(jm_json_text(meter, "fault")) && counts(meter))
			return true;
	}
	return false;
}

void jm_metric_measure(
	const json_t *record, double add_watts, bool idle_gpus, struct jm_measured *ret)
{
	struct jm_measured m = {.seconds_item = NAN, .items = NAN, .seconds = NAN, .joules = NAN};

	for (int i = 0; i < JM_M_ALL; i++)
		m.value[i] = NAN;
	if (!jm_metric_failed(record)) {
		measure_work(record, &m);
		measure_energy(record, add_watts, idle_gpus, &m);
		measure_gpus(record, &m);
		measure_serving(record, &m);
	}
	*ret = m;
}

double jm_metric_eds(double k, double energy_ratio, double time_ratio)
{
	return (k - 1) / k * energy_ratio + time_ratio / k;
}

/* EDS_k = 1 - ((k-1) dE - dT) / k with dE = 1 - e/e_ref and dT = d/d_ref - 1, so k = 2 gives dE -
 * dT. */
double jm_metric_gain_minus_loss(double energy_ratio, double time_ratio)
{
	return 200 * (1 - jm_metric_eds(2, energy_ratio, time_ratio));
}

/* 1 where they differ by the last digits of a double only: that is rounding, no gain of 1.85e-15
 * %. */
static double ratio(double a, double b)
{
	return fabs(a - b) <= ROUNDING * fabs(b) ? 1 : a / b;
}

void jm_metric_relate(
	struct jm_measured *m, const struct jm_measured *ref, const double *k, int n_k)
{
	double energy, time;

	if (!ref)
		return;
	energy = ratio(m->value[JM_M_JOULES_ITEM], ref->value[JM_M_JOULES_ITEM]);
	time = ratio(m->seconds_item, ref->seconds_item);
	m->value[JM_M_GAIN] = 100 * (1 - energy);
	m->value[JM_M_LOSS] = 100 * (time - 1);
	m->value[JM_M_GAIN_LOSS] = jm_metric_gain_minus_loss(energy, time);
	for (int i = 0; i < n_k && i < JM_METRIC_MAX_K; i++)
		m->value[JM_M_EDS + i] = jm_metric_eds(k[i], energy, time);
}
