/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power caps of NVIDIA Grace through the ACPI power meters of Linux's hardware monitors
 * (Documentation/hwmon/ acpi_power_meter.rst; NVIDIA Grace performance tuning guide): module.power,
 * grace.power and cpu.power of a socket, as the meter's label says, where its firmware takes a cap.
 * The kernel rounds a cap to milliwatts and refuses one outside the limits that the firmware names.
 * The attributes lie in the monitor's folder or in device/ below it, depending on the kernel.
 *
 * A device is the monitor's own name with that of its ACPI device, since hwmon's numbers change
 * between starts.
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

#define FOLDER	 "/sys/class/hwmon"
#define MICRO	 1e-6
#define STEP	 1e-3 /* W */
#define LONGEST	 1.0  /* s to wait for the mean; the warm-up is for longer ones */
#define MOST_CAP 64

struct state {
	int n;
	char path[MOST_CAP][400]; /* of power1_cap */
	struct jm_knob knob[MOST_CAP];
};

/* A file beside the cap, ".../power1_cap" with "_min" or in place of "_cap". */
static void file_beside(const char *cap, const char *end, char out[PATH_MAX])
{
	int n = (int)(strlen(cap) - strlen("_cap"));

	snprintf(out, PATH_MAX, "%.*s%s", n, cap, end);
}

static int read_watts(const char *path, double *ret, struct jm_err *err)
{
	long long uw;
	int rc = jm_sysfs_read_number(path, &uw, err);

	if (!rc)
		*ret = (double)uw * MICRO;
	return rc;
}

/* "module.power" of "Module Power Socket 0"; false: it is none of Grace's meters. */
static bool name_knob(const char *cap, struct jm_knob *knob)
{
	static const char *const names[][2] = {
		{"Module", "module.power"}, {"Grace", "grace.power"}, {"CPU", "cpu.power"}};
	char path[PATH_MAX], label[JM_SYSFS_LINE], what[16];
	int socket;

	file_beside(cap, "_oem_info", path);
	if (jm_sysfs_read_line(path, label, NULL) ||
		sscanf(label, "%15s Power Socket %d", what, &socket) != 2)
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(what, names[i][0])) {
			snprintf(knob->name, sizeof(knob->name), "%s", names[i][1]);
			snprintf(knob->label, sizeof(knob->label), "%.63s", label);
			return true;
		}
	return false;
}

/* "power_meter-ACPI000D:00/power1" */
static void name_device(const char *monitor, const char *cap, struct jm_knob *knob)
{
	char path[PATH_MAX], link[300], name[JM_SYSFS_LINE] = "unnamed";
	const char *device, *stem = strrchr(cap, '/') + 1;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/name", monitor);
	if (jm_sysfs_read_line(path, name, NULL)) {
		snprintf(path, sizeof(path), "%s/device/name", monitor);
		jm_sysfs_read_line(path, name, NULL);
	}
	snprintf(path, sizeof(path), "%s/device", monitor);
	n = readlink(path, link, sizeof(link) - 1);
	link[n > 0 ? n : 0] = '\0';
	device = strrchr(link, '/');
	snprintf(knob->device, sizeof(knob->device), "%.40s-%.40s/%.*s", name,
		device ? device + 1 : link, (int)strcspn(stem, "_"), stem);
}

static int add_cap(struct state *s, const char *monitor, const char *cap, struct jm_knobs *set,
	struct jm_err *err)
{
	struct jm_knob knob = {.unit = "W",
		.ends = JM_ENDS_REBOOT,
		.step = STEP,
		.fallback = jm_knob_value_of(NAN)};
	char min[PATH_MAX], max[PATH_MAX], interval[PATH_MAX];
	long long ms = 0;
	int rc;

