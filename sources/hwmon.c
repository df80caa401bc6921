/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power and energy channels of Linux's hardware monitors (Documentation/hwmon/sysfs-interface.rst:
 * microwatts and microjoules). Those of NVIDIA Grace (ACPI power meters; NVIDIA Grace performance
 * tuning guide) are known by their labels: module, Grace (CPU, its DRAM and SysIO), CPU and SysIO
 * of each socket. Any other channel is read when the user names it and says what it covers. Kernels
 * differ in whether the attributes of a monitor lie in its folder or in device/ below it, so both
 * are searched.
 */
#include "base/ctx.h"
#include "base/files/find_files.h"
#include "base/clock.h"
#include "meter/source.h"
#include "parse_reading.h"
#include "sysfs_text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER	     "/sys/class/hwmon"
#define MAX_CHANNELS 256
#define INTERVAL     (50 * JM_MILLISECOND) /* of an ACPI power meter that does not say it */

struct channel {
	char folder[300]; /* the folder of its attributes */
	char name[128];	  /* chip/attribute: "power_meter-ACPI000D:00/power1" */
	char label[64];	  /* "" = none */
	bool energy;
	int fd, error;	     /* error: errno where fd is -1 */
	int64_t interval_ns; /* averaging interval; 0 = none */
	enum jm_scope scope;
	char covers[256]; /* "" = not known */
};

struct state {
	struct jm_ctx *ctx;
	const char *named, *covers; /* options, while it is opened; NULL = not given */
	int n;
	struct channel channel[MAX_CHANNELS];
};

/* ---- what a channel covers ---- */

/* The UUID of an NVIDIA GPU from the driver's folder of it; false = it does not say. */
static bool uuid_of(const char *folder, char *out, size_t size)
{
	char path[512], line[128];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/information", folder);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		const char *uuid = strstr(line, "GPU-");

		found = uuid && !strncmp(line, "GPU UUID:", 9);
		if (found)
			snprintf(out, size, "%.*s", (int)strcspn(uuid, " \t\n"), uuid);
	}
	if (f)
		fclose(f);
	return found;
}

/* Adds the NVIDIA GPUs of a socket to what its module covers. */
static void add_gpus(const struct jm_ctx *ctx, int socket, char *covers, size_t size)
{
	char uuid[64];
	glob_t found;

	jm_find_files(&found, "%s/proc/driver/nvidia/gpus/*", ctx->root);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		size_t used = strlen(covers);

		if (jm_sysfs_socket(ctx, strrchr(found.gl_pathv[i], '/') + 1) == socket &&
			uuid_of(found.gl_pathv[i], uuid, sizeof(uuid)))
			snprintf(covers + used, size - used, " gpu/%s", uuid);
	}
	globfree(&found);
}

static void classify(const struct jm_ctx *ctx, struct channel *c)
{
	static const struct {
		const char *what;
		enum jm_scope scope;
		bool cpu, dram, sysio, gpu;
	} rows[] = {
		{"Module", JM_SCOPE_MODULE, true, true, true, true},
		{"Grace", JM_SCOPE_PACKAGE, true, true, true, false},
		{"CPU", JM_SCOPE_CORE, true, false, false, false},
		{"SysIO", JM_SCOPE_UNCORE, false, false, true, false},
	};
	char what[16], cpu[32] = "", dram[32] = "", sysio[32] = "";
	size_t used;
	int socket;

	if (sscanf(c->label, "%15s Power Socket %d", what, &socket) != 2 || socket < 0)
		return;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(rows[i].what, what) != 0)
			continue;
		c->scope = rows[i].scope;
		if (rows[i].cpu)
			snprintf(cpu, sizeof(cpu), "cpu/%d ", socket);
		if (rows[i].dram)
			snprintf(dram, sizeof(dram), "dram/%d ", socket);
		if (rows[i].sysio)
			snprintf(sysio, sizeof(sysio), "sysio/%d", socket);
		snprintf(c->covers, sizeof(c->covers), "%s%s%s", cpu, dram, sysio);
		if (!rows[i].gpu)
			continue;
		/* the module's own regulators are in it as well, so it is more than its parts */
		used = strlen(c->covers);
		snprintf(c->covers + used, sizeof(c->covers) - used, " module/%d", socket);
		add_gpus(ctx, socket, c->covers, sizeof(c->covers));
	}
}

/* ---- finding ---- */

