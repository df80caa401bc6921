/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD GPUs through libamd_smi: power cap (gpu.power), performance level (gpu.performance) and range
 * of the clock of the cores (gpu.clock). A range holds under the level manual alone, and the driver
 * sets it to the whole one when that level is left (amdgpu of Linux, smu_v13_0_6_ppt.c). So the
 * clock is set under that level only, which the library would set silently otherwise, and the level
 * is changed only while the range is the whole one: each can be put back. Tried on a fake library.
 */
#include "guard/control.h"
#include "base/ctx.h"
#include "vendor/amd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The level comes before the clock, which depends on it. */
enum what { POWER, LEVEL, CLOCK, WHATS };
static const char *const names[WHATS] = {"gpu.power", "gpu.performance", "gpu.clock"};

struct knob {
	enum what what;
	int gpu;
	struct jm_knob knob;
};

struct state {
	struct jm_amd amd;
	int planned[JM_AMD_MAX]; /* the level that `writes` was asked for; -1 = none */
	int n;
	struct knob knob[JM_AMD_MAX * WHATS];
};

/* ---- opening ---- */

static bool describe_power(const struct jm_amd *amd, int gpu, struct jm_knob *knob)
{
	struct jm_amd_caps caps;

	if (!jm_amd_caps(amd, gpu, &caps) || isnan(caps.now) || isnan(caps.max))
		return false;
	memcpy(knob->unit, "W", sizeof("W"));
	knob->min = fmax(caps.min, 1);
	knob->max = caps.max;
	if (caps.fallback >= knob->min && caps.fallback <= knob->max)
		knob->fallback = jm_knob_value_of(caps.fallback);
	return knob->min < knob->max;
}

static bool describe_level(const struct jm_amd *amd, int gpu, struct jm_knob *knob)
{
	size_t n = 0;

	if (jm_amd_level(amd, gpu) < 0)
		return false;
	knob->kind = JM_KNOB_CHOICE;
	for (int k = 0; jm_amd_levels[k]; k++)
		n += (size_t)snprintf(knob->choices + n, sizeof(knob->choices) - n, "%s%s",
			k ? " " : "", jm_amd_levels[k]);
	knob->fallback = jm_knob_value_word(jm_amd_levels[0]);
	return true;
}

static bool describe_clock(const struct jm_amd *amd, int gpu, struct jm_knob *knob)
{
	struct jm_amd_clock_ends ends;

	if (jm_amd_level(amd, gpu) < 0 || !jm_amd_clock_ends(amd, gpu, &ends))
		return false;
	knob->kind = JM_KNOB_RANGE;
	memcpy(knob->unit, "Hz", sizeof("Hz"));
	knob->min = ends.min;
	knob->max = ends.max;
	knob->fallback = jm_knob_value_between(ends.min, ends.max);
	return true;
}

static bool describe(const struct jm_amd *amd, enum what what, int gpu, struct jm_knob *knob)
{
	switch (what) {
	case POWER:
		return describe_power(amd, gpu, knob);
	case LEVEL:
		return describe_level(amd, gpu, knob);
	default:
		return describe_clock(amd, gpu, knob);
	}
}

static void name_knob(struct jm_knob *knob, enum what what, int gpu, const struct jm_amd_gpu *from)
{
	snprintf(knob->name, sizeof(knob->name), "%s", names[what]);
	snprintf(knob->device, sizeof(knob->device), "%s", *from->uuid ? from->uuid : from->pci);
	snprintf(knob->label, sizeof(knob->label), "GPU %d (AMD, %s)", gpu, from->pci);
}

static int add_knobs(struct state *s, struct jm_knobs *set, struct jm_err *err)
{
	for (enum what what = 0; what < WHATS; what++)
		for (int gpu = 0; gpu < s->amd.n; gpu++) {
			struct jm_knob knob = {
				.ends = JM_ENDS_DRIVER, .fallback = jm_knob_value_of(NAN)};

			if (!describe(&s->amd, what, gpu, &knob))
				continue;
			name_knob(&knob, what, gpu, &s->amd.gpu[gpu]);
			s->knob[s->n++] = (struct knob){what, gpu, knob};
			if (jm_knobs_add(set, &knob, err) < 0)
				return err ? err->code : JM_ENOMEM;
		}
	if (s->n)
		return 0;
	return jm_err_set(err, JM_ENOSUP,
		"%s reports no power cap, performance level or clock range that can be set%s.",
		s->amd.library,
		strcmp(s->amd.library, "libamd_smi") ? "; they need libamd_smi" : "");
}