	file_beside(cap, "_cap_min", min);
	file_beside(cap, "_cap_max", max);
	file_beside(cap, "_average_interval", interval);
	if (s->n == MOST_CAP || !name_knob(cap, &knob) || read_watts(min, &knob.min, NULL) ||
		read_watts(max, &knob.max, NULL) || !(knob.max > knob.min))
		return 0;
	name_device(monitor, cap, &knob);
	if (!jm_sysfs_read_number(interval, &ms, NULL) && ms > 0)
		knob.settle_s = fmin((double)ms * 1e-3, LONGEST);
	rc = jm_knobs_add(set, &knob, err);
	if (rc < 0)
		return rc;
	snprintf(s->path[s->n], sizeof(s->path[0]), "%.399s", cap);
	s->knob[s->n++] = knob;
	return 0;
}

/* Its caps lie in the monitor's folder, or all of them in device/. */
static int add_monitor(
	struct state *s, const char *monitor, struct jm_knobs *set, struct jm_err *err)
{
	static const char *const where[] = {"", "/device"};
	int rc = 0, before = s->n;

	for (int w = 0; w < 2 && !rc && s->n == before; w++) {
		glob_t found;

		jm_find_files(&found, "%s%s/power[0-9]*_cap", monitor, where[w]);
		for (size_t i = 0; i < found.gl_pathc && !rc; i++)
			rc = add_cap(s, monitor, found.gl_pathv[i], set, err);
		globfree(&found);
	}
	return rc;
}

static int hwmon_open(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
	struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	glob_t found;
	int rc = 0;

	(void)arg;
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for power caps.");
	jm_find_files(&found, "%s" FOLDER "/hwmon*", ctx->root);
	for (size_t i = 0; i < found.gl_pathc && !rc; i++)
		rc = add_monitor(s, found.gl_pathv[i], set, err);
	globfree(&found);
	if (!rc && !s->n)
		rc = jm_err_set(err, JM_ENOSUP,
			"No monitor in %s" FOLDER " takes a power cap of an NVIDIA Grace.",
			ctx->root);
	if (rc)
		free(s);
	else
		*ret_state = s;
	return rc;
}

static int hwmon_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	const struct state *s = state;
	double watts;
	int rc = read_watts(s->path[i], &watts, err);

	if (!rc)
		*ret_accepted = *ret_enforced = jm_knob_value_of(watts > 0 ? watts : NAN);
	return rc;
}

static int hwmon_writes(void *state, int i, const struct jm_knob_value *value, jm_write_fn *fn,
	void *arg, struct jm_err *err)
{
	const struct state *s = state;
	char text[32];
	int rc = jm_knob_check_kind(&s->knob[i], value, err);

	if (rc)
		return rc;
	snprintf(text, sizeof(text), "%.0f", jm_knob_value_number(value) / MICRO);
	return fn(arg, s->path[i], text, err);
}

static int hwmon_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	return hwmon_writes(state, i, value, jm_sysfs_write, NULL, err);
}

static void hwmon_close(void *state)
{
	free(state);
}

static void hwmon_say_knob(
	void *state, int i, const struct jm_knob *knob, jm_finding_fn *say, void *arg)
{
	const struct state *s = state;
	struct jm_knob_value now = jm_knob_value_of(NAN), enforced;
	char why[300], text[JM_KNOB_TEXT];
	struct jm_finding f = {.what = knob->label, .why = why, .mend = ""};

	hwmon_get(state, i, &now, &enforced, NULL);
	jm_knob_value_text(&now, "W", text, sizeof(text));
	f.ok = !access(s->path[i], W_OK);
	if (!f.ok)
		f.mend = "use sudo";
	snprintf(why, sizeof(why), "%s %g to %g W, now %s; %s", knob->name, knob->min, knob->max,
		text, f.ok ? "this user may set it" : "only root may set it");
	say(arg, &f);
}

const struct jm_control jm_control_hwmon = {
	.name = "hwmon",
	.summary = "power caps of NVIDIA Grace",
	.knobs = "module.power grace.power cpu.power",
	.origin = JM_MEASURED,
	.open = hwmon_open,
	.get = hwmon_get,
	.set = hwmon_set,
	.writes = hwmon_writes,
	.close = hwmon_close,
	.say_knob = hwmon_say_knob,
};
