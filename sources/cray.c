/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Node, processors, memory and accelerators of HPE Cray nodes, from the counters that the blade's
 * controller writes into /sys/cray/pm_counters ("User Access to Compute Node Power Data", HPE Cray
 * EX system software). Each file holds a whole number, its unit and the controller's time in
 * microseconds since 1970; "freshness" counts the updates, so two equal readings of it enclose
 * values of one update; "startup" changes when the counters were started again; "raw_scan_hz" is
 * the rate of the sensors. The node's figures include those of its parts. The files do not say
 * which GPU an accelerator is: its meter and the GPU's own are separate, both of them inside the
 * node. Not verified: that the controller's clock agrees with the node's (a stamp more than five
 * seconds away is not used), and the time over which power is a mean.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "base/text/number.h"
#include "meter/source.h"
#include "parse_reading.h"
#include "sysfs_text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER	  "/sys/cray/pm_counters"
#define MAX_ACCEL 16
#define MAX_FILES (3 * (3 + MAX_ACCEL))
#define ATTEMPTS  3
#define STALE                                                                                      \
	(3 * JM_SECOND) /* without an update for so long its values are not the present ones */
#define STAMP_SLACK  (5 * JM_SECOND)
#define MAX_INTERVAL (100 * JM_SECOND)