static void amdsmi_close(void *state)
{
	struct state *s = state;

	if (s)
		jm_amd_close(&s->amd);
	free(s);
}

static int amdsmi_open(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
	struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc;

	(void)ctx;
	(void)arg;
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for AMD GPUs.");
	for (int gpu = 0; gpu < JM_AMD_MAX; gpu++)
		s->planned[gpu] = -1;
	rc = jm_amd_open(&s->amd, err);
	if (!rc)
		rc = add_knobs(s, set, err);
	if (rc)
		amdsmi_close(s);
	else
		*ret_state = s;
	return rc;
}

/* ---- values ---- */

/* False: the GPU does not report it, or has a level that is not one of the knob's. */
static bool read_value(const struct state *s, const struct knob *k, struct jm_knob_value *ret)
{
	struct jm_amd_clock_ends ends;
	struct jm_amd_caps caps;
	int level;

	switch (k->what) {
	case POWER:
		if (!jm_amd_caps(&s->amd, k->gpu, &caps) || isnan(caps.now))
			return false;
		*ret = jm_knob_value_of(caps.now);
		return true;
	case LEVEL:
		level = jm_amd_level(&s->amd, k->gpu);
		if (level < 0)
			return false;
		*ret = jm_knob_value_word(
			level < JM_AMD_LEVELS ? jm_amd_levels[level] : "determinism");
		return true;
	default:
		if (!jm_amd_clock_ends(&s->amd, k->gpu, &ends))
			return false;
		*ret = jm_knob_value_between(ends.low, ends.high);
		return true;
	}
}

static int amdsmi_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	const struct state *s = state;
	const struct knob *k = &s->knob[i];

	if (!read_value(s, k, ret_accepted))
		return jm_err_set(err, JM_EIO, "Cannot read %s of %s by %s.", k->knob.name,
			k->knob.label, s->amd.library);
	*ret_enforced = *ret_accepted;
	return 0;
}

static int refused(
	const struct knob *k, int code, const struct jm_knob_value *value, struct jm_err *err)
{
	char text[JM_KNOB_TEXT];

	jm_knob_value_text(value, k->knob.unit, text, sizeof(text));
	return jm_err_set(err, code == JM_AMD_NO_PERMISSION ? JM_EPERM : JM_EIO,
		"Cannot set %s of %s to %s: %s (code %d)%s.", k->knob.name, k->knob.label, text,
		jm_amd_code_text(code), code,
		code == JM_AMD_NO_PERMISSION ? "; only root may set it, so use sudo" : "");
}

/* Where a setting goes: the calls that make it. */
struct sink {
	jm_write_fn *fn; /* NULL = they are made */
	void *arg;
	struct jm_err *err;
};

static int set_clock_end(
	const struct state *s, const struct knob *k, bool high, double hz, const struct sink *sink)
{
	char call[200];

	if (!sink->fn)
		return jm_amd_set_clock_end(&s->amd, k->gpu, high, hz);
	snprintf(call, sizeof(call), "amdsmi_set_gpu_clk_limit(%s, %s, %.0f)", k->knob.device,
		high ? "CLK_LIMIT_MAX" : "CLK_LIMIT_MIN", hz * 1e-6);
	return sink->fn(sink->arg, call, NULL, sink->err);
}

/* The lower end is below the upper one at any time. */
static int set_clock(const struct state *s, const struct knob *k, const struct jm_knob_value *value,
	const struct sink *sink)
{
	struct jm_amd_clock_ends now = {0};
	bool rises = jm_amd_clock_ends(&s->amd, k->gpu, &now) && value->low >= now.high;
	int rc = set_clock_end(s, k, rises, rises ? value->high : value->low, sink);

	return rc ? rc : set_clock_end(s, k, !rises, rises ? value->low : value->high, sink);
}

static int index_of(const char *word)
{
	int level = 0;

	while (jm_amd_levels[level] && strcmp(jm_amd_levels[level], word) != 0)
		level++;
	return level;
}

