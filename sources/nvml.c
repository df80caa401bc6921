/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA GPUs: one meter per GPU of this job, known by its UUID, and its memory where the driver tells.
 * Power and energy of a GPU come in one call to the driver; what changes slowly is asked for ten times a
 * second at most and repeats its reading, with its old time, in between.
 */
#include "clock.h"
#include "source.h"
#include "vendor/nvml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOW_NS	  (100 * JM_MILLISECOND)
#define MAX_SLOTS 12
/* A time stamp further off than this is not believed. */
#define STAMP_SLACK_NS (5 * JM_SECOND)

/* Where a signal of a GPU comes from: a field, or a call of its own. */
struct probe {
	enum jm_quantity quantity;
	unsigned int field, scope; /* field 0 = a call */
	bool slow;
	double scale; /* of a field: to SI */
	double (*call)(const struct jm_nvml *nvml, jm_nvml_device device);
};

struct slot {
	const struct probe *probe;
	long long stamp_us; /* of the driver, for the reading below */
	struct jm_reading last;
};

struct gpu {
	jm_nvml_device handle;
	char label[64];
	bool lost;
	int n_slots, n_fast, n_fields; /* fast fields, all fields, then calls */
	struct slot slot[MAX_SLOTS];
	int out[MAX_SLOTS]; /* where in the source's readings each slot goes */
	struct jm_nvml_value value[MAX_SLOTS];
};

struct state {
	struct jm_ctx *ctx;
	struct jm_nvml nvml;
	int n;
	int64_t slow_ns; /* when the slow ones were last asked for */
	struct gpu gpu[];
};

/* In order of preference: the first row of a quantity that answers is taken. */
static const struct probe gpu_probes[] = {
	{JM_Q_ENERGY, JM_NVML_ENERGY, JM_NVML_SCOPE_GPU, false, 1e-3, NULL},
	{JM_Q_POWER, JM_NVML_POWER_INSTANT, JM_NVML_SCOPE_GPU, false, 1e-3, NULL},
	{JM_Q_POWER_AVERAGE, JM_NVML_POWER_AVERAGE, JM_NVML_SCOPE_GPU, false, 1e-3, NULL},
	{JM_Q_LIMIT, JM_NVML_LIMIT_CURRENT, JM_NVML_SCOPE_GPU, true, 1e-3, NULL},
	{JM_Q_LIMIT_REQUESTED, JM_NVML_LIMIT_REQUESTED, JM_NVML_SCOPE_GPU, true, 1e-3, NULL},
	{JM_Q_ENERGY, 0, 0, false, 1, jm_nvml_get_energy},
	{JM_Q_POWER, 0, 0, false, 1, jm_nvml_get_power},
	{JM_Q_POWER_AVERAGE, 0, 0, false, 1, jm_nvml_get_power},
	{JM_Q_LIMIT, 0, 0, true, 1, jm_nvml_get_limit_enforced},
	{JM_Q_LIMIT_REQUESTED, 0, 0, true, 1, jm_nvml_get_limit},
	{JM_Q_CLOCK, 0, 0, true, 1, jm_nvml_get_clock},
	{JM_Q_MEMORY_CLOCK, 0, 0, true, 1, jm_nvml_get_memory_clock},
	{JM_Q_TEMPERATURE, 0, 0, true, 1, jm_nvml_get_temperature},
	{JM_Q_UTILISATION, 0, 0, true, 1, jm_nvml_get_utilisation},
	{JM_Q_THROTTLE, 0, 0, true, 1, jm_nvml_get_throttle},
};

static const struct probe memory_probes[] = {
	{JM_Q_POWER, JM_NVML_POWER_INSTANT, JM_NVML_SCOPE_MEMORY, false, 1e-3, NULL},
	{JM_Q_POWER_AVERAGE, JM_NVML_POWER_AVERAGE, JM_NVML_SCOPE_MEMORY, false, 1e-3, NULL},
};
#define N_GPU_PROBES	(sizeof(gpu_probes) / sizeof(gpu_probes[0]))
#define N_MEMORY_PROBES (sizeof(memory_probes) / sizeof(memory_probes[0]))

/* ---- finding out what answers -------------------------------------------------------------------- */

static bool is_power(enum jm_quantity quantity)
{
	return quantity == JM_Q_POWER || quantity == JM_Q_POWER_AVERAGE;
}