static const struct {
	const char *suffix;
	enum jm_quantity quantity;
	char unit;
} kinds[] = {
	{"energy", JM_Q_ENERGY, 'J'},
	{"power", JM_Q_POWER, 'W'},
	{"power_cap", JM_Q_LIMIT, 'W'},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct file {
	int fd, kind;
	double value;
	int64_t stamp_us, t_ns;
};

struct state {
	struct jm_ctx *ctx;
	int freshness, startup; /* descriptors; -1 = no such file */
	uint64_t update, started;
	int64_t updated_ns; /* when freshness was seen to change */
	int64_t refresh_ns;
	bool restarted;
	int n;
	struct file file[MAX_FILES];
};

static int open_file(const struct state *s, const char *prefix, const char *name)
{
	char path[400];

	snprintf(path, sizeof(path), "%s" FOLDER "/%s%s", s->ctx->root, prefix, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static uint64_t read_whole(int fd)
{
	char text[64];
	uint64_t value;

	jm_sysfs_line_now(fd, text, sizeof(text));
	text[strcspn(text, " ")] = '\0';
	return jm_number_whole(text, UINT64_MAX, &value) ? value : 0;
}

/* ---- reading ---- */

/* The stamp as time of our clock; a stamp that stands still keeps its time to the nanosecond. */
static int64_t time_of(const struct file *f, int64_t stamp_us, int64_t offset, int64_t now)
{
	int64_t t = stamp_us * 1000 - offset;

	if (stamp_us && stamp_us == f->stamp_us)
		return f->t_ns;
	if (!stamp_us || t > now || t < now - STAMP_SLACK)
		t = now;
	return t < f->t_ns ? f->t_ns : t;
}

static void read_file(struct file *f, int64_t offset, int64_t now)
{
	int64_t stamp_us;
	char text[96];

	jm_sysfs_line_now(f->fd, text, sizeof(text));
	f->value = jm_parse_cray(text, kinds[f->kind].unit, &stamp_us);
	f->t_ns = time_of(f, stamp_us, offset, now);
	f->stamp_us = stamp_us;
	/* 0 W: no cap, or no reading yet */
	if (kinds[f->kind].unit == 'W' && (f->value == 0 || f->value > JM_MAX_WATTS))
		f->value = NAN;
}

/* All files of one update. */
static void read_all(struct state *s)
{
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		uint64_t before = read_whole(s->freshness);
		int64_t now = jm_ctx_now(s->ctx), offset = jm_clock_wall(s->ctx->clock) - now;

		for (int i = 0; i < s->n; i++)
			read_file(&s->file[i], offset, now);
		if (before != s->update)
			s->updated_ns = now;
		s->update = before;
		if (read_whole(s->freshness) == before)
			return;
	}
}

/* A file that cannot be read says nothing; it reads as 0. */
static void note_restart(struct state *s)
{
	uint64_t started = s->restarted || s->startup < 0 ? 0 : read_whole(s->startup);

	if (!started || started == s->started)
		return;
	if (!s->started) { /* it is read for the first time */
		s->started = started;
		return;
	}
	s->restarted = true;
	jm_log(s->ctx, JM_WARNING,
		"The energy counters in " FOLDER
		" were restarted by the blade's controller; their new counts do not continue the "
		"old ones and are not used.");
}

static int cray_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	int64_t now;
	bool stale;

	(void)err;
	read_all(s);
	note_restart(s);
	now = jm_ctx_now(s->ctx);
	stale = s->freshness >= 0 && now - s->updated_ns > STALE;
	for (int i = 0; i < s->n; i++) {
		const struct file *f = &s->file[i];
		bool lost = stale || (s->restarted && kinds[f->kind].quantity == JM_Q_ENERGY);

		jm_give(sink, i, lost ? NAN : f->value, lost ? now : f->t_ns);
	}
	return 0;
}

/* ---- opening ---- */

static int add_signals(struct state *s, const int *fd, struct jm_meters *set, struct jm_err *err)
{
	int rc = 0;

	for (size_t k = 0; rc >= 0 && k < KINDS; k++) {
		struct jm_signal signal = {.quantity = kinds[k].quantity,
			.step = 1,
			.refresh_ns = s->refresh_ns,
			.window_ns = kinds[k].quantity == JM_Q_POWER ? -1 : 0,
			.accuracy = NAN};

		if (fd[k] < 0)
			continue;
		s->file[s->n++] = (struct file){.fd = fd[k], .kind = (int)k, .value = NAN};
		rc = jm_meters_add_signal(set, &signal, err);
	}
	return rc < 0 ? rc : 0;
}

/* The meter of one part, if it has files of energy or power; 1 = it has not. */
static int add_part(struct state *s, const char *prefix, const char *label, enum jm_scope scope,
	const char *covers, struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {
		.source = "cray", .scope = scope, .origin = JM_MEASURED, .covers = covers};
	int fd[KINDS], rc;

	for (size_t k = 0; k < KINDS; k++)
		fd[k] = open_file(s, prefix, kinds[k].suffix);
	if (fd[0] < 0 && fd[1] < 0) {
		if (fd[2] >= 0)
			close(fd[2]);
		return 1;
	}
	snprintf(meter.id, sizeof(meter.id), "cray:" FOLDER "/%senergy", prefix);
	snprintf(meter.label, sizeof(meter.label), "%s", label);
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = add_signals(s, fd, set, err);
	return rc < 0 ? rc : 0;
}

static int add_parts(struct state *s, struct jm_meters *set, struct jm_err *err)
{
	int rc = add_part(s, "", "node (Cray pm_counters)", JM_SCOPE_NODE, "/", set, err);

	if (rc == 1)
		return jm_err_set(err, errno == EACCES ? JM_EPERM : JM_ENOENT,
			"%s" FOLDER
			" has no counter of the node's energy or power that can be read (%s); "
			"HPE Cray nodes have it, other machines do not.",
			s->ctx->root, strerror(errno));
	if (rc >= 0)
		rc = add_part(s, "cpu_", "processors (Cray)", JM_SCOPE_PACKAGE, "cpu", set, err);
	if (rc >= 0)
		rc = add_part(s, "memory_", "memory (Cray)", JM_SCOPE_DRAM, "dram", set, err);
	for (int i = 0; rc >= 0 && i < MAX_ACCEL; i++) {
		char prefix[24], label[40], covers[24];

		snprintf(prefix, sizeof(prefix), "accel%d_", i);
		snprintf(label, sizeof(label), "accelerator %d (Cray)", i);
		snprintf(covers, sizeof(covers), "gpu/accel%d", i);
		rc = add_part(s, prefix, label, JM_SCOPE_GPU, covers, set, err);
	}
	return rc < 0 ? rc : 0;
}

static void cray_close(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	for (int i = 0; i < s->n; i++)
		close(s->file[i].fd);
	if (s->freshness >= 0)
		close(s->freshness);
	if (s->startup >= 0)
		close(s->startup);
	free(s);
}

static void read_rate(struct state *s)
{
	int fd = open_file(s, "", "raw_scan_hz");
	uint64_t hz = read_whole(fd);

	if (hz && hz <= 1000000)
		s->refresh_ns = JM_SECOND / (int64_t)hz;
	if (fd >= 0)
		close(fd);
}

/* A signal is stamped where the controller's stamps are believable. */
static void mark_stamped(const struct state *s, struct jm_meters *set, int first)
{
	int64_t now = jm_ctx_now(s->ctx), offset = jm_clock_wall(s->ctx->clock) - now;

	for (int i = 0; i < s->n; i++) {
		int64_t t = s->file[i].stamp_us * 1000 - offset;

		set->signal[first + i].stamped =
			s->file[i].stamp_us && t <= now && t >= now - STAMP_SLACK;
	}
}

static int cray_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int first = set->n_signals, rc;

	(void)options;
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the counters of Cray.");
	s->ctx = ctx;
	s->freshness = open_file(s, "", "freshness");
	s->startup = open_file(s, "", "startup");
	s->started = read_whole(s->startup);
	read_rate(s);
	rc = add_parts(s, set, err);
	if (rc) {
		cray_close(s);
		return rc;
	}
	s->updated_ns = jm_ctx_now(ctx);
	read_all(s);
	mark_stamped(s, set, first);
	*ret_state = s;
	return 0;
}

const struct jm_source jm_source_cray = {
	.name = "cray",
	.summary = "HPE Cray nodes: energy and power of node, processors, memory, accelerators",
	.origin = JM_MEASURED,
	.open = cray_open,
	.read = cray_read,
	.close = cray_close,
};
