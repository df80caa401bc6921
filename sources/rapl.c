/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RAPL through Linux's powercap files: energy counters of processor packages, their cores and
 * uncore, DRAM and the platform, of Intel and AMD processors. Layout: Documentation/power/powercap
 * of Linux. Since CVE-2020-8694 (Linux 5.10) only root may read energy_uj unless its mode was
 * changed.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "base/text/number.h"
#include "meter/source.h"
#include "sysfs_text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER	"/sys/class/powercap"
#define REFRESH JM_MILLISECOND /* Intel SDM vol. 3B, 15.10: about once a millisecond */

struct zone {
	char folder[64]; /* "intel-rapl:0:1" */
	char name[64];	 /* "package-0", "core", "dram" */
	char covers[64];
	enum jm_scope scope;
	double wrap;
	int fd, error; /* error: errno where fd is -1 */
	bool twin;     /* the same part also has a zone of another interface */
	bool dead;     /* a package whose counter stands at 0 */
};

struct state {
	struct jm_ctx *ctx;
	struct zone *zone;
	int n, error; /* error: errno where the folder cannot be read */
};

/* "intel-rapl:0:1" is inside "intel-rapl:0". */
static const struct zone *parent_of(const struct state *s, const struct zone *zone)
{
	const char *last = strrchr(zone->folder, ':');

	for (int i = 0; i < s->n; i++)
		if (strlen(s->zone[i].folder) == (size_t)(last - zone->folder) &&
			!strncmp(s->zone[i].folder, zone->folder, (size_t)(last - zone->folder)))
			return &s->zone[i];
	return NULL;
}

/* What a zone of that name inside `inside` includes; false for a kind that is not known. */
static bool classify(
	const char *name, const char *inside, char *covers, size_t size, enum jm_scope *ret_scope)
{
	int package, die = -1;

	if (sscanf(name, "package-%d-die-%d", &package, &die) >= 1) {
		*ret_scope = JM_SCOPE_PACKAGE;
		snprintf(covers, size, die < 0 ? "cpu/%d" : "cpu/%d/die/%d", package, die);
	} else if (!strcmp(name, "psys")) {
		*ret_scope = JM_SCOPE_PLATFORM;
		snprintf(covers, size, "cpu dram platform");
	} else if (!strcmp(name, "dram")) {
		*ret_scope = JM_SCOPE_DRAM;
		snprintf(covers, size, "dram/%.40s",
			strncmp(inside, "cpu/", 4) ? inside : inside + 4);
	} else if (!strcmp(name, "core") || !strcmp(name, "uncore")) {
		*ret_scope = name[0] == 'c' ? JM_SCOPE_CORE : JM_SCOPE_UNCORE;
		snprintf(covers, size, "%.40s/%.8s", inside, name);
	} else {
		return false;
	}
	return true;
}

static bool usable(const struct zone *zone)
{
	return !zone->error && !zone->twin && !zone->dead;
}

/* Packages are there twice on machines with the MMIO interface: the first one that can be read
 * counts. */
static bool is_twin(const struct state *s, const struct zone *zone)
{
	for (int i = 0; i < s->n; i++)
		if (usable(&s->zone[i]) && !strcmp(s->zone[i].covers, zone->covers))
			return true;
	return false;
}

static void add_zone(struct state *s, const char *folder)
{
	struct zone *zone = &s->zone[s->n];
	const struct zone *parent;
	char text[64], at[400], path[512], covers[64];
	uint64_t range;
	double now;

	*zone = (struct zone){.fd = -1};
	if (strlen(folder) >= sizeof(zone->folder))
		return;
	memcpy(zone->folder, folder, strlen(folder) + 1);
	snprintf(at, sizeof(at), "%s" FOLDER "/%s", s->ctx->root, zone->folder);
	parent = parent_of(s, zone);
	if (!jm_sysfs_line(at, "name", zone->name, sizeof(zone->name)) ||
		!classify(zone->name, parent ? parent->covers : "cpu/0", covers, sizeof(covers),
			&zone->scope))
		return;
	memcpy(zone->covers, covers, sizeof(zone->covers));
	if (jm_sysfs_line(at, "max_energy_range_uj", text, sizeof(text)))
		zone->wrap = jm_number_whole(text, UINT64_MAX, &range) ? (double)range / 1e6 : 0;
	zone->twin = is_twin(s, zone);
	snprintf(path, sizeof(path), "%s/energy_uj", at);
	zone->fd = open(path, O_RDONLY | O_CLOEXEC);
	zone->error = zone->fd < 0 ? errno : 0;
	now = zone->error ? NAN : jm_sysfs_micro_now(zone->fd);
	if (!zone->error && isnan(now))
		zone->error = EIO;
	zone->dead = zone->scope == JM_SCOPE_PACKAGE && now == 0;
	s->n++;
}

