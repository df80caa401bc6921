/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA GPUs: one meter per GPU of this job, known by its UUID, its memory where the driver tells,
 * and the module of a Grace board.
 * What changes slowly is asked for ten times a second at most, and the energy counter when
 * read_budget.h says: an H200's driver computes for 2 to 6 ms to tell it. In between they repeat
 * their reading, with its old time. All power of a GPU comes in one call to the driver, of
 * microseconds. The times for which clocks were held back are read so seldom that this costs at
 * most a thousandth of a processor, and activity, which is read only on request, a hundredth: an
 * H200's driver computes for 2 ms to tell it.
 * A call for one GPU that does not return leaves the others readable: see `leave` in source.h.
 */
#include "base/clock.h"
#include "base/ctx.h"
#include "nvml_activity.h"
#include "nvml_open.h"
#include "nvml_samples.h"
#include "nvml_sensors.h"
#include "nvml_state.h"
#include "vendor/nvml_gpus.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SLOW_NS (100 * JM_MILLISECOND)
/* Shares of a processor that seldom readings may cost. */
#define TIMES_SHARE    1000
#define ACTIVITY_SHARE 100
/* A time stamp further off than this is not believed. */
#define STAMP_SLACK_NS (5 * JM_SECOND)

/* ---- reading --------------------------------------------------------------------------------- */

/*
 * The driver's stamp as time of our clock. offset: wall minus monotonic time, now. A stamp that
 * stands still with its value is the same reading and keeps its time to the nanosecond.
 */
static int64_t time_of(struct jm_nvml_slot *slot, const struct jm_nvml_value *v, double value,
	int64_t offset, int64_t now)
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

static void forget(struct jm_nvml_board *g, int first, int last, int64_t now)
{
	for (int i = first; i < last; i++)
		g->slot[i].last = (struct jm_reading){.value = NAN, .t_ns = now};
}

/* Nothing is asked of it in this poll. */
static bool rests(const struct jm_nvml_board *g)
{
	return g->lost || g->left;
}

static void lose(struct jm_nvml_state *s, struct jm_nvml_board *g, int64_t now)
{
	g->lost = true;
	forget(g, 0, g->n_slots, now);
	jm_log(s->ctx, JM_WARNING,
		"%s is lost: the driver cannot reach it any more. Its readings end here; those of "
		"the others continue.",
		g->label);
}