/* Does a GPU's nvmlDeviceGetPowerUsage speak of the last second? (nvml.h: Ampere and newer, not GA100) */
static bool usage_is_average(const struct jm_nvml_gpu *g)
{
	return g->architecture >= JM_NVML_AMPERE && g->capability != 80;
}

/* No GPU draws 0 W: a zero is a sensor that does not tell. */
static double plausible(enum jm_quantity quantity, double value)
{
	return is_power(quantity) && !(value > 0) ? NAN : value;
}

static bool answers(const struct state *s, const struct jm_nvml_gpu *g, const struct probe *p)
{
	struct jm_nvml_value v = {.field = p->field, .scope = p->scope, .rc = JM_NVML_UNKNOWN};

	/* GH200's counter speaks of the whole module, not of the GPU (ml-energy/zeus issue 172) */
	if (p->quantity == JM_Q_ENERGY && strstr(g->name, "GH200"))
		return false;
	if (!p->field) {
		if (p->call == jm_nvml_get_power &&
			(p->quantity == JM_Q_POWER_AVERAGE) != usage_is_average(g))
			return false;
		return !isnan(p->call(&s->nvml, g->handle));
	}
	if (!s->nvml.fields || s->nvml.fields(g->handle, 1, &v))
		return false;
	/* boards without a sensor for it answer 0 for their memory; for the GPU it is a passing zero */
	if (p->scope == JM_NVML_SCOPE_MEMORY)
		return jm_nvml_number(&v) > 0;
	return !isnan(jm_nvml_number(&v));
}

/* What is known of a signal's timing. */
static struct jm_signal signal_of(const struct jm_nvml_sensor *sensor, enum jm_quantity quantity)
{
	struct jm_signal signal = {.quantity = quantity, .window_ns = -1, .accuracy = NAN};

	switch (quantity) {
	case JM_Q_ENERGY:
		signal.step = 1e-3;
		signal.refresh_ns = sensor->counter_ms * JM_MILLISECOND;
		signal.window_ns = 0;
		signal.accuracy = sensor->accuracy;
		break;
	case JM_Q_POWER:
	case JM_Q_POWER_AVERAGE:
		signal.step = 1e-3;
		signal.refresh_ns = sensor->refresh_ms * JM_MILLISECOND;
		signal.window_ns = quantity == JM_Q_POWER ? sensor->window_ms : sensor->average_ms;
		if (signal.window_ns > 0)
			signal.window_ns *= JM_MILLISECOND;
		signal.accuracy = sensor->accuracy;
		break;
	case JM_Q_CLOCK:
	case JM_Q_MEMORY_CLOCK:
		signal.step = 1e6;
		break;
	case JM_Q_TEMPERATURE:
		signal.step = 1;
		break;
	case JM_Q_UTILISATION:
		signal.step = 0.01;
		break;
	default:
		break;
	}
	return signal;
}

/* ---- opening --------------------------------------------------------------------------------------- */

static bool has(const struct gpu *g, unsigned int scope, enum jm_quantity quantity)
{
	for (int i = 0; i < g->n_slots; i++)
		if (g->slot[i].probe->quantity == quantity && g->slot[i].probe->scope == scope)
			return true;
	return false;
}

/* Adds the signals of the probes that answer to the meter added last. */
static int add_signals(struct state *s, struct gpu *g, const struct jm_nvml_gpu *info,
	const struct probe *probes, size_t n, struct jm_meters *set, struct jm_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct probe *p = &probes[i];
		struct jm_signal signal = signal_of(jm_nvml_sensor_of(info), p->quantity);
		int rc;

		if (has(g, p->scope, p->quantity) || g->n_slots == MAX_SLOTS ||
			!answers(s, info, p))
			continue;
		rc = jm_meters_add_signal(set, &signal, err);
		if (rc < 0)
			return rc;
		g->slot[g->n_slots].probe = p;
		g->slot[g->n_slots].last.value = NAN;
		g->n_slots++;
	}
	return 0;
}

static bool any_answers(
	const struct state *s, const struct jm_nvml_gpu *info, const struct probe *probes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (answers(s, info, &probes[i]))
			return true;
	return false;
}

