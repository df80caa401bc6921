/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power limits of processor packages through Linux's powercap files
 * (Documentation/power/powercap/powercap.rst): package.power is the limit of the mean over the long
 * window, package.peak_power that over the short one, which the processor may draw for moments. The
 * window stays as it is; a new limit holds once it has passed. The kernel rounds a limit down to
 * the processor's unit of power, 1/8 W on most (drivers/powercap/intel_rapl_common.c).
 */
#include "guard/control.h"
#include "base/files/find_files.h"
#include "base/ctx.h"
#include "sysfs_file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER	 "/sys/class/powercap"
#define LEAST	 1.0	       /* W, where the kernel names no minimum */
#define MOST	 (32767 / 8.0) /* W, where it names no maximum: 15 bits of 1/8 W */
#define STEP	 0.125	       /* W, on most processors */
#define LONGEST	 1.0	       /* s to wait for a window; the warm-up is for longer ones */
#define MICRO	 1e-6
#define MOST_CAP 128

struct limit {
	char folder[300];
	int constraint;
};

struct state {
	int n;
	struct limit limit[MOST_CAP];
	struct jm_knob knob[MOST_CAP];
};

/* constraint_0_power_limit_uw */
static void file_of(const struct limit *l, const char *what, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s/constraint_%d_%s", l->folder, l->constraint, what);
}

/* A file in millionths; NAN: it is not there, or 0, which stands for unknown. */
static double read_micro(const struct limit *l, const char *what)
{
	char path[PATH_MAX];
	long long value;

	file_of(l, what, path);
	return jm_sysfs_read_number(path, &value, NULL) || value <= 0 ? NAN : (double)value * MICRO;
}

static double first_known(double a, double b)
{
	return isnan(a) ? b : a;
}

/* The name of the knob; NULL: it is no limit of a kind that is known. */
static const char *knob_name(const struct limit *l)
{
	static const char *const names[][2] = {
		{"long_term", "package.power"}, {"short_term", "package.peak_power"}};
	char path[PATH_MAX], line[JM_SYSFS_LINE];

	file_of(l, "name", path);
	if (jm_sysfs_read_line(path, line, NULL))
		return NULL;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(line, names[i][0]))
			return names[i][1];
	return NULL;
}

/* package: "package-0". The limit found may lie above the maximum that the kernel names. */
static int add_limit(struct state *s, const struct jm_ctx *ctx, const struct limit *l,
	const char *package, struct jm_knobs *set, struct jm_err *err)
{
	const char *name = knob_name(l);
	double now = read_micro(l, "power_limit_uw");
	struct jm_knob knob = {.unit = "W",
		.ends = JM_ENDS_REBOOT,
		.step = STEP,
		.min = fmin(
			first_known(read_micro(l, "min_power_uw"), LEAST), first_known(now, MOST)),
		.max = fmax(
			first_known(read_micro(l, "max_power_uw"), MOST), first_known(now, LEAST)),
		.settle_s = fmin(first_known(read_micro(l, "time_window_us"), 0), LONGEST),
		.fallback = jm_knob_value_of(NAN)};
	int rc;

	if (!name || s->n == MOST_CAP)
		return 0;
	snprintf(knob.name, sizeof(knob.name), "%s", name);
	snprintf(knob.device, sizeof(knob.device), "%.100s", l->folder + strlen(ctx->root));
	snprintf(knob.label, sizeof(knob.label), "%.40s", package);
	rc = jm_knobs_add(set, &knob, err);
	if (rc < 0)
		return rc;
	s->knob[s->n] = knob;
	s->limit[s->n++] = *l;
	return 0;
}

/* A zone is a package if its name says so: "package-0"; other zones have no limits of their own. */
static int add_zone(struct state *s, const struct jm_ctx *ctx, const char *folder,
	struct jm_knobs *set, struct jm_err *err)
{
	char path[PATH_MAX], name[JM_SYSFS_LINE];
	struct limit l = {.constraint = 0};
	int rc = 0;