/* "power_meter-ACPI000D:00": the driver's name and the device, since hwmon's own numbers change. */
static void name_chip(const char *monitor, char *out, size_t size)
{
	char name[48] = "unnamed", link[300], path[512];
	const char *device;
	ssize_t n;

	if (!jm_sysfs_line(monitor, "name", name, sizeof(name))) {
		snprintf(path, sizeof(path), "%s/device", monitor);
		jm_sysfs_line(path, "name", name, sizeof(name));
	}
	snprintf(path, sizeof(path), "%s/device", monitor);
	n = readlink(path, link, sizeof(link) - 1);
	link[n > 0 ? n : 0] = '\0';
	device = strrchr(link, '/');
	snprintf(out, size, "%s%s%.40s", name, n > 0 ? "-" : "", device ? device + 1 : link);
}

/* value: the attribute with the reading, "power1_average" */
static void add_channel(struct state *s, const char *chip, const char *folder, const char *value)
{
	struct channel *c = &s->channel[s->n];
	char stem[32], file[64], path[512];
	long ms;

	if (s->n == MAX_CHANNELS)
		return;
	*c = (struct channel){.energy = value[0] == 'e'};
	snprintf(c->folder, sizeof(c->folder), "%s", folder);
	snprintf(stem, sizeof(stem), "%.*s", (int)strcspn(value, "_"), value);
	snprintf(c->name, sizeof(c->name), "%.90s/%.31s", chip, stem);
	for (int i = 0; i < s->n; i++) /* power1_average goes before power1_input */
		if (!strcmp(s->channel[i].name, c->name))
			return;
	snprintf(file, sizeof(file), "%s_oem_info", stem);
	if (!jm_sysfs_line(folder, file, c->label, sizeof(c->label))) {
		snprintf(file, sizeof(file), "%s_label", stem);
		if (!jm_sysfs_line(folder, file, c->label, sizeof(c->label)))
			c->label[0] = '\0';
	}
	snprintf(file, sizeof(file), "%s_average_interval", stem);
	ms = jm_sysfs_number(folder, file);
	if (strstr(value, "_average"))
		c->interval_ns = ms > 0 && ms < 3600000 ? ms * JM_MILLISECOND : INTERVAL;
	snprintf(path, sizeof(path), "%s/%s", folder, value);
	c->fd = open(path, O_RDONLY | O_CLOEXEC);
	c->error = c->fd < 0 ? errno : 0;
	classify(s->ctx, c);
	s->n++;
}

static void find_in(struct state *s, const char *chip, const char *folder)
{
	static const char *const values[] = {
		"power*_average", "power*_input", "energy*_input", NULL};

	for (int i = 0; values[i]; i++) {
		glob_t found;

		jm_find_files(&found, "%s/%s", folder, values[i]);
		for (size_t k = 0; k < found.gl_pathc; k++)
			add_channel(s, chip, folder, strrchr(found.gl_pathv[k], '/') + 1);
		globfree(&found);
	}
}

static void find_channels(struct state *s)
{
	char device[512], chip[128];
	glob_t found;

	jm_find_files(&found, "%s" FOLDER "/hwmon*", s->ctx->root);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		name_chip(found.gl_pathv[i], chip, sizeof(chip));
		find_in(s, chip, found.gl_pathv[i]);
		snprintf(device, sizeof(device), "%s/device", found.gl_pathv[i]);
		find_in(s, chip, device);
	}
	globfree(&found);
}

/* ---- opening ---- */

/* The channel that the user named covers what the user says. */
static int take_named(struct state *s, struct jm_err *err)
{
	const char *name = s->named, *covers = s->covers;
	bool found = false;

	if (!name && !covers)
		return 0;
	if (!name || !covers)
		return jm_err_set(err, JM_EUSAGE,
			"The source hwmon needs both channel=NAME and covers=PATHS, as in "
			"'hwmon:channel=power_meter-ACPI000D:00/power1,covers=/'; 'joulemark "
			"doctor' "
			"lists the channels.");
	for (int i = 0; i < s->n; i++) {
		struct channel *c = &s->channel[i];
		bool named = !strcmp(c->name, name) || !strcmp(c->label, name);

		found = found || named;
		snprintf(c->covers, sizeof(c->covers), "%s", named ? covers : "");
		c->scope = strcmp(covers, "/") ? JM_SCOPE_PLATFORM : JM_SCOPE_NODE;
	}
	if (found)
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"There is no channel '%s' in %s" FOLDER "; 'joulemark doctor' lists them.", name,
		s->ctx->root);
}

static bool usable(const struct channel *c)
{
	return !c->error && c->covers[0];
}

static int add_meter(struct channel *c, struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {
		.source = "hwmon", .scope = c->scope, .origin = JM_MEASURED, .covers = c->covers};
	struct jm_signal signal = {.quantity = c->energy ? JM_Q_ENERGY : JM_Q_POWER,
		.step = 1e-6,
		.refresh_ns = c->interval_ns,
		.window_ns = c->energy ? 0 : (c->interval_ns ? c->interval_ns : -1),
		.accuracy = NAN};
	int rc;

	snprintf(meter.id, sizeof(meter.id), "hwmon:%.110s", c->name);
	snprintf(meter.label, sizeof(meter.label), "%.60s", c->label[0] ? c->label : c->name);
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = jm_meters_add_signal(set, &signal, err);
	return rc < 0 ? rc : 0;
}

