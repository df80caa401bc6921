/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An estimate of processor power where nothing measures it: watts at rest plus watts for each busy
 * logical processor, from the times in /proc/stat. "estimate:core=WATTS,idle=WATTS" gives the two
 * numbers; the defaults are 2.76 W for a busy one and 0.74 W at rest for each, the means over
 * server processors in the SPECpower results that Cloud Carbon Footprint's methodology lists (0.74
 * to 3.5 W each). A real machine may be off by a factor of two or more: such a figure is always
 * marked, and never decides anything.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "base/option.h"
#include "meter/source.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORE_WATTS   "2.76"
#define IDLE_WATTS   0.74 /* for each logical processor */
#define MAX_WATTS    100000
#define MAX_PACKAGES 64
#define MAX_CPUS     8192
#define REFRESH	     (100 * JM_MILLISECOND)

struct state {
	struct jm_ctx *ctx;
	int fd, n_packages, n_cpus;
	int64_t opened_ns, read_ns;
	double core_watts, idle_watts; /* idle: of the machine */
	int cpus_of[MAX_PACKAGES];
	double busy[MAX_PACKAGES];    /* s, of all its processors since it was opened */
	double counted[MAX_PACKAGES]; /* s of that which is in the energy */
	short package_of[MAX_CPUS];   /* -1 = not there when it was opened */
	double last[MAX_CPUS];	      /* s, busy time as it was last read */
	size_t room;
	char *text;
};

static int package_of(const struct jm_ctx *ctx, int cpu)
{
	char path[384];
	int package = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
		ctx->root, cpu);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%d", &package) != 1 || package < 0 || package >= MAX_PACKAGES)
		package = 0;
	fclose(f);
	return package;
}

/* The lines of /proc/stat about processors; false when it cannot be read. */
static bool read_stat(struct state *s)
{
	size_t used = 0;
	ssize_t n;

	for (;;) {
		if (s->room - used < 4096) {
			char *grown = realloc(s->text, s->room + 16384);

			if (!grown)
				return false;
			s->text = grown;
			s->room += 16384;
		}
		n = pread(s->fd, s->text + used, s->room - used - 1, (off_t)used);
		if (n <= 0)
			break;
		used += (size_t)n;
		s->text[used] = '\0';
		if (strstr(s->text, "\nintr"))
			break;
	}
	return n >= 0 && used > 0;
}

/* Calls fn for each "cpuN" line with the seconds it was busy. Times: proc(5). False: they cannot be
 * read. */
static bool each_cpu(struct state *s, void (*fn)(struct state *s, int cpu, double busy))
{
	double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);

	if (!read_stat(s))
		return false;
	for (char *line = s->text; line; line = strchr(line, '\n')) {
		unsigned long long user, nice, system, idle, iowait, irq, softirq;
		int cpu;

		line += *line == '\n';
		/* "cpu  1 2 3" is all of them together, which %d would take for processor 1 */
		if (strncmp(line, "cpu ", 4) &&
			sscanf(line, "cpu%d %llu %llu %llu %llu %llu %llu %llu", &cpu, &user, &nice,
				&system, &idle, &iowait, &irq, &softirq) == 8 &&
			cpu >= 0 && cpu < MAX_CPUS)
			fn(s, cpu, (double)(user + nice + system + irq + softirq) * tick);
	}
	return true;
}

static void note_cpu(struct state *s, int cpu, double busy)
{
	int package = package_of(s->ctx, cpu);

	s->package_of[cpu] = (short)package;
	s->last[cpu] = busy;
	s->cpus_of[package]++;
	s->n_cpus++;
}

/* A processor that was taken offline has no line; its time goes on, or begins again, when it is
 * back. */
static void add_busy(struct state *s, int cpu, double busy)
{
	if (s->package_of[cpu] < 0)
		return;
	s->busy[s->package_of[cpu]] += fmax(0, busy - s->last[cpu]);
	s->last[cpu] = busy;
}

static double idle_share(const struct state *s, int package)
{
	return s->idle_watts * s->cpus_of[package] / s->n_cpus;
}