	snprintf(path, sizeof(path), "%s/name", folder);
	if (jm_sysfs_read_line(path, name, NULL) || strncmp(name, "package", 7) != 0)
		return 0;
	snprintf(l.folder, sizeof(l.folder), "%.299s", folder);
	for (; l.constraint < 4 && !rc; l.constraint++)
		rc = add_limit(s, ctx, &l, name, set, err);
	return rc;
}

static int rapl_open(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
	struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	glob_t found;
	int rc = 0;

	(void)arg;
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for power limits.");
	/* the same limits are also behind intel-rapl-mmio */
	jm_find_files(&found, "%s" FOLDER "/intel-rapl:[0-9]*", ctx->root);
	for (size_t i = 0; i < found.gl_pathc && !rc; i++)
		rc = add_zone(s, ctx, found.gl_pathv[i], set, err);
	globfree(&found);
	if (!rc && !s->n)
		rc = jm_err_set(err, JM_ENOSUP,
			"%s%s has no processor package with a power limit; the kernel needs the "
			"driver intel_rapl.",
			ctx->root, FOLDER);
	if (rc)
		free(s);
	else
		*ret_state = s;
	return rc;
}

/* A limit that is switched off is accepted and not enforced. */
static int rapl_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	const struct limit *l = &((struct state *)state)->limit[i];
	char path[PATH_MAX];
	long long uw, enabled;
	int rc;

	file_of(l, "power_limit_uw", path);
	rc = jm_sysfs_read_number(path, &uw, err);
	if (rc)
		return rc;
	*ret_accepted = *ret_enforced = jm_knob_value_of(uw > 0 ? (double)uw * MICRO : NAN);
	snprintf(path, sizeof(path), "%s/enabled", l->folder);
	if (!jm_sysfs_read_number(path, &enabled, NULL) && !enabled)
		*ret_enforced = jm_knob_value_word(JM_UNLOCKED);
	return 0;
}

static int rapl_writes(void *state, int i, const struct jm_knob_value *value, jm_write_fn *fn,
	void *arg, struct jm_err *err)
{
	const struct state *s = state;
	char path[PATH_MAX], text[32];
	int rc = jm_knob_check_kind(&s->knob[i], value, err);

	if (rc)
		return rc;
	file_of(&s->limit[i], "power_limit_uw", path);
	snprintf(text, sizeof(text), "%.0f", jm_knob_value_number(value) / MICRO);
	return fn(arg, path, text, err);
}

static int rapl_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	return rapl_writes(state, i, value, jm_sysfs_write, NULL, err);
}

static void rapl_close(void *state)
{
	free(state);
}

static void rapl_say_knob(
	void *state, int i, const struct jm_knob *knob, jm_finding_fn *say, void *arg)
{
	const struct state *s = state;
	struct jm_knob_value accepted = jm_knob_value_of(NAN), enforced = accepted;
	char why[300], path[PATH_MAX], now[JM_KNOB_TEXT], held[JM_KNOB_TEXT];
	struct jm_finding f = {.what = knob->label, .why = why, .mend = ""};

	rapl_get(state, i, &accepted, &enforced, NULL);
	jm_knob_value_text(&accepted, "W", now, sizeof(now));
	jm_knob_value_text(&enforced, "W", held, sizeof(held));
	file_of(&s->limit[i], "power_limit_uw", path);
	f.ok = !access(path, W_OK);
	if (!f.ok)
		f.mend = "use sudo";
	snprintf(why, sizeof(why), "%s %g to %g W over %g s, now %s, enforced %s; %s", knob->name,
		knob->min, knob->max, read_micro(&s->limit[i], "time_window_us"), now, held,
		f.ok ? "this user may set it" : "only root may set it");
	say(arg, &f);
}

const struct jm_control jm_control_rapl = {
	.name = "rapl",
	.summary = "power limits of processor packages",
	.knobs = "package.power package.peak_power",
	.origin = JM_MEASURED,
	.open = rapl_open,
	.get = rapl_get,
	.set = rapl_set,
	.writes = rapl_writes,
	.close = rapl_close,
	.say_knob = rapl_say_knob,
};