static void hwmon_close(void *state)
{
	struct state *s = state;

	for (int i = 0; s && i < s->n; i++)
		if (s->channel[i].fd >= 0)
			close(s->channel[i].fd);
	free(s);
}

static int nothing_usable(const struct state *s, struct jm_err *err)
{
	for (int i = 0; i < s->n; i++)
		if (s->channel[i].covers[0])
			return jm_err_set(err, JM_EPERM,
				"The channel %s in %s cannot be read (%s); run as root, or let "
				"your "
				"group read it by a udev rule.",
				s->channel[i].name, s->channel[i].folder,
				strerror(s->channel[i].error));
	return jm_err_set(err, JM_ENOENT,
		"No hardware monitor in %s" FOLDER
		" has a power channel of which joulemark knows what it measures (%d channels of "
		"other kinds); name one with 'hwmon:channel=NAME,covers=PATHS'.",
		s->ctx->root, s->n);
}

static int hwmon_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int added = 0, rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the hardware monitors.");
	s->ctx = ctx;
	JM_FILL(options, s);
	find_channels(s);
	rc = take_named(s, err);
	for (int i = 0; !rc && i < s->n; i++) {
		if (!usable(&s->channel[i]))
			continue;
		rc = add_meter(&s->channel[i], set, err);
		added++;
	}
	if (!rc && !added)
		rc = nothing_usable(s, err);
	if (rc)
		hwmon_close(s);
	else
		*ret_state = s;
	return rc;
}

/* An ACPI meter that has no value yet says 0. */
static double plausible(const struct channel *c, double value)
{
	bool named = c->scope == JM_SCOPE_NODE || c->scope == JM_SCOPE_PLATFORM;
	double most = named ? JM_MAX_WATTS : JM_MAX_DEVICE_WATTS;

	return c->energy || (value > 0 && value <= most) ? value : NAN;
}

static int hwmon_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	int signal = 0;

	(void)err;
	for (int i = 0; i < s->n; i++)
		if (usable(&s->channel[i])) {
			double value = jm_sysfs_micro_now(s->channel[i].fd);

			jm_give(sink, signal++, plausible(&s->channel[i], value),
				jm_ctx_now(s->ctx));
		}
	return 0;
}

static void hwmon_doctor(struct jm_ctx *ctx, jm_finding_fn *say, void *arg)
{
	struct state *s = calloc(1, sizeof(*s));
	struct jm_finding none = {.what = FOLDER,
		.why = "no hardware monitor has a power or energy channel",
		.mend = "Grace and some servers have them; most machines do not",
		.absent = true};

	if (!s)
		return;
	s->ctx = ctx;
	find_channels(s);
	for (int i = 0; i < s->n; i++) {
		const struct channel *c = &s->channel[i];
		char why[400], mend[400] = "";
		struct jm_finding f = {.ok = usable(c), .what = c->name, .why = why, .mend = mend};

		if (c->error)
			snprintf(why, sizeof(why), "%s: %s", c->label, strerror(c->error));
		else
			snprintf(why, sizeof(why), "%s%s%s", c->label, *c->label ? ": " : "",
				*c->covers ? c->covers : "what it measures is not known");
		if (c->error)
			snprintf(mend, sizeof(mend),
				"run as root, or let your group read it by a udev rule");
		else if (!*c->covers)
			snprintf(mend, sizeof(mend), "--source hwmon:channel=%s,covers=PATHS",
				c->name);
		say(arg, &f);
	}
	if (!s->n)
		say(arg, &none);
	hwmon_close(s);
}

static const struct jm_option options[] = {
	{.name = "channel",
		JM_BIND(JM_TEXT, struct state, named),
		.argument = "NAME",
		.help = "name or label of one channel, in place of the known ones"},
	{.name = "covers",
		JM_BIND(JM_TEXT, struct state, covers),
		.argument = "PATHS",
		.help = "what that channel measures: / (the node), cpu/0, gpu/UUID..., with spaces "
			"between"},
	{0},
};

const struct jm_source jm_source_hwmon = {
	.name = "hwmon",
	.summary = "Linux hardware monitors: NVIDIA Grace modules, any named power channel",
	.options = options,
	.origin = JM_MEASURED,
	.open = hwmon_open,
	.read = hwmon_read,
	.close = hwmon_close,
	.doctor = hwmon_doctor,
};