/* Real zones have a number: "intel-rapl:0", not "intel-rapl". */
static int is_zone(const struct dirent *entry)
{
	return strstr(entry->d_name, "rapl") && strchr(entry->d_name, ':');
}

/* By interface, then by number, so that parents come before their parts. */
static int by_number(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int find_zones(struct state *s)
{
	struct dirent **entries;
	char path[300];
	int n;

	snprintf(path, sizeof(path), "%s" FOLDER, s->ctx->root);
	n = scandir(path, &entries, is_zone, by_number);
	s->error = n < 0 ? errno : 0;
	s->zone = n > 0 ? calloc((size_t)n, sizeof(*s->zone)) : NULL;
	/* "intel-rapl-mmio:0" sorts before "intel-rapl:0" but must lose against it */
	for (int mmio = 0; mmio < 2; mmio++)
		for (int i = 0; s->zone && i < n; i++)
			if (!!strstr(entries[i]->d_name, "mmio") == mmio)
				add_zone(s, entries[i]->d_name);
	for (int i = 0; i < n; i++)
		free(entries[i]);
	if (n >= 0)
		free(entries);
	return s->n;
}

/* "CPU 0", "CPU 0 core", "CPU 0 die 1", "DRAM 0": what it covers. */
static void set_label(const struct zone *zone, char *out, size_t size)
{
	if (zone->scope == JM_SCOPE_PLATFORM)
		snprintf(out, size, "platform");
	else if (!strncmp(zone->covers, "cpu/", 4))
		snprintf(out, size, "CPU %.40s", zone->covers + 4);
	else if (!strncmp(zone->covers, "dram/", 5))
		snprintf(out, size, "DRAM %.40s", zone->covers + 5);
	else
		snprintf(out, size, "%.40s", zone->covers);
	for (char *c = strchr(out, '/'); c; c = strchr(c, '/'))
		*c = ' ';
}

static int add_meter(struct zone *zone, struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {
		.source = "rapl",
		.scope = zone->scope,
		.origin = JM_MEASURED,
	};
	struct jm_signal energy = {
		.quantity = JM_Q_ENERGY,
		.step = 1e-6,
		.wrap = zone->wrap,
		.refresh_ns = REFRESH,
		.accuracy = NAN,
	};
	int rc;

	snprintf(meter.id, sizeof(meter.id), "rapl:" FOLDER "/%s", zone->folder);
	snprintf(meter.device, sizeof(meter.device), FOLDER "/%s", zone->folder);
	meter.covers = zone->covers;
	set_label(zone, meter.label, sizeof(meter.label));
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = jm_meters_add_signal(set, &energy, err);
	return rc < 0 ? rc : 0;
}

static void rapl_close(void *state)
{
	struct state *s = state;

	for (int i = 0; s && i < s->n; i++)
		if (s->zone[i].fd >= 0)
			close(s->zone[i].fd);
	if (s)
		free(s->zone);
	free(s);
}

/* Why no zone can be used: there is none, or the permission is missing. */
static int nothing_usable(const struct state *s, struct jm_err *err)
{
	const struct zone *first = &s->zone[0];

	if (s->error == EACCES || s->error == EPERM)
		return jm_err_set(err, JM_EPERM,
			"The folder %s" FOLDER " may not be read; run as root.", s->ctx->root);
	if (!s->n)
		return jm_err_set(err, JM_ENOENT,
			"There are no RAPL zones in %s" FOLDER
			"; the processor has none, the machine is virtual, or the kernel module "
			"intel_rapl_msr is not loaded (try 'modprobe intel_rapl_msr').",
			s->ctx->root);
	for (int i = 1; i < s->n && !first->error; i++)
		first = &s->zone[i];
	if (first->error == EACCES || first->error == EPERM)
		return jm_err_set(err, JM_EPERM,
			"%s" FOLDER "/%s/energy_uj may be read by root only (since CVE-2020-8694); "
			"run as root, "
			"or see 'joulemark doctor' for the lines that let your group read it.",
			s->ctx->root, first->folder);
	if (first->error)
		return jm_err_set(err, JM_EIO, "Cannot read %s" FOLDER "/%s/energy_uj: %s.",
			s->ctx->root, first->folder, strerror(first->error));
	return jm_err_set(err, JM_ENOSUP,
		"The RAPL counters in %s" FOLDER
		" stay at 0, as on virtual machines; nothing can be measured.",
		s->ctx->root);
}

static int rapl_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int added = 0, rc = 0;

	(void)options;
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for RAPL.");
	s->ctx = ctx;
	find_zones(s);
	for (int i = 0; !rc && i < s->n; i++) {
		if (!usable(&s->zone[i]))
			continue;
		rc = add_meter(&s->zone[i], set, err);
		added++;
	}
	if (!rc && !added)
		rc = nothing_usable(s, err);
	if (rc)
		rapl_close(s);
	else
		*ret_state = s;
	return rc;
}