static int add_memory(struct state *s, struct gpu *g, const struct jm_nvml_gpu *info,
	struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {
		.source = "nvml", .scope = JM_SCOPE_GPU_MEMORY, .origin = JM_MEASURED};
	int rc;

	if (!any_answers(s, info, memory_probes, N_MEMORY_PROBES))
		return 0;
	snprintf(meter.id, sizeof(meter.id), "nvml:%.100s/memory", info->uuid);
	snprintf(meter.label, sizeof(meter.label), "GPU %d memory", info->index);
	snprintf(meter.device, sizeof(meter.device), "%s", info->uuid);
	snprintf(meter.covers, sizeof(meter.covers), "gpu/%s/memory", info->uuid);
	rc = jm_meters_add(set, &meter, err);
	return rc < 0 ? rc : add_signals(s, g, info, memory_probes, N_MEMORY_PROBES, set, err);
}

/* Fast fields first, then slow ones, then calls, so that one call of the driver takes a beginning. */
static void sort_slots(struct gpu *g, int first_out)
{
	struct slot sorted[MAX_SLOTS];
	int out[MAX_SLOTS], n = 0;

	for (int pass = 0; pass < 3; pass++) {
		for (int i = 0; i < g->n_slots; i++) {
			const struct probe *p = g->slot[i].probe;

			if ((!p->field ? 2 : p->slow ? 1 : 0) != pass)
				continue;
			sorted[n] = g->slot[i];
			out[n++] = first_out + i;
		}
		if (pass == 0)
			g->n_fast = n;
		if (pass == 1)
			g->n_fields = n;
	}
	memcpy(g->slot, sorted, sizeof(sorted[0]) * (size_t)n);
	memcpy(g->out, out, sizeof(out[0]) * (size_t)n);
	for (int i = 0; i < g->n_fields; i++) {
		g->value[i].field = g->slot[i].probe->field;
		g->value[i].scope = g->slot[i].probe->scope;
	}
}

static int add_gpu(struct state *s, const struct jm_nvml_gpu *info, struct jm_meters *set,
	int first_out, struct jm_err *err)
{
	struct gpu *g = &s->gpu[s->n];
	struct jm_meter meter = {.source = "nvml", .scope = JM_SCOPE_GPU, .origin = JM_MEASURED};
	int rc;

	snprintf(meter.id, sizeof(meter.id), "nvml:%.110s", info->uuid);
	snprintf(meter.label, sizeof(meter.label), "%s", info->label);
	snprintf(meter.device, sizeof(meter.device), "%s", info->uuid);
	snprintf(meter.covers, sizeof(meter.covers), "gpu/%s", info->uuid);
	g->handle = info->handle;
	memcpy(g->label, info->label, sizeof(g->label));
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = add_signals(s, g, info, gpu_probes, N_GPU_PROBES, set, err);
	if (rc >= 0)
		rc = add_memory(s, g, info, set, err);
	if (rc < 0)
		return rc;
	sort_slots(g, first_out);
	s->n++;
	return g->n_slots;
}

static int add_gpus(struct state *s, const struct jm_nvml_gpus *gpus, bool all,
	struct jm_meters *set, struct jm_err *err)
{
	int out = 0;

	for (int i = 0; i < gpus->n; i++) {
		int rc;

		if (!all && !gpus->gpu[i].allocated)
			continue;
		rc = add_gpu(s, &gpus->gpu[i], set, out, err);
		if (rc < 0)
			return rc;
		out += rc;
	}
	if (s->n)
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"None of the %d NVIDIA GPUs belongs to this job (%s); --source nvml:all takes them "
		"all.",
		gpus->n, gpus->why);
}

static void nvml_close(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	jm_nvml_close(&s->nvml);
	free(s);
}

static int open_gpus(struct jm_ctx *ctx, struct jm_nvml *nvml, bool all, struct jm_meters *set,
	struct state **ret, struct jm_err *err)
{
	struct jm_nvml_gpus gpus;
	struct state *s;
	int rc = jm_nvml_gpus_open(nvml, &gpus, err);

	if (rc)
		return rc;
	if (*gpus.note)
		jm_log(ctx, JM_WARNING, "%s", gpus.note);
	if (!all && gpus.n_allocated && gpus.n_allocated < gpus.n)
		jm_log(ctx, JM_INFO, "%d of %d GPUs belong to this job (%s).", gpus.n_allocated,
			gpus.n, gpus.why);
	s = calloc(1, sizeof(*s) + (size_t)gpus.n * sizeof(s->gpu[0]));
	if (s) {
		s->ctx = ctx;
		s->nvml = *nvml;
		s->slow_ns = INT64_MIN / 2;
		rc = add_gpus(s, &gpus, all, set, err);
	} else {
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for %d GPUs.", gpus.n);
	}
	jm_nvml_gpus_done(&gpus);
	if (rc)
		free(s);
	else
		*ret = s;
	return rc;
}

