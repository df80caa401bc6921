/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power limit of NVIDIA GPUs, gpu.power in watts, and their locked clocks, gpu.clock and
 * gpu.memory_clock (nvml_clock.h), per GPU of this job. Setting them needs root.
 */
#include "nvml_clock.h"
#include "vendor/nvml_gpus.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A knob of a GPU. */
struct device {
	jm_nvml_device handle;
	enum jm_nvml_clock clock; /* 0 = it is the power limit */
	struct jm_knob knob;
};

struct state {
	struct jm_nvml nvml;
	int n;
	struct device device[];
};

/* A GPU has one of each: all limits come first, then all clocks. */
static const enum jm_nvml_clock kinds[] = {0, JM_NVML_CLOCK_SM, JM_NVML_CLOCK_MEMORY};
#define KINDS (int)(sizeof(kinds) / sizeof(kinds[0]))

static double milli(unsigned int mw)
{
	return mw / 1000.0;
}

/* The range and the default; false where the driver does not manage the limit. */
static bool describe_limit(
	const struct jm_nvml *nvml, const struct jm_nvml_gpu *g, struct jm_knob *knob)
{
	unsigned int min, max, fallback;

	if (!nvml->set_limit || !nvml->limit || !nvml->limit_range ||
		nvml->limit_range(g->handle, &min, &max))
		return false;
	*knob = (struct jm_knob){.name = "gpu.power",
		.unit = "W",
		.ends = JM_ENDS_DRIVER,
		.fallback = jm_knob_value_of(NAN)};
	knob->min = milli(min);
	knob->max = milli(max);
	if (nvml->limit_default && !nvml->limit_default(g->handle, &fallback))
		knob->fallback = jm_knob_value_of(milli(fallback));
	return true;
}

/* 1: the GPU has the knob. */
static int add_knob(struct state *s, const struct jm_nvml_gpu *g, enum jm_nvml_clock clock,
	struct jm_knobs *set, struct jm_err *err)
{
	struct device *d = &s->device[s->n];
	int rc;

	if (clock ? !jm_nvml_clock_describe(&s->nvml, g->handle, clock, &d->knob)
		  : !describe_limit(&s->nvml, g, &d->knob))
		return 0;
	snprintf(d->knob.device, sizeof(d->knob.device), "%s", g->uuid);
	snprintf(d->knob.label, sizeof(d->knob.label), "%s", g->label);
	d->handle = g->handle;
	d->clock = clock;
	rc = jm_knobs_add(set, &d->knob, err);
	if (rc < 0)
		return rc;
	s->n++;
	return 1;
}

static int add_gpus(struct state *s, const struct jm_nvml_gpus *gpus, bool all,
	struct jm_knobs *set, struct jm_err *err)
{
	for (int k = 0; k < KINDS; k++)
		for (int i = 0; i < gpus->n; i++) {
			int rc = all || gpus->gpu[i].allocated
					 ? add_knob(s, &gpus->gpu[i], kinds[k], set, err)
					 : 0;

			if (rc < 0)
				return rc;
		}
	if (s->n)
		return 0;
	if (!all && !gpus->n_allocated)
		return jm_err_set(err, JM_ENOENT,
			"None of the %d NVIDIA GPUs belongs to this job (%s); --control nvml:all "
			"uses all of them.",
			gpus->n, gpus->why);
	return jm_err_set(err, JM_ENOSUP,
		"The driver does not manage the power limit of %s; see 'nvidia-smi -q -d POWER'.",
		gpus->gpu[0].label);
}

static void nvml_close(void *state)
{
	struct state *s = state;

	if (s)
		jm_nvml_close(&s->nvml);
	free(s);
}

static int open_gpus(struct jm_ctx *ctx, struct jm_nvml *nvml, const char *arg,
	struct jm_knobs *set, struct state **ret, struct jm_err *err)
{
	bool all = !strcmp(arg, "all");
	struct jm_nvml_gpus gpus;
	struct state *s;
	int rc = jm_nvml_gpus_open(nvml, &gpus, err);

