/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The circumstances of a node: its inlet temperature and fans from Linux's hardware monitors
 * (Documentation/hwmon/sysfs-interface.rst: millidegrees, revolutions per minute), how busy its AMD
 * GPUs are (gpu_busy_percent of amdgpu), and what cools it, which only the user knows. A
 * temperature is the inlet's if its label says so, or if the user names its channel. NVIDIA's
 * utilisation is a signal of the source nvml.
 */
#include "base/ctx.h"
#include "base/files/find_files.h"
#include "base/clock.h"
#include "meter/source.h"
#include "base/text/number.h"
#include "sysfs_text.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_CHANNELS 64
#define REFRESH_NS   JM_SECOND /* it is not read more often: some chips sit on slow buses */

static const struct kind {
	const char *pattern;
	enum jm_quantity quantity;
	double scale; /* to the quantity's unit, from that of the file */
	double least, most;
} kinds[] = {
	{"/sys/class/hwmon/hwmon*/temp*_input", JM_Q_TEMPERATURE, 1e-3, -50, 150},
	{"/sys/class/hwmon/hwmon*/fan*_input", JM_Q_FAN, 1, 0, 2e5},
	{"/sys/class/drm/card*/device/gpu_busy_percent", JM_Q_UTILISATION, 0.01, 0, 1},
};
#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

struct state {
	struct jm_ctx *ctx;
	const char *inlet, *cooling; /* options, while it is opened */
	int64_t last_ns;
	int n;
	struct channel {
		const struct kind *kind;
		int fd;
		struct jm_reading last;
	} channel[MAX_CHANNELS];
};

/* ---- finding ---- */

/* Of one file: "/sys/class/hwmon/hwmon3/temp1_input" of a chip "nct6798" on a device
 * "nct6775.656". */
struct name {
	char folder[400], chip[40], device[40], channel[24], label[64];
};

/* The last part of the path that a link leads to; the link's own name where it leads nowhere. */
static void target_of(const char *link, char *out, size_t size)
{
	char real[PATH_MAX];

	if (!realpath(link, real))
		snprintf(real, sizeof(real), "%.400s", link);
	snprintf(out, size, "%.39s", strrchr(real, '/') + 1);
}

static void name_of(const char *path, struct name *ret)
{
	const char *file = strrchr(path, '/') + 1;
	char link[PATH_MAX], label[40];

	snprintf(ret->folder, sizeof(ret->folder), "%.*s", (int)(file - 1 - path), path);
	snprintf(ret->channel, sizeof(ret->channel), "%.*s", (int)strcspn(file, "_"), file);
	/* a folder: a PCI device has a file of that name, with its number */
	snprintf(link, sizeof(link), "%s/device/.", ret->folder);
	target_of(access(link, F_OK) ? ret->folder : link, ret->device, sizeof(ret->device));
	if (!jm_sysfs_line(ret->folder, "name", ret->chip, sizeof(ret->chip)))
		snprintf(ret->chip, sizeof(ret->chip), "GPU");
	snprintf(label, sizeof(label), "%s_label", ret->channel);
	if (!jm_sysfs_line(ret->folder, label, ret->label, sizeof(ret->label)))
		snprintf(ret->label, sizeof(ret->label), "%.39s %.22s", ret->chip, ret->channel);
}

/* inlet: chip/channel that the user named; NULL = none */
static bool is_wanted(const struct kind *kind, const struct name *name, const char *inlet)
{
	char channel[80];

	if (kind->quantity != JM_Q_TEMPERATURE)
		return true;
	snprintf(channel, sizeof(channel), "%s/%s", name->chip, name->channel);
	if (inlet)
		return !strcmp(channel, inlet);
	return strcasestr(name->label, "inlet") || strcasestr(name->label, "ambient");
}

static int add_meter(const char *id, const char *label, struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {
		.source = "context", .scope = JM_SCOPE_CONTEXT, .origin = JM_MEASURED};

	snprintf(meter.id, sizeof(meter.id), "context:%.110s", id);
	snprintf(meter.label, sizeof(meter.label), "%.63s", label);
	return jm_meters_add(set, &meter, err);
}

