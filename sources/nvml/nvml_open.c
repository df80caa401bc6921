/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA GPUs: which of them are this job's, their meters, and the signals that each of them
 * reports. */
#include "nvml_open.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "base/process/driver_call.h"
#include "nvml_activity.h"
#include "nvml_hardware.h"
#include "nvml_samples.h"
#include "nvml_sensors.h"
#include "sources/sysfs_text.h"
#include "vendor/nvml_gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <time.h>

static bool has(const struct jm_nvml_board *g, unsigned int scope, enum jm_quantity quantity)
{
	for (int i = 0; i < g->n_slots; i++)
		if (g->slot[i].probe->quantity == quantity && g->slot[i].probe->scope == scope)
			return true;
	return false;
}

static enum jm_nvml_kind kind_of(const struct jm_nvml_probe *p)
{
	if (!p->field)
		return JM_NVML_CALL;
	if (p->quantity == JM_Q_ENERGY)
		return JM_NVML_COUNTER;
	if (jm_quantity_is_counter(p->quantity))
		return JM_NVML_TIME;
	return p->slow ? JM_NVML_SLOW : JM_NVML_FAST;
}

static int add_signal(struct jm_nvml_board *g, const struct jm_nvml_sensor *sensor,
	const struct jm_nvml_probe *p, enum jm_nvml_kind kind, struct jm_meters *set,
	struct jm_err *err)
{
	struct jm_signal signal = kind == JM_NVML_SAMPLES ? jm_nvml_sample_signal(sensor)
							  : jm_nvml_signal(sensor, p->quantity);
	int rc = jm_meters_add_signal(set, &signal, err);

	if (rc < 0)
		return rc;
	g->slot[g->n_slots].probe = p;
	g->slot[g->n_slots].kind = kind;
	g->slot[g->n_slots].last.value = NAN;
	g->n_slots++;
	return 0;
}

