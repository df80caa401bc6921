/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA GPUs: one meter per GPU of this job, known by its UUID, and its memory where the driver tells.
 * What changes slowly is asked for ten times a second at most, and the energy counter when read_budget.h says:
 * an H200's driver computes for 2 to 6 ms to tell it. In between they repeat their reading, with its old
 * time. All power of a GPU comes in one call to the driver, of microseconds.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "meter/read_budget.h"
#include "meter/source.h"
#include "nvml_probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOW_NS	  (100 * JM_MILLISECOND)
#define MAX_SLOTS 12
/* A time stamp further off than this is not believed. */
#define STAMP_SLACK_NS (5 * JM_SECOND)

struct slot {
	const struct jm_nvml_probe *probe;
	long long stamp_us; /* of the driver, for the reading below */
	struct jm_reading last;
};

struct gpu {
	jm_nvml_device handle;
	char label[64];
	bool lost;
	/* the slots: fast fields, slow ones up to n_fields, the counter if it is a field, then calls */
	int n_slots, n_fast, n_fields;
	int counter; /* -1 = none */
	struct jm_read_pace pace;
	struct slot slot[MAX_SLOTS];
	int out[MAX_SLOTS]; /* where in the source's readings each slot goes */
	struct jm_nvml_value value[MAX_SLOTS];
};

struct state {
	struct jm_ctx *ctx;
	struct jm_nvml nvml;
	int n;
	int64_t slow_ns; /* when the slow ones were last asked for */
	struct jm_read_budget budget;
	struct gpu gpu[];
};

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
	const struct jm_nvml_probe *probes, size_t n, struct jm_meters *set, struct jm_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct jm_nvml_probe *p = &probes[i];
		struct jm_signal signal = jm_nvml_signal(jm_nvml_sensor_of(info), p->quantity);
		int rc;

		if (has(g, p->scope, p->quantity) || g->n_slots == MAX_SLOTS ||
			!jm_nvml_answers(&s->nvml, info, p))
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

static bool any_answers(const struct state *s, const struct jm_nvml_gpu *info,
	const struct jm_nvml_probe *probes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (jm_nvml_answers(&s->nvml, info, &probes[i]))
			return true;
	return false;
}

static int add_memory(struct state *s, struct gpu *g, const struct jm_nvml_gpu *info,
	struct jm_meters *set, struct jm_err *err)
{
	char covers[192];
	struct jm_meter meter = {.source = "nvml",
		.scope = JM_SCOPE_GPU_MEMORY,
		.origin = JM_MEASURED,
		.covers = covers};
	int rc;

	if (!any_answers(s, info, jm_nvml_memory_probes, JM_NVML_MEMORY_PROBES))
		return 0;
	snprintf(meter.id, sizeof(meter.id), "nvml:%.100s/memory", info->uuid);
	snprintf(meter.label, sizeof(meter.label), "GPU %d memory", info->index);
	snprintf(meter.device, sizeof(meter.device), "%s", info->uuid);
	snprintf(meter.driver, sizeof(meter.driver), "%.47s", s->nvml.driver);
	snprintf(covers, sizeof(covers), "gpu/%s/memory", info->uuid);
	rc = jm_meters_add(set, &meter, err);
	return rc < 0 ? rc
		      : add_signals(
				s, g, info, jm_nvml_memory_probes, JM_NVML_MEMORY_PROBES, set, err);
}

/* The order of struct gpu: one call of the driver takes a beginning. */
static int rank(const struct jm_nvml_probe *p)
{
	if (!p->field)
		return 3;
	return p->quantity == JM_Q_ENERGY ? 2 : p->slow;
}

static void sort_slots(struct gpu *g, int first_out)
{
	struct slot sorted[MAX_SLOTS];
	int n = 0;

	g->counter = -1;
	for (int pass = 0; pass <= 3; pass++) {
		for (int i = 0; i < g->n_slots; i++) {
			if (rank(g->slot[i].probe) != pass)
				continue;
			if (g->slot[i].probe->quantity == JM_Q_ENERGY)
				g->counter = n;
			sorted[n] = g->slot[i];
			g->out[n++] = first_out + i;
		}
		if (pass == 0)
			g->n_fast = n;
		if (pass == 1)
			g->n_fields = n;
	}
	memcpy(g->slot, sorted, sizeof(sorted[0]) * (size_t)n);
	for (int i = 0; i < n; i++) {
		g->value[i].field = g->slot[i].probe->field;
		g->value[i].scope = g->slot[i].probe->scope;
	}
}