	if (rc)
		return rc;
	if (*gpus.left_out)
		jm_log(ctx, JM_WARNING, "%s", gpus.left_out);
	if (*arg && !all && gpus.n_allocated && jm_nvml_gpus_keep(&gpus, arg, err)) {
		jm_nvml_gpus_done(&gpus);
		return err->code;
	}
	s = calloc(1, sizeof(*s) + (size_t)gpus.n * KINDS * sizeof(s->device[0]));
	if (s) {
		s->nvml = *nvml;
		rc = add_gpus(s, &gpus, all, set, err);
	} else {
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for %d GPUs.", gpus.n);
	}
	jm_nvml_gpus_done(&gpus);
	if (!rc) {
		*ret = s;
		return 0;
	}
	free(s);
	return rc;
}

static int nvml_open(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
	struct jm_err *err)
{
	struct jm_nvml nvml;
	struct state *s = NULL;
	int rc;

	if (*arg && !strchr("0123456789", *arg) && strcmp(arg, "all") != 0)
		return jm_err_set(err, JM_EUSAGE,
			"The control nvml takes 'nvml' for this job's GPUs, 'nvml:0' for one of "
			"them, or 'nvml:all', not 'nvml:%s'.",
			arg);
	rc = jm_nvml_open(&nvml, err);
	if (rc)
		return rc;
	rc = open_gpus(ctx, &nvml, arg, set, &s, err);
	if (rc)
		jm_nvml_close(&nvml);
	else
		*ret_state = s;
	return rc;
}

/* Fields 192 and 190 are what the calls below return; the calls exist on every driver. */
static int get_limit(struct state *s, const struct device *d, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	struct jm_nvml_value requested = {.field = JM_NVML_LIMIT_REQUESTED};
	unsigned int limit = 0, enforced = 0;
	double value = NAN;
	int rc;

	if (s->nvml.fields && !s->nvml.fields(d->handle, 1, &requested))
		value = jm_nvml_number(&requested) / 1000;
	rc = s->nvml.limit(d->handle, &limit);
	if (rc && isnan(value))
		return jm_err_set(err, jm_nvml_code(rc), "Cannot read the power limit of %s: %s.",
			d->knob.label, jm_nvml_text(&s->nvml, rc));
	*ret_accepted = jm_knob_value_of(isnan(value) ? milli(limit) : value);
	*ret_enforced = jm_knob_value_of(NAN);
	if (s->nvml.limit_enforced && !s->nvml.limit_enforced(d->handle, &enforced))
		*ret_enforced = jm_knob_value_of(milli(enforced));
	return 0;
}

static int nvml_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	struct state *s = state;
	const struct device *d = &s->device[i];

	if (!d->clock)
		return get_limit(s, d, ret_accepted, ret_enforced, err);
	*ret_accepted = *ret_enforced = jm_knob_value_of(NAN);
	return 0;
}

static int nvml_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	struct state *s = state;
	const struct device *d = &s->device[i];
	double watts = jm_knob_value_number(value);
	char text[JM_KNOB_TEXT];
	int rc = jm_knob_check_kind(&d->knob, value, err);

	if (rc)
		return rc;
	if (d->clock)
		rc = jm_nvml_clock_set(&s->nvml, d->handle, d->clock, value);
	else
		rc = s->nvml.set_limit(d->handle, (unsigned int)lround(watts * 1000));
	if (!rc)
		return 0;
	jm_knob_value_text(value, d->knob.unit, text, sizeof(text));
	return jm_err_set(err, rc == JM_NVML_INVALID_ARGUMENT ? JM_EIO : jm_nvml_code(rc),
		"Cannot set %s of %s to %s: %s%s.", d->knob.name, d->knob.label, text,
		jm_nvml_text(&s->nvml, rc),
		rc == JM_NVML_NO_PERMISSION
			? "; only root may set it, so use sudo or ask the operator"
			: "");
}