static int set_value(const struct state *s, const struct knob *k, const struct jm_knob_value *value,
	const struct sink *sink)
{
	double watts = jm_knob_value_number(value);
	char call[200];

	if (k->what == CLOCK)
		return set_clock(s, k, value, sink);
	if (!sink->fn)
		return k->what == POWER ? jm_amd_set_cap(&s->amd, k->gpu, watts)
					: jm_amd_set_level(&s->amd, k->gpu, index_of(value->word));
	if (k->what == POWER)
		snprintf(call, sizeof(call), "amdsmi_set_power_cap(%s, %.0f)", k->knob.device,
			watts * 1e6);
	else
		snprintf(call, sizeof(call), "amdsmi_set_gpu_perf_level(%s, %s)", k->knob.device,
			value->word);
	return sink->fn(sink->arg, call, NULL, sink->err);
}

/* Could level and clock be put back one by one after it? */
static int check_coupled(const struct state *s, const struct knob *k, int level, struct jm_err *err)
{
	struct jm_amd_clock_ends ends;
	bool whole = !jm_amd_clock_ends(&s->amd, k->gpu, &ends) ||
		     (ends.low <= ends.min && ends.high >= ends.max);

	if (k->what == LEVEL && !whole)
		return jm_err_set(err, JM_EIO,
			"gpu.performance of %s is not changed while gpu.clock is limited (%.0f to "
			"%.0f MHz), because the driver would forget that range; set "
			"gpu.clock=default first.",
			k->knob.label, ends.low * 1e-6, ends.high * 1e-6);
	if (k->what == CLOCK && level != JM_AMD_LEVEL_MANUAL)
		return jm_err_set(err, JM_EIO,
			"gpu.clock of %s takes a range under gpu.performance=manual alone; set "
			"both in one call.",
			k->knob.label);
	return 0;
}

static int amdsmi_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	const struct state *s = state;
	const struct knob *k = &s->knob[i];
	struct jm_knob_value now;
	int rc = jm_knob_check_kind(&k->knob, value, err);

	if (rc || (read_value(s, k, &now) && jm_knob_value_same(&now, value)))
		return rc;
	rc = check_coupled(s, k, jm_amd_level(&s->amd, k->gpu), err);
	if (rc)
		return rc;
	rc = set_value(s, k, value, &(struct sink){0});
	return rc ? refused(k, rc, value, err) : 0;
}

static int amdsmi_writes(void *state, int i, const struct jm_knob_value *value, jm_write_fn *fn,
	void *arg, struct jm_err *err)
{
	struct state *s = state;
	const struct knob *k = &s->knob[i];
	int *planned = &s->planned[k->gpu];
	int rc = jm_knob_check_kind(&k->knob, value, err);

	if (!rc)
		rc = check_coupled(
			s, k, *planned >= 0 ? *planned : jm_amd_level(&s->amd, k->gpu), err);
	if (!rc && k->what == LEVEL)
		*planned = index_of(value->word);
	return rc ? rc : set_value(s, k, value, &(struct sink){fn, arg, err});
}

static void amdsmi_say_knob(
	void *state, int i, const struct jm_knob *knob, jm_finding_fn *say, void *arg)
{
	struct jm_knob_value now, enforced;
	struct jm_err err = JM_ERR_INIT;
	char why[300], text[JM_KNOB_TEXT], takes[JM_KNOB_TAKES];
	struct jm_finding f = {.what = knob->label, .why = why, .mend = ""};

	if (amdsmi_get(state, i, &now, &enforced, &err)) {
		f.why = err.text;
		say(arg, &f);
		return;
	}
	f.ok = geteuid() == 0;
	if (!f.ok)
		f.mend = "use sudo";
	jm_knob_value_text(&now, knob->unit, text, sizeof(text));
	jm_knob_takes_text(knob, takes, sizeof(takes));
	snprintf(why, sizeof(why), "%s takes %.120s, now %s; %s", knob->name, takes, text,
		f.ok ? "this user may set it" : "only root may set it");
	say(arg, &f);
}

const struct jm_control jm_control_amdsmi = {
	.name = "amdsmi",
	.summary = "power cap, performance level and clock range of AMD GPUs",
	.knobs = "gpu.power gpu.performance gpu.clock",
	.origin = JM_MEASURED,
	.open = amdsmi_open,
	.get = amdsmi_get,
	.set = amdsmi_set,
	.writes = amdsmi_writes,
	.close = amdsmi_close,
	.say_knob = amdsmi_say_knob,
};