/*
 * Does the driver stamp a field when it is asked, or when its sensor changed? A stamp that stays the same
 * from one call to the next, a moment later, is the sensor's. One GPU speaks for all.
 */
static void learn_stamps(struct state *s, struct jm_meters *set, int first_signal)
{
	const struct timespec moment = {.tv_nsec = 1000000};
	long long before[MAX_SLOTS] = {0};
	bool stands[MAX_SLOTS] = {false};
	struct gpu *first = &s->gpu[0];

	for (int call = 0; call < 3; call++) {
		if (call)
			nanosleep(&moment, NULL);
		if (!first->n_fast || s->nvml.fields(first->handle, first->n_fast, first->value))
			return;
		for (int k = 0; k < first->n_fast; k++) {
			stands[k] = stands[k] || (call && first->value[k].stamp_us == before[k]);
			before[k] = first->value[k].stamp_us;
		}
	}
	for (int i = 0; i < s->n; i++)
		for (int k = 0; k < s->gpu[i].n_fast && k < first->n_fast; k++)
			set->signal[first_signal + s->gpu[i].out[k]].stamped =
				stands[k] && before[k] > 0;
}

static int nvml_open(struct jm_ctx *ctx, const char *arg, struct jm_meters *set, void **ret_state,
	struct jm_err *err)
{
	struct jm_nvml nvml;
	struct state *s = NULL;
	int first_signal = set->n_signals, rc;

	if (*arg && strcmp(arg, "all") != 0)
		return jm_err_set(err, JM_EUSAGE,
			"The source nvml takes 'nvml' for this job's GPUs or 'nvml:all', not "
			"'nvml:%s'.",
			arg);
	rc = jm_nvml_open(&nvml, err);
	if (rc)
		return rc;
	rc = open_gpus(ctx, &nvml, *arg != '\0', set, &s, err);
	if (rc) {
		jm_nvml_close(&nvml);
		return rc;
	}
	learn_stamps(s, set, first_signal);
	*ret_state = s;
	return 0;
}

/* ---- reading ---------------------------------------------------------------------------------------- */

/*
 * The driver's stamp as time of our clock. offset: wall minus monotonic time, now. A stamp that stands
 * still with its value is the same reading and keeps its time to the nanosecond.
 */
static int64_t time_of(
	struct slot *slot, const struct jm_nvml_value *v, double value, int64_t offset, int64_t now)
{
	int64_t t = v->stamp_us * 1000 - offset;

	if (v->stamp_us == slot->stamp_us && value == slot->last.value)
		return slot->last.t_ns;
	slot->stamp_us = v->stamp_us;
	if (t > now || t < now - STAMP_SLACK_NS)
		t = now;
	/* the wall clock may have been set back; readings never go back in time */
	if (t <= slot->last.t_ns)
		t = slot->last.t_ns < now ? slot->last.t_ns + 1 : now;
	return t;
}

static void forget(struct gpu *g, int first, int last, int64_t now)
{
	for (int i = first; i < last; i++)
		g->slot[i].last = (struct jm_reading){.value = NAN, .t_ns = now};
}

static void lose(struct state *s, struct gpu *g, int64_t now)
{
	g->lost = true;
	forget(g, 0, g->n_slots, now);
	jm_log(s->ctx, JM_WARNING,
		"%s is lost: the driver cannot reach it any more. Its readings end here; the "
		"others go on.",
		g->label);
}

static void read_fields(struct state *s, struct gpu *g, int n, int64_t now)
{
	int64_t offset = jm_clock_wall(s->ctx->clock) - jm_ctx_now(s->ctx);
	int rc = s->nvml.fields(g->handle, n, g->value);

	now = jm_ctx_now(s->ctx);
	if (rc == JM_NVML_GPU_IS_LOST) {
		lose(s, g, now);
		return;
	}
	if (rc) {
		forget(g, 0, n, now);
		return;
	}
	for (int i = 0; i < n; i++) {
		struct slot *slot = &g->slot[i];
		double value = jm_nvml_number(&g->value[i]) * slot->probe->scale;

		value = plausible(slot->probe->quantity, value);
		slot->last.t_ns = time_of(slot, &g->value[i], value, offset, now);
		slot->last.value = value;
		if (g->value[i].rc == JM_NVML_GPU_IS_LOST) {
			lose(s, g, now);
			return;
		}
	}
}