static int nvml_writes(void *state, int i, const struct jm_knob_value *value, jm_write_fn *fn,
	void *arg, struct jm_err *err)
{
	const struct state *s = state;
	const struct device *d = &s->device[i];
	char call[200];

	if (d->clock)
		jm_nvml_clock_text(d->clock, d->knob.device, value, call, sizeof(call));
	else
		snprintf(call, sizeof(call), "nvmlDeviceSetPowerManagementLimit(%s, %ld)",
			d->knob.device, lround(jm_knob_value_number(value) * 1000));
	return fn(arg, call, NULL, err);
}

/* ---- doctor ---------------------------------------------------------------------------------- */

/* Without persistence mode the driver unloads and loses the limit when no process has the GPU
 * open. */
static bool forgets(const struct state *s, int i)
{
	unsigned int on = 1;

	return s->nvml.persistence && !s->nvml.persistence(s->device[i].handle, &on) && !on;
}

/* "now 700 W, enforced 600 W"; of a clock what it needs. */
static int say_now(const struct state *s, int i, char *out, size_t size, struct jm_err *err)
{
	struct jm_knob_value requested = jm_knob_value_of(NAN), enforced = requested;
	int rc = nvml_get((void *)s, i, &requested, &enforced, err);

	if (s->device[i].clock)
		snprintf(out, size, "what is locked cannot be read, so state it: --found %s=...",
			s->device[i].knob.name);
	else if (!rc)
		snprintf(out, size, "now %g W, enforced %g W", requested.high, enforced.high);
	return rc;
}

static void say_knob(
	const struct state *s, const struct jm_knob *knob, int i, jm_finding_fn *say, void *arg)
{
	struct jm_finding f = {.what = knob->label, .mend = ""};
	struct jm_err err = JM_ERR_INIT;
	double scale = s->device[i].clock ? 1e-6 : 1;
	char why[400], now[120];

	if (say_now(s, i, now, sizeof(now), &err)) {
		f.why = err.text;
		say(arg, &f);
		return;
	}
	f.ok = geteuid() == 0;
	snprintf(why, sizeof(why), "%s %g to %g %s, %s%s%s", knob->name, knob->min * scale,
		knob->max * scale, s->device[i].clock ? "MHz" : "W", now,
		f.ok ? "; this user may set it" : "; only root may set it",
		forgets(s, i) ? "; persistence mode is off, so an idle driver forgets the limit "
				"(nvidia-smi -pm 1)"
			      : "");
	f.why = why;
	if (!f.ok)
		f.mend = "use sudo; under 'sudo joulemark run' the work itself still runs as the "
			 "calling user";
	say(arg, &f);
}

static void nvml_doctor(struct jm_ctx *ctx, jm_finding_fn *say, void *arg)
{
	struct jm_knobs set = {0};
	struct jm_err err = JM_ERR_INIT;
	void *state = NULL;

	if (nvml_open(ctx, "", &set, &state, &err)) {
		struct jm_finding f = {.what = "gpu.power",
			.why = err.text,
			.mend = "",
			.absent = err.code == JM_ENOENT};

		say(arg, &f);
		jm_knobs_done(&set);
		return;
	}
	for (int i = 0; i < set.n; i++)
		say_knob(state, &set.knob[i], i, say, arg);
	nvml_close(state);
	jm_knobs_done(&set);
}

const struct jm_control jm_control_nvml = {
	.name = "nvml",
	.summary = "power limits and locked clocks of NVIDIA GPUs",
	.knobs = "gpu.power gpu.clock gpu.memory_clock",
	.argument = "all",
	.restore_argument = "all",
	.origin = JM_MEASURED,
	.open = nvml_open,
	.get = nvml_get,
	.set = nvml_set,
	.writes = nvml_writes,
	.close = nvml_close,
	.doctor = nvml_doctor,
};