static int add_channel(struct state *s, const struct kind *kind, const char *path,
	const char *inlet, struct jm_meters *set, struct jm_err *err)
{
	struct jm_signal signal = {
		.quantity = kind->quantity, .step = kind->scale, .window_ns = -1, .accuracy = NAN};
	struct name name;
	char id[140];
	int fd, rc;

	name_of(path, &name);
	if (s->n == MAX_CHANNELS || !is_wanted(kind, &name, inlet))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	snprintf(id, sizeof(id), "%s-%s/%s", name.chip, name.device, name.channel);
	rc = add_meter(id, name.label, set, err);
	rc = rc < 0 ? rc : jm_meters_add_signal(set, &signal, err);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	s->channel[s->n++] = (struct channel){kind, fd, {.value = NAN}};
	return 0;
}

static int find_kind(
	struct state *s, const struct kind *kind, struct jm_meters *set, struct jm_err *err)
{
	glob_t found;
	int rc = 0;

	jm_find_files(&found, "%s%s", s->ctx->root, kind->pattern);
	for (size_t i = 0; i < found.gl_pathc && !rc; i++)
		rc = add_channel(s, kind, found.gl_pathv[i], s->inlet, set, err);
	globfree(&found);
	return rc;
}

static void context_close(void *state)
{
	struct state *s = state;

	for (int i = 0; s && i < s->n; i++)
		close(s->channel[i].fd);
	free(s);
}

static int find_all(struct state *s, struct jm_meters *set, struct jm_err *err)
{
	int rc = 0;

	for (int i = 0; i < KINDS && !rc; i++) {
		int before = s->n;

		rc = find_kind(s, &kinds[i], set, err);
		if (!rc && s->inlet && kinds[i].quantity == JM_Q_TEMPERATURE && s->n == before)
			return jm_err_set(err, JM_ENOENT,
				"No temperature of a hardware monitor is called %s; "
				"'inlet=CHIP/tempN' takes the name of the chip and of its file "
				"in /sys/class/hwmon.",
				s->inlet);
	}
	return rc;
}

static int context_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	char label[64];
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the source context.");
	s->ctx = ctx;
	JM_FILL(options, s);
	rc = find_all(s, set, err);
	if (!rc && s->cooling) {
		snprintf(label, sizeof(label), "cooling: %.50s", s->cooling);
		rc = add_meter("cooling", label, set, err);
	}
	if (rc >= 0 && !s->n && !s->cooling)
		rc = jm_err_set(err, JM_ENOENT,
			"Linux's hardware monitors (/sys/class/hwmon) show neither an inlet "
			"temperature nor a fan, and there is no AMD GPU; "
			"'context:inlet=CHIP/tempN' "
			"names a temperature that is not labelled as the inlet's.");
	if (rc < 0) {
		context_close(s);
		return rc;
	}
	*ret_state = s;
	return 0;
}

/* ---- reading ---- */

static double read_channel(const struct channel *c)
{
	char text[32];
	double value;

	jm_sysfs_line_now(c->fd, text, sizeof(text));
	if (!jm_number_real(text, &value))
		return NAN;
	value *= c->kind->scale;
	return value >= c->kind->least && value <= c->kind->most ? value : NAN;
}

static int context_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	int64_t now = jm_ctx_now(s->ctx);
	bool due = !s->last_ns || now - s->last_ns >= REFRESH_NS - JM_MILLISECOND;

	(void)err;
	if (due)
		s->last_ns = now;
	for (int i = 0; i < s->n; i++) {
		struct channel *c = &s->channel[i];

		if (due)
			c->last = (struct jm_reading){
				.value = read_channel(c), .t_ns = jm_ctx_now(s->ctx)};
		sink->give(sink, i, 1, &c->last);
	}
	return 0;
}

static const struct jm_option options[] = {
	{.name = "inlet",
		JM_BIND(JM_TEXT, struct state, inlet),
		.argument = "CHIP/tempN",
		.help = "the temperature of the inlet, as a file of a hardware monitor"},
	{.name = "cooling",
		JM_BIND(JM_TEXT, struct state, cooling),
		.argument = "TEXT",
		.help = "what cools the node, for the record, such as air, liquid or rear door"},
	{0},
};

const struct jm_source jm_source_context = {
	.name = "context",
	.summary = "circumstances: inlet temperature, fans, utilisation of AMD GPUs, cooling",
	.options = options,
	.origin = JM_MEASURED,
	.on_request = true,
	.open = context_open,
	.read = context_read,
	.close = context_close,
};