static int add_gpu(struct state *s, const struct jm_nvml_gpu *info, struct jm_meters *set,
	int first_out, struct jm_err *err)
{
	const struct jm_nvml_sensor *sensor = jm_nvml_sensor_of(info);
	struct gpu *g = &s->gpu[s->n];
	char covers[192];
	struct jm_meter meter = {
		.source = "nvml", .scope = JM_SCOPE_GPU, .origin = JM_MEASURED, .covers = covers};
	int rc;

	snprintf(meter.id, sizeof(meter.id), "nvml:%.110s", info->uuid);
	snprintf(meter.label, sizeof(meter.label), "%s", info->label);
	snprintf(meter.device, sizeof(meter.device), "%s", info->uuid);
	snprintf(meter.bus, sizeof(meter.bus), "%.23s", info->bus_id);
	snprintf(meter.driver, sizeof(meter.driver), "%.47s", s->nvml.driver);
	snprintf(covers, sizeof(covers), "gpu/%s", info->uuid);
	g->handle = info->handle;
	memcpy(g->label, info->label, sizeof(g->label));
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = add_signals(s, g, info, jm_nvml_gpu_probes, JM_NVML_GPU_PROBES, set, err);
	if (rc >= 0)
		rc = add_memory(s, g, info, set, err);
	if (rc < 0)
		return rc;
	sort_slots(g, first_out);
	if (g->counter >= 0)
		jm_read_pace_init(&g->pace, &s->budget, sensor->counter_ms * JM_MILLISECOND);
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
		"None of the %d NVIDIA GPUs belongs to this job (%s); --source nvml:all uses all "
		"of them.",
		gpus->n, gpus->why);
}

static void nvml_close(void *state)
{
	struct state *s = state;

	if (s)
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

/* Of every GPU that is asked in this way. */
static void mark_stamped(const struct state *s, struct jm_meters *set, int first_signal,
	const struct jm_nvml_probe *probe, bool stamped)
{
	for (int i = 0; i < s->n; i++)
		for (int k = 0; k < s->gpu[i].n_slots; k++)
			if (s->gpu[i].slot[k].probe == probe)
				set->signal[first_signal + s->gpu[i].out[k]].stamped = stamped;
}

static bool is_field(const struct gpu *g, int slot)
{
	return g->slot[slot].probe->field != 0;
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
	/* fast fields, and the counter, which stands behind the slow ones */
	int n = first->n_fields +
		(first->counter == first->n_fields && is_field(first, first->counter));

	for (int call = 0; call < 3; call++) {
		if (call)
			nanosleep(&moment, NULL);
		if (!n || s->nvml.fields(first->handle, n, first->value))
			return;
		for (int k = 0; k < n; k++) {
			stands[k] = stands[k] || (call && first->value[k].stamp_us == before[k]);
			before[k] = first->value[k].stamp_us;
		}
	}
	for (int k = 0; k < n; k++)
		if (!first->slot[k].probe->slow)
			mark_stamped(s, set, first_signal, first->slot[k].probe,
				stands[k] && before[k] > 0);
}

static int nvml_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct jm_nvml nvml;
	struct state *s = NULL;
	int first_signal = set->n_signals, rc;

	rc = jm_nvml_open(&nvml, err);
	if (rc)
		return rc;
	rc = open_gpus(ctx, &nvml, jm_values_number(options, "all") != 0, set, &s, err);
	if (rc) {
		jm_nvml_close(&nvml);
		return rc;
	}
	for (int i = 0; i < s->n; i++)
		s->gpu[i].pace.always = jm_values_number(options, "raw") != 0;
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
		"%s is lost: the driver cannot reach it any more. Its readings end here; those of "
		"the others continue.",
		g->label);
}

/* The fields of n slots from `first` on, by one call. */
static void read_fields(struct state *s, struct gpu *g, int first, int n)
{
	int64_t offset = jm_clock_wall(s->ctx->clock) - jm_ctx_now(s->ctx), now;
	int rc = s->nvml.fields(g->handle, n, &g->value[first]);

	now = jm_ctx_now(s->ctx);
	if (rc == JM_NVML_GPU_IS_LOST) {
		lose(s, g, now);
		return;
	}
	if (rc) {
		forget(g, first, first + n, now);
		return;
	}
	for (int i = first; i < first + n; i++) {
		struct slot *slot = &g->slot[i];
		double value = jm_nvml_number(&g->value[i]) * slot->probe->scale;

		value = jm_nvml_plausible(slot->probe->quantity, value);
		slot->last.t_ns = time_of(slot, &g->value[i], value, offset, now);
		slot->last.value = value;
		if (g->value[i].rc == JM_NVML_GPU_IS_LOST) {
			lose(s, g, now);
			return;
		}
	}
}

static void read_call(struct state *s, struct gpu *g, int i)
{
	struct slot *slot = &g->slot[i];
	const struct jm_nvml_probe *p = slot->probe;

	slot->last.value = jm_nvml_plausible(p->quantity, p->call(&s->nvml, g->handle));
	slot->last.t_ns = jm_ctx_now(s->ctx);
}

static void read_calls(struct state *s, struct gpu *g, bool slow)
{
	for (int i = g->n_fields; i < g->n_slots; i++)
		if (i != g->counter && (slow || !g->slot[i].probe->slow))
			read_call(s, g, i);
}

static void read_counter(struct state *s, struct gpu *g)
{
	int64_t begin = jm_ctx_now(s->ctx), before = jm_clock_thread();

	if (is_field(g, g->counter))
		read_fields(s, g, g->counter, 1);
	else
		read_call(s, g, g->counter);
	jm_read_pace_told(&g->pace, &s->budget, begin, jm_ctx_now(s->ctx),
		jm_clock_thread() - before, g->slot[g->counter].last.value);
}