/* Adds the signals of the probes that answer to the meter added last. */
static int add_signals(struct jm_nvml_state *s, struct jm_nvml_board *g,
	const struct jm_nvml_gpu *info, const struct jm_nvml_probe *probes, size_t n,
	struct jm_meters *set, struct jm_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct jm_nvml_probe *p = &probes[i];
		int rc;

		if (has(g, p->scope, p->quantity) || g->n_slots == JM_NVML_SLOTS ||
			!jm_nvml_answers(&s->nvml, info, p))
			continue;
		rc = add_signal(g, jm_nvml_sensor_of(info), p, kind_of(p), set, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int add_activity(struct jm_nvml_state *s, struct jm_nvml_board *g,
	const struct jm_nvml_gpu *info, struct jm_meters *set, struct jm_err *err)
{
	int rc = 0;

	if (!jm_nvml_sampler_open(&s->nvml, g->handle, &g->sampler)) {
		jm_log(s->ctx, JM_WARNING,
			"%s has no samples of its activity; they are available on Hopper and newer "
			"GPUs.",
			g->label);
		return 0;
	}
	for (int i = 0; i < JM_NVML_ACTIVITIES && rc >= 0; i++)
		rc = add_signal(g, jm_nvml_sensor_of(info), &jm_nvml_activities[i],
			JM_NVML_ACTIVITY, set, err);
	return rc;
}

/* Before the signals of fields, so that these leave power to it. */
static int add_samples(struct jm_nvml_state *s, struct jm_nvml_board *g,
	const struct jm_nvml_gpu *info, struct jm_meters *set, struct jm_err *err)
{
	if (jm_nvml_has_samples(&s->nvml, g->handle))
		return add_signal(g, jm_nvml_sensor_of(info), &jm_nvml_sample_probe,
			JM_NVML_SAMPLES, set, err);
	jm_log(s->ctx, JM_WARNING,
		"The driver keeps no samples of the power of %s; its readings are taken instead.",
		g->label);
	return 0;
}

static bool any_answers(const struct jm_nvml_state *s, const struct jm_nvml_gpu *info,
	const struct jm_nvml_probe *probes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (jm_nvml_answers(&s->nvml, info, &probes[i]))
			return true;
	return false;
}

static int add_memory(struct jm_nvml_state *s, struct jm_nvml_board *g,
	const struct jm_nvml_gpu *info, struct jm_meters *set, struct jm_err *err)
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

/*
 * The module of a Grace board is its processor with its memory, and all GPUs of that socket. False:
 * nothing is known of the socket, and the board may carry more than this GPU.
 */
static bool module_covers(struct jm_nvml_state *s, const struct jm_nvml_gpus *gpus,
	const struct jm_nvml_gpu *info, char *out, size_t size)
{
	long socket = jm_sysfs_socket(s->ctx, info->bus_id);
	size_t used;

	if (socket < 0) {
		snprintf(out, size, "gpu/%s module/%s", info->uuid, info->uuid);
		return strstr(info->name, "GH200");
	}
	used = (size_t)snprintf(
		out, size, "cpu/%ld dram/%ld sysio/%ld module/%ld", socket, socket, socket, socket);
	for (int i = 0; i < gpus->n && used < size; i++)
		if (jm_sysfs_socket(s->ctx, gpus->gpu[i].bus_id) == socket)
			used += (size_t)snprintf(
				out + used, size - used, " gpu/%s", gpus->gpu[i].uuid);
	return used < size;
}

static bool covered_already(const struct jm_meters *set, const char *covers)
{
	for (int i = 0; i < set->n; i++)
		if (set->meter[i].scope == JM_SCOPE_MODULE &&
			!strcmp(set->meter[i].source, "nvml") &&
			!strcmp(set->meter[i].covers, covers))
			return true;
	return false;
}

static int add_module(struct jm_nvml_state *s, struct jm_nvml_board *g,
	const struct jm_nvml_gpus *gpus, const struct jm_nvml_gpu *info, struct jm_meters *set,
	struct jm_err *err)
{
	char covers[2048];
	struct jm_meter meter = {.source = "nvml",
		.scope = JM_SCOPE_MODULE,
		.origin = JM_MEASURED,
		.covers = covers};
	int rc;

	if (!any_answers(s, info, jm_nvml_module_probes, JM_NVML_MODULE_PROBES) ||
		!module_covers(s, gpus, info, covers, sizeof(covers)) ||
		covered_already(set, covers))
		return 0;
	snprintf(meter.id, sizeof(meter.id), "nvml:%.100s/module", info->uuid);
	snprintf(meter.label, sizeof(meter.label), "Module of GPU %d", info->index);
	snprintf(meter.driver, sizeof(meter.driver), "%.47s", s->nvml.driver);
	rc = jm_meters_add(set, &meter, err);
	return rc < 0 ? rc
		      : add_signals(
				s, g, info, jm_nvml_module_probes, JM_NVML_MODULE_PROBES, set, err);
}

static void sort_slots(struct jm_nvml_board *g, int first_out)
{
	struct jm_nvml_slot sorted[JM_NVML_SLOTS];
	int n = 0;

	g->counter = -1;
	for (int kind = 0; kind < JM_NVML_KINDS; kind++) {
		g->begin[kind] = n;
		for (int i = 0; i < g->n_slots; i++) {
			if ((int)g->slot[i].kind != kind)
				continue;
			if (g->slot[i].probe->quantity == JM_Q_ENERGY)
				g->counter = n;
			sorted[n] = g->slot[i];
			g->out[n++] = first_out + i;
		}
	}
	g->begin[JM_NVML_KINDS] = n;
	memcpy(g->slot, sorted, sizeof(sorted[0]) * (size_t)n);
	for (int i = 0; i < n; i++) {
		g->value[i].field = g->slot[i].probe->field;
		g->value[i].scope = g->slot[i].probe->scope;
	}
}

/* The meter of a GPU; what is part of it, or includes it, has meters of its own. */
static int add_board(struct jm_nvml_state *s, struct jm_nvml_board *g,
	const struct jm_nvml_gpu *info, const struct jm_nvml_options *o, struct jm_meters *set,
	struct jm_err *err)
{
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
	if (!g->mute)
		jm_nvml_hardware(&s->nvml, info, &meter.hardware);
	g->handle = info->handle;
	memcpy(g->label, info->label, sizeof(g->label));
	rc = g->meter = jm_meters_add(set, &meter, err);
	if (rc >= 0 && g->mute)
		return 0;
	if (rc >= 0 && o->samples)
		rc = add_samples(s, g, info, set, err);
	if (rc >= 0)
		rc = add_signals(s, g, info, jm_nvml_gpu_probes, JM_NVML_GPU_PROBES, set, err);
	if (rc >= 0)
		rc = add_signals(s, g, info, jm_nvml_time_probes, JM_NVML_TIME_PROBES, set, err);
	if (rc >= 0 && o->activity)
		rc = add_activity(s, g, info, set, err);
	return rc;
}

static int add_gpu(struct jm_nvml_state *s, const struct jm_nvml_gpus *gpus, int i,
	const struct jm_nvml_options *o, struct jm_meters *set, int first_out, struct jm_err *err)
{
	const struct jm_nvml_gpu *info = &gpus->gpu[i];
	const struct jm_nvml_sensor *sensor = jm_nvml_sensor_of(info);
	struct jm_nvml_board *g = &s->gpu[s->n];
	int rc;

	g->mute = jm_nvml_first_waits(s->first, i);
	if (g->mute)
		jm_log(s->ctx, JM_WARNING,
			"nvml: The driver does not return from the first call for %s; see the "
			"kernel's log. What it uses is unknown; the others are read.",
			info->label);
	rc = add_board(s, g, info, o, set, err);
	if (rc >= 0 && !g->mute)
		rc = add_memory(s, g, info, set, err);
	if (rc >= 0 && !g->mute)
		rc = add_module(s, g, gpus, info, set, err);
	if (rc < 0)
		return rc;
	sort_slots(g, first_out);
	if (g->counter >= 0)
		jm_read_pace_init(&g->pace, &s->budget, sensor->counter_ms * JM_MILLISECOND);
	s->n++;
	return g->n_slots;
}

static int add_gpus(struct jm_nvml_state *s, const struct jm_nvml_gpus *gpus,
	const struct jm_nvml_options *o, struct jm_meters *set, struct jm_err *err)
{
	int out = 0;

	for (int i = 0; i < gpus->n; i++) {
		int rc;

		if (!o->all && !gpus->gpu[i].allocated)
			continue;
		rc = add_gpu(s, gpus, i, o, set, out, err);
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

void jm_nvml_state_close(void *state)
{
	struct jm_nvml_state *s = state;

	/* calls that have not returned keep the library and the state */
	if (!s || jm_nvml_waits(s))
		return;
	for (int i = 0; i < s->n; i++) {
		jm_nvml_uses_done(&s->gpu[i].uses, &s->nvml);
		jm_nvml_sampler_close(&s->nvml, &s->gpu[i].sampler);
	}
	jm_nvml_close(&s->nvml);
	free(s);
}

/* *ret, if there is one, is the caller's also after an error. */
static int open_gpus(struct jm_ctx *ctx, struct jm_nvml *nvml, const struct jm_nvml_options *o,
	struct jm_meters *set, struct jm_nvml_state **ret, struct jm_err *err)
{
	struct jm_nvml_gpus gpus;
	struct jm_nvml_state *s;
	int rc = jm_nvml_gpus_open(nvml, &gpus, err);

	if (rc)
		return rc;
	if (*gpus.note)
		jm_log(ctx, JM_WARNING, "%s", gpus.note);
	if (!o->all && gpus.n_allocated && gpus.n_allocated < gpus.n)
		jm_log(ctx, JM_INFO, "%d of %d GPUs belong to this job (%s).", gpus.n_allocated,
			gpus.n, gpus.why);
	if (o->gpu && gpus.n_allocated)
		rc = jm_nvml_gpus_keep(&gpus, o->gpu, err);
	if (rc) {
		jm_nvml_gpus_done(&gpus);
		return rc;
	}
	s = calloc(1, sizeof(*s) + (size_t)gpus.n * sizeof(s->gpu[0]));
	if (s) {
		s->ctx = ctx;
		s->nvml = *nvml;
		s->can_leave = jm_nvml_can_leave();
		s->slow_ns = INT64_MIN / 2;
		s->first = jm_nvml_first_ask(nvml, &gpus, o->all);
	}
	rc = s && s->first ? add_gpus(s, &gpus, o, set, err)
			   : jm_err_set(err, JM_ENOMEM, "Out of memory for %d GPUs.", gpus.n);
	for (int i = 0; s && rc && i < gpus.n; i++)
		jm_nvml_sampler_close(&s->nvml, &s->gpu[i].sampler);
	jm_nvml_gpus_done(&gpus);
	*ret = s;
	return rc;
}

/* Marks the signals of all GPUs that are read by this probe. */
static void mark_stamped(const struct jm_nvml_state *s, struct jm_meters *set, int first_signal,
	const struct jm_nvml_probe *probe, bool stamped)
{
	for (int i = 0; i < s->n; i++)
		for (int k = 0; k < s->gpu[i].n_slots; k++)
			if (s->gpu[i].slot[k].probe == probe)
				set->signal[first_signal + s->gpu[i].out[k]].stamped = stamped;
}

/*
 * Does the driver stamp a field when it is asked, or when its sensor changed? A stamp that stays
 * the same from one call to the next, a moment later, is the sensor's. One GPU is tried for all.
 */
static void learn_stamps(struct jm_nvml_state *s, struct jm_meters *set, int first_signal)
{
	const struct timespec moment = {.tv_nsec = 1000000};
	long long before[JM_NVML_SLOTS] = {0};
	bool stands[JM_NVML_SLOTS] = {false};
	struct jm_nvml_board *first = &s->gpu[0];
	int n;

	while (first->mute && first < &s->gpu[s->n - 1])
		first++;
	/* fast fields, and the counter, which stands behind the slow ones */
	n = first->begin[JM_NVML_CALL];
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

int jm_nvml_state_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct jm_nvml nvml;
	struct jm_nvml_options o;
	struct jm_nvml_state *s = NULL;
	int first_signal = set->n_signals, rc;

	rc = jm_nvml_open(&nvml, err);
	if (rc)
		return rc;
	JM_FILL(options, &o);
	rc = open_gpus(ctx, &nvml, &o, set, &s, err);
	if (rc) {
		/* calls that have not returned keep the library */
		if (!s || !jm_nvml_waits(s)) {
			jm_nvml_close(&nvml);
			free(s);
		}
		return rc;
	}
	for (int i = 0; i < s->n; i++)
		s->gpu[i].pace.always = o.raw;
	learn_stamps(s, set, first_signal);
	*ret_state = s;
	return 0;
}