static int add_meter(struct state *s, int package, struct jm_meters *set, struct jm_err *err)
{
	char covers[32];
	struct jm_meter meter = {.source = "estimate",
		.scope = JM_SCOPE_PACKAGE,
		.origin = JM_ESTIMATED,
		.covers = covers};
	struct jm_signal energy = {
		.quantity = JM_Q_ENERGY,
		.step = s->core_watts / (double)sysconf(_SC_CLK_TCK),
		.refresh_ns = REFRESH,
		.accuracy = NAN,
		.stamped = true,
	};
	int rc;

	snprintf(meter.id, sizeof(meter.id), "estimate:cpu/%d", package);
	snprintf(covers, sizeof(covers), "cpu/%d", package);
	snprintf(meter.label, sizeof(meter.label), "CPU %d", package);
	snprintf(meter.about, sizeof(meter.about), "%.3g W + %.3g W per busy core",
		idle_share(s, package), s->core_watts);
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = jm_meters_add_signal(set, &energy, err);
	return rc < 0 ? rc : 0;
}

static void estimate_close(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	free(s->text);
	free(s);
}

static int find_cpus(struct state *s, struct jm_err *err)
{
	char path[300];

	for (int i = 0; i < MAX_CPUS; i++)
		s->package_of[i] = -1;
	snprintf(path, sizeof(path), "%s/proc/stat", s->ctx->root);
	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || !each_cpu(s, note_cpu) || !s->n_cpus)
		return jm_err_set(err, JM_ENOENT,
			"Cannot read processor times from %s, which the estimate needs; mount "
			"/proc.",
			path);
	if (isnan(s->idle_watts))
		s->idle_watts = IDLE_WATTS * s->n_cpus;
	s->opened_ns = s->read_ns = jm_ctx_now(s->ctx);
	return 0;
}

static int estimate_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the estimate.");
	s->ctx = ctx;
	s->fd = -1;
	JM_FILL(options, s);
	rc = find_cpus(s, err);
	for (int i = 0; !rc && i < MAX_PACKAGES; i++)
		if (s->cpus_of[i])
			rc = add_meter(s, i, set, err);
	if (rc)
		estimate_close(s);
	else
		*ret_state = s;
	return rc;
}

/* The kernel credits busy time in whole ticks, so that of a short interval may be longer than the
 * interval: what its processors cannot have done in it counts in the next ones. */
static double count_busy(struct state *s, int package, double seconds)
{
	double most = s->counted[package] + s->cpus_of[package] * seconds;

	s->counted[package] = fmin(s->busy[package], most);
	return s->counted[package];
}

static int estimate_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	bool known = each_cpu(s, add_busy);
	int64_t now = jm_ctx_now(s->ctx);
	double elapsed = (double)(now - s->opened_ns) * 1e-9;
	double since = (double)(now - s->read_ns) * 1e-9;

	(void)err;
	for (int i = 0, k = 0; i < MAX_PACKAGES; i++) {
		if (!s->cpus_of[i])
			continue;
		jm_give(sink, k++,
			known ? idle_share(s, i) * elapsed + s->core_watts * count_busy(s, i, since)
			      : NAN,
			now);
	}
	if (known)
		s->read_ns = now;
	return 0;
}

static const struct jm_option options[] = {
	{.name = "core",
		JM_BIND(JM_REAL, struct state, core_watts),
		.unit = "W",
		.max = MAX_WATTS,
		.fallback = CORE_WATTS,
		.argument = "WATTS",
		.help = "power of a busy core beyond its share of the idle power"},
	{.name = "idle",
		JM_BIND(JM_REAL, struct state, idle_watts),
		.unit = "W",
		.max = MAX_WATTS,
		.argument = "WATTS",
		.help = "power of all processors together while they are idle"},
	{0},
};

const struct jm_source jm_source_estimate = {
	.name = "estimate",
	.summary = "processor times x watts; estimated, not measured",
	.options = options,
	.origin = JM_ESTIMATED,
	.open = estimate_open,
	.read = estimate_read,
	.close = estimate_close,
};