/* Those that are due, each once, the most urgent first: a slow reading delays the next. */
static void read_counters(struct state *s)
{
	int64_t round = jm_ctx_now(s->ctx);

	for (;;) {
		int64_t now = jm_ctx_now(s->ctx);
		struct gpu *next = NULL;

		for (int i = 0; i < s->n; i++) {
			struct gpu *g = &s->gpu[i];

			if (g->lost || g->counter < 0 || g->pace.last_begin >= round ||
				!jm_read_pace_wants(&g->pace, &s->budget, now))
				continue;
			if (!next ||
				jm_read_pace_urgency(&g->pace) < jm_read_pace_urgency(&next->pace))
				next = g;
		}
		if (!next)
			return;
		read_counter(s, next);
	}
}

/* All but the counter. */
static void read_gpu(struct state *s, struct gpu *g, bool slow)
{
	int n = slow ? g->n_fields : g->n_fast;

	if (!g->lost && n)
		read_fields(s, g, 0, n);
	if (!g->lost)
		read_calls(s, g, slow);
}

static void end_of_lost(struct state *s, struct gpu *g)
{
	forget(g, 0, g->n_slots, jm_ctx_now(s->ctx));
	if (g->counter >= 0)
		jm_read_pace_drop(&g->pace, &s->budget);
}

static int nvml_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	int64_t now = jm_ctx_now(s->ctx);
	bool slow = now - s->slow_ns >= SLOW_NS - JM_MILLISECOND;

	(void)err;
	if (slow)
		s->slow_ns = now;
	for (int i = 0; i < s->n; i++)
		read_gpu(s, &s->gpu[i], slow);
	read_counters(s);
	for (int i = 0; i < s->n; i++) {
		struct gpu *g = &s->gpu[i];

		if (g->lost)
			end_of_lost(s, g);
		for (int k = 0; k < g->n_slots; k++)
			sink->give(sink, g->out[k], 1, &g->slot[k].last);
	}
	return 0;
}

static bool nvml_edge(void *state, enum jm_edge edge)
{
	struct state *s = state;
	bool watching = false;

	for (int i = 0; i < s->n; i++) {
		if (s->gpu[i].counter < 0 || s->gpu[i].lost)
			continue;
		if (edge != JM_EDGE_ON)
			jm_read_pace_edge(&s->gpu[i].pace, edge == JM_EDGE_BEGINS);
		watching = watching || jm_read_pace_watches(&s->gpu[i].pace);
	}
	return watching;
}

static int64_t nvml_due(void *state)
{
	struct state *s = state;
	int64_t first = JM_FOREVER;

	for (int i = 0; i < s->n; i++) {
		int64_t due = s->gpu[i].counter < 0 || s->gpu[i].lost
				      ? JM_FOREVER
				      : jm_read_pace_due(&s->gpu[i].pace);

		first = due < first ? due : first;
	}
	return first;
}

/* ---- doctor ------------------------------------------------------------------------------------------ */

static void say_gpu(const struct jm_nvml *nvml, const struct jm_nvml_gpus *gpus, int i,
	jm_finding_fn *say, void *arg)
{
	const struct jm_nvml_gpu *g = &gpus->gpu[i];
	const struct jm_nvml_sensor *sensor = jm_nvml_sensor_of(g);
	char why[400];
	struct jm_finding f = {.ok = g->allocated, .what = g->label, .why = why, .mend = ""};
	size_t used = (size_t)snprintf(why, sizeof(why), "%s:", g->uuid);

	if (!g->allocated) {
		snprintf(why, sizeof(why), "%s does not belong to this job (%s)", g->uuid,
			gpus->why);
		f.mend = "--source nvml:all measures it nevertheless";
	}
	for (size_t p = 0; g->allocated && p < JM_NVML_GPU_PROBES && used < sizeof(why); p++)
		if (jm_nvml_gpu_probes[p].field && jm_nvml_answers(nvml, g, &jm_nvml_gpu_probes[p]))
			used += (size_t)snprintf(why + used, sizeof(why) - used, " %s,",
				jm_quantity_name(jm_nvml_gpu_probes[p].quantity));
	if (g->allocated && used < sizeof(why)) {
		if (sensor->refresh_ms)
			snprintf(why + used, sizeof(why) - used,
				" a reading every %d ms over %d ms", sensor->refresh_ms,
				sensor->window_ms);
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

static const struct jm_option options[] = {
	{.name = "all", .type = JM_FLAG, .help = "all GPUs, not only those of this job"},
	{.name = "raw",
		.type = JM_FLAG,
		.help = "read the energy counter at every interval, even if reading it is slow"},
	{0},
};

const struct jm_source jm_source_nvml = {
	.name = "nvml",
	.summary = "NVIDIA GPUs: energy counter, power, limits, clocks, temperature, utilisation",
	.options = options,
	.origin = JM_MEASURED,
	.open = nvml_open,
	.read = nvml_read,
	.close = nvml_close,
	.edge = nvml_edge,
	.due = nvml_due,
	.doctor = nvml_doctor,
};