static void read_calls(struct state *s, struct gpu *g, bool slow)
{
	for (int i = g->n_fields; i < g->n_slots; i++) {
		struct slot *slot = &g->slot[i];
		const struct probe *p = slot->probe;

		if (p->slow && !slow)
			continue;
		slot->last.value = plausible(p->quantity, p->call(&s->nvml, g->handle));
		slot->last.t_ns = jm_ctx_now(s->ctx);
	}
}

static int nvml_read(void *state, struct jm_reading *out, struct jm_err *err)
{
	struct state *s = state;
	int64_t now = jm_ctx_now(s->ctx);
	bool slow = now - s->slow_ns >= SLOW_NS - JM_MILLISECOND;

	(void)err;
	if (slow)
		s->slow_ns = now;
	for (int i = 0; i < s->n; i++) {
		struct gpu *g = &s->gpu[i];
		int n = slow ? g->n_fields : g->n_fast;

		if (!g->lost && n)
			read_fields(s, g, n, now);
		if (!g->lost)
			read_calls(s, g, slow);
		else
			forget(g, 0, g->n_slots, now);
		for (int k = 0; k < g->n_slots; k++)
			out[g->out[k]] = g->slot[k].last;
	}
	return 0;
}

/* ---- doctor ------------------------------------------------------------------------------------------ */

static void say_gpu(const struct jm_nvml *nvml, const struct jm_nvml_gpus *gpus, int i,
	jm_finding_fn *say, void *arg)
{
	const struct jm_nvml_gpu *g = &gpus->gpu[i];
	const struct jm_nvml_sensor *sensor = jm_nvml_sensor_of(g);
	const struct state s = {.nvml = *nvml};
	char why[400];
	struct jm_finding f = {.ok = g->allocated, .what = g->label, .why = why, .mend = ""};
	size_t used = (size_t)snprintf(why, sizeof(why), "%s:", g->uuid);

	if (!g->allocated) {
		snprintf(why, sizeof(why), "%s is not this job's (%s)", g->uuid, gpus->why);
		f.mend = "--source nvml:all takes it nevertheless";
	}
	for (size_t p = 0; g->allocated && p < N_GPU_PROBES && used < sizeof(why); p++)
		if (gpu_probes[p].field && answers(&s, g, &gpu_probes[p]))
			used += (size_t)snprintf(why + used, sizeof(why) - used, " %s,",
				jm_quantity_name(gpu_probes[p].quantity));
	if (g->allocated && used < sizeof(why)) {
		if (sensor->refresh_ms)
			snprintf(why + used, sizeof(why) - used, " a reading each %d ms over %d ms",
				sensor->refresh_ms, sensor->window_ms);
		else
			snprintf(why + used, sizeof(why) - used,
				" of a sensor whose timing is not known");
	}
	say(arg, &f);
}

static void say_library(const struct jm_nvml *nvml, jm_finding_fn *say, void *arg)
{
	char why[256];
	struct jm_finding f = {.ok = true, .what = "NVML", .why = why, .mend = ""};

	snprintf(why, sizeof(why), "driver %s, library %s",
		*nvml->driver ? nvml->driver : "unknown",
		*nvml->version ? nvml->version : "unknown");
	say(arg, &f);
}

static void nvml_doctor(struct jm_ctx *ctx, jm_finding_fn *say, void *arg)
{
	struct jm_nvml nvml;
	struct jm_nvml_gpus gpus;
	struct jm_err err = JM_ERR_INIT;
	struct jm_finding f = {.what = "NVIDIA GPUs", .why = err.text, .mend = ""};

	(void)ctx;
	if (jm_nvml_open(&nvml, &err)) {
		say(arg, &f);
		return;
	}
	say_library(&nvml, say, arg);
	if (jm_nvml_gpus_open(&nvml, &gpus, &err)) {
		say(arg, &f);
	} else {
		for (int i = 0; i < gpus.n; i++)
			say_gpu(&nvml, &gpus, i, say, arg);
		jm_nvml_gpus_done(&gpus);
	}
	jm_nvml_close(&nvml);
}

const struct jm_source jm_source_nvml = {
	.name = "nvml",
	.summary = "NVIDIA GPUs: energy counter, power, limits, clocks, temperature, utilisation",
	.argument = "all",
	.origin = JM_MEASURED,
	.open = nvml_open,
	.read = nvml_read,
	.close = nvml_close,
	.doctor = nvml_doctor,
};