static int rapl_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;

	(void)err;
	for (int i = 0, k = 0; i < s->n; i++) {
		if (!usable(&s->zone[i]))
			continue;
		jm_give(sink, k++, jm_sysfs_micro_now(s->zone[i].fd), jm_ctx_now(s->ctx));
	}
	return 0;
}

/* The lines that let the group of this user read the counters, now and after each start. */
static void let_group_read(const struct state *s, char *out, size_t size)
{
	const struct group *group = getgrgid(getegid());
	char number[32];

	snprintf(number, sizeof(number), "%u", (unsigned int)getegid());
	snprintf(out, size,
		"since CVE-2020-8694 only root may read it; run as root, or let your group read it "
		"with "
		"these lines:\n"
		"echo 'z %s" FOLDER "/*rapl*/energy_uj 0440 root %s' |\n"
		"    sudo tee /etc/tmpfiles.d/rapl.conf\n"
		"sudo systemd-tmpfiles --create rapl.conf",
		s->ctx->root, group ? group->gr_name : number);
}

static void say_zone(const struct state *s, const struct zone *zone, jm_finding_fn *say, void *arg)
{
	char what[384], why[160], mend[1024];
	struct jm_finding f = {.ok = usable(zone), .what = what, .why = why, .mend = ""};

	snprintf(what, sizeof(what), "%s" FOLDER "/%s/energy_uj", s->ctx->root, zone->folder);
	if (zone->error) {
		snprintf(why, sizeof(why), "%s: %s", zone->name, strerror(zone->error));
		f.mend = "see the kernel's log for intel_rapl";
		if (zone->error == EACCES || zone->error == EPERM) {
			let_group_read(s, mend, sizeof(mend));
			f.mend = mend;
		}
	} else if (zone->twin) {
		f.ok = true;
		snprintf(why, sizeof(why), "%s: the same as another zone; ignored", zone->name);
	} else if (zone->dead) {
		snprintf(why, sizeof(why), "%s: its counter stays at 0", zone->name);
		f.mend = "virtual machines have no RAPL; measure on the host";
	} else {
		snprintf(why, sizeof(why), "energy of %s (%s)", zone->covers, zone->name);
	}
	say(arg, &f);
}

static void rapl_doctor(struct jm_ctx *ctx, jm_finding_fn *say, void *arg)
{
	struct state *s = calloc(1, sizeof(*s));
	struct jm_err err = JM_ERR_INIT;
	struct jm_finding none = {
		.what = FOLDER, .why = err.text, .mend = "use a machine with RAPL, or 'estimate'"};

	if (!s)
		return;
	s->ctx = ctx;
	find_zones(s);
	for (int i = 0; i < s->n; i++)
		say_zone(s, &s->zone[i], say, arg);
	if (!s->n) {
		nothing_usable(s, &err);
		none.absent = err.code == JM_ENOENT;
		say(arg, &none);
	}
	rapl_close(s);
}

const struct jm_source jm_source_rapl = {
	.name = "rapl",
	.summary = "energy counters of processors and memory (Linux powercap)",
	.origin = JM_MEASURED,
	.open = rapl_open,
	.read = rapl_read,
	.close = rapl_close,
	.doctor = rapl_doctor,
};