/* The fields of n slots from `first` on, by one call. */
static void read_fields(struct jm_nvml_state *s, struct jm_nvml_board *g, int first, int n)
{
	int64_t offset = jm_clock_wall(s->ctx->clock) - jm_ctx_now(s->ctx), now;
	int rc;

	jm_nvml_call_begin(g);
	rc = s->nvml.fields(g->handle, n, &g->value[first]);
	jm_nvml_call_end(g);
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
		struct jm_nvml_slot *slot = &g->slot[i];
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

static void read_call(struct jm_nvml_state *s, struct jm_nvml_board *g, int i)
{
	struct jm_nvml_slot *slot = &g->slot[i];
	const struct jm_nvml_probe *p = slot->probe;
	double value;

	jm_nvml_call_begin(g);
	value = p->call(&s->nvml, g->handle);
	jm_nvml_call_end(g);
	slot->last.value = jm_nvml_plausible(p->quantity, value);
	slot->last.t_ns = jm_ctx_now(s->ctx);
}

static void read_calls(struct jm_nvml_state *s, struct jm_nvml_board *g, bool slow)
{
	for (int i = g->begin[JM_NVML_CALL]; i < g->begin[JM_NVML_TIME]; i++)
		if (i != g->counter && (slow || !g->slot[i].probe->slow))
			read_call(s, g, i);
}

static void read_counter(struct jm_nvml_state *s, struct jm_nvml_board *g)
{
	int64_t begin = jm_ctx_now(s->ctx), before = jm_clock_thread();

	if (jm_nvml_is_field(g, g->counter))
		read_fields(s, g, g->counter, 1);
	else
		read_call(s, g, g->counter);
	jm_read_pace_told(&g->pace, &s->budget, begin, jm_ctx_now(s->ctx),
		jm_clock_thread() - before, g->slot[g->counter].last.value);
}

/* Those that are due, each once, the most urgent first: a slow reading delays the next. */
static void read_counters(struct jm_nvml_state *s)
{
	int64_t round = jm_ctx_now(s->ctx);

	for (;;) {
		int64_t now = jm_ctx_now(s->ctx);
		struct jm_nvml_board *next = NULL;

		for (int i = 0; i < s->n; i++) {
			struct jm_nvml_board *g = &s->gpu[i];

			if (rests(g) || g->counter < 0 || g->pace.last_begin >= round ||
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

/* Reads all fields but the counter. */
static void read_gpu(struct jm_nvml_state *s, struct jm_nvml_board *g, bool slow)
{
	int n = g->begin[slow ? JM_NVML_COUNTER : JM_NVML_SLOW];

	if (!rests(g) && n)
		read_fields(s, g, 0, n);
	if (!rests(g))
		read_calls(s, g, slow);
}

static int64_t seldom(int64_t now, int64_t period, int64_t cost, int share)
{
	if (period < cost * share)
		period = cost * share;
	return now + period - JM_MILLISECOND;
}

static void read_times(struct jm_nvml_state *s, int64_t now)
{
	int64_t before = jm_clock_thread();

	for (int i = 0; i < s->n; i++) {
		struct jm_nvml_board *g = &s->gpu[i];
		int n = g->begin[JM_NVML_ACTIVITY] - g->begin[JM_NVML_TIME];

		if (!rests(g) && n)
			read_fields(s, g, g->begin[JM_NVML_TIME], n);
	}
	s->next_times = seldom(now, SLOW_NS, jm_clock_thread() - before, TIMES_SHARE);
}

static void read_activity(struct jm_nvml_state *s, int64_t now)
{
	int64_t before = jm_clock_thread();
	double value[JM_NVML_ACTIVITIES];

	for (int i = 0; i < s->n; i++) {
		struct jm_nvml_board *g = &s->gpu[i];

		int rc;

		if (rests(g) || g->begin[JM_NVML_ACTIVITY] == g->begin[JM_NVML_SAMPLES])
			continue;
		now = jm_ctx_now(s->ctx);
		jm_nvml_call_begin(g);
		rc = jm_nvml_sampler_read(&s->nvml, g->handle, &g->sampler, now, value);
		jm_nvml_call_end(g);
		if (rc == JM_NVML_GPU_IS_LOST) {
			lose(s, g, now);
			continue;
		}
		for (int k = 0; k < JM_NVML_ACTIVITIES; k++)
			g->slot[g->begin[JM_NVML_ACTIVITY] + k].last =
				(struct jm_reading){.value = value[k], .t_ns = now};
	}
	s->next_activity =
		seldom(now, JM_NVML_ACTIVITY_NS, jm_clock_thread() - before, ACTIVITY_SHARE);
}

static bool has_samples(const struct jm_nvml_board *g)
{
	return g->begin[JM_NVML_SAMPLES] < g->begin[JM_NVML_KINDS];
}

static void read_samples(struct jm_nvml_state *s, struct jm_sink *sink, int64_t now)
{
	for (int i = 0; i < s->n; i++)
		if (has_samples(&s->gpu[i]) && !rests(&s->gpu[i]) &&
			jm_nvml_samples_read(s, &s->gpu[i], sink) == JM_NVML_GPU_IS_LOST)
			lose(s, &s->gpu[i], now);
	s->next_samples = now + JM_NVML_SAMPLES_NS - JM_MILLISECOND;
}

static void end_of_lost(struct jm_nvml_state *s, struct jm_nvml_board *g)
{
	forget(g, 0, g->n_slots, jm_ctx_now(s->ctx));
	if (g->counter >= 0)
		jm_read_pace_drop(&g->pace, &s->budget);
}

/* A call for it that was given up: nothing is known after its last readings, until that call has
 * returned. */
static void end_of_left(struct jm_nvml_state *s, struct jm_nvml_board *g)
{
	for (int i = 0; i < g->n_slots; i++)
		if (!isnan(g->slot[i].last.value))
			forget(g, i, i + 1, g->slot[i].last.t_ns + 1);
	if (g->counter >= 0)
		jm_read_pace_drop(&g->pace, &s->budget);
}

static void look_for_left(struct jm_nvml_state *s, struct jm_nvml_board *g)
{
	bool before = g->left;

	g->left = atomic_load(&g->call_ns) == JM_NVML_LEFT;
	if (g->left && !before)
		jm_log(s->ctx, JM_WARNING,
			"nvml: The driver does not return from a reading of %s; see the kernel's "
			"log. What it has used since then is unknown until the driver returns; the "
			"readings of the others continue.",
			g->label);
	else if (before && !g->left)
		jm_log(s->ctx, JM_WARNING, "nvml: The driver answers for %s again.", g->label);
}

static int nvml_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct jm_nvml_state *s = state;
	int64_t now = jm_ctx_now(s->ctx);
	bool slow = now - s->slow_ns >= SLOW_NS - JM_MILLISECOND;

	(void)err;
	if (slow)
		s->slow_ns = now;
	for (int i = 0; i < s->n; i++)
		look_for_left(s, &s->gpu[i]);
	for (int i = 0; i < s->n; i++)
		read_gpu(s, &s->gpu[i], slow);
	read_counters(s);
	if (now >= s->next_times)
		read_times(s, now);
	if (now >= s->next_activity)
		read_activity(s, now);
	if (now >= s->next_samples)
		read_samples(s, sink, now);
	for (int i = 0; i < s->n; i++) {
		struct jm_nvml_board *g = &s->gpu[i];

		if (g->lost)
			end_of_lost(s, g);
		else if (g->left)
			end_of_left(s, g);
		for (int k = 0; k < g->n_slots; k++)
			if (rests(g) || g->slot[k].kind != JM_NVML_SAMPLES)
				jm_give_all(sink, g->out[k], 1, &g->slot[k].last);
	}
	return 0;
}

static bool nvml_edge(void *state, enum jm_edge edge)
{
	struct jm_nvml_state *s = state;
	bool watching = false;

	for (int i = 0; i < s->n; i++) {
		if (s->gpu[i].counter < 0 || rests(&s->gpu[i]))
			continue;
		if (edge != JM_EDGE_ON)
			jm_read_pace_edge(&s->gpu[i].pace, edge == JM_EDGE_BEGINS);
		watching = watching || jm_read_pace_watches(&s->gpu[i].pace);
	}
	return watching;
}

static int64_t nvml_due(void *state)
{
	struct jm_nvml_state *s = state;
	int64_t first = JM_FOREVER;

	for (int i = 0; i < s->n; i++) {
		int64_t due = s->gpu[i].counter < 0 || rests(&s->gpu[i])
				      ? JM_FOREVER
				      : jm_read_pace_due(&s->gpu[i].pace);

		first = due < first ? due : first;
	}
	return first;
}

static int nvml_uses(void *state, int meter, jm_use_fn *give, void *arg, struct jm_err *err)
{
	struct jm_nvml_state *s = state;

	for (int i = 0; i < s->n; i++) {
		if (s->gpu[i].meter != meter)
			continue;
		if (s->gpu[i].mute || atomic_load(&s->gpu[i].call_ns) == JM_NVML_LEFT)
			return jm_err_set(err, JM_EIO,
				"The driver does not return from a call for %s; see the kernel's "
				"log.",
				s->gpu[i].label);
		return jm_nvml_uses_read(&s->gpu[i].uses, &s->nvml, s->gpu[i].handle,
			jm_clock_wall(s->ctx->clock) / 1000, give, arg, err);
	}
	return jm_err_set(err, JM_ENOENT, "The meter %d is not a GPU of the source nvml.", meter);
}

/* ---- doctor ---------------------------------------------------------------------------------- */

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
		f.mend = "--source nvml:all includes it";
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

static void say_gpus(struct jm_nvml *nvml, jm_finding_fn *say, void *arg)
{
	struct jm_nvml_gpus gpus;
	struct jm_err err = JM_ERR_INIT;

	if (jm_nvml_gpus_open(nvml, &gpus, &err)) {
		say(arg, &(struct jm_finding){.what = "NVIDIA GPUs", .why = err.text, .mend = ""});
		return;
	}
	for (int i = 0; i < gpus.n; i++)
		say_gpu(nvml, &gpus, i, say, arg);
	jm_nvml_gpus_done(&gpus);
}

static void nvml_doctor(struct jm_ctx *ctx, jm_finding_fn *say, void *arg)
{
	struct jm_nvml nvml;
	struct jm_err err = JM_ERR_INIT;
	struct jm_finding f = {.what = "NVIDIA GPUs", .why = err.text, .mend = ""};

	(void)ctx;
	if (jm_nvml_open(&nvml, &err)) {
		f.absent = err.code == JM_ENOENT;
		say(arg, &f);
		return;
	}
	say_library(&nvml, say, arg);
	say_gpus(&nvml, say, arg);
	jm_nvml_close(&nvml);
}

static const struct jm_option options[] = {
	{.name = "gpu",
		JM_BIND(JM_TEXT, struct jm_nvml_options, gpu),
		.argument = "N+...",
		.help = "only these GPUs of the job, as CUDA counts them: nvml:1, nvml:0+2"},
	{.name = "all",
		JM_BIND(JM_FLAG, struct jm_nvml_options, all),
		.help = "all GPUs, not only those of this job"},
	{.name = "raw",
		JM_BIND(JM_FLAG, struct jm_nvml_options, raw),
		.help = "read the energy counter at every interval, even if reading it is slow"},
	{.name = "activity",
		JM_BIND(JM_FLAG, struct jm_nvml_options, activity),
		.help = "also how busy SMs, tensor cores and memory are, and the traffic of NVLink "
			"(Hopper and newer)"},
	{.name = "samples",
		JM_BIND(JM_FLAG, struct jm_nvml_options, samples),
		.help = "power from the driver's buffer of samples, each with its own time, which "
			"'joulemark fold' needs"},
	{0},
};

const struct jm_source jm_source_nvml = {
	.name = "nvml",
	.summary = "NVIDIA GPUs: energy counter, power, limits, clocks, temperature, utilisation",
	.options = options,
	.origin = JM_MEASURED,
	.open = jm_nvml_state_open,
	.read = nvml_read,
	.close = jm_nvml_state_close,
	.leave = jm_nvml_leave,
	.waits = jm_nvml_waits,
	.edge = nvml_edge,
	.due = nvml_due,
	.uses = nvml_uses,
	.doctor = nvml_doctor,
};
