/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pressure: for how long tasks of this machine waited for a processor, for memory, for input and
 * output (Documentation/accounting/psi.rst of Linux). The files hold "some avg10=0.00 avg60=0.00
 * avg300=0.00 total=0" and the same for "full"; total is microseconds since the machine started, in
 * which some, or all, of its tasks waited.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "meter/source.h"
#include "parse_reading.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER	   "/proc/pressure"
#define REFRESH_NS (100 * JM_MILLISECOND) /* it is not read more often */

static const struct {
	const char *file, *label;
	bool full; /* on a whole machine a processor always runs some task */
} resources[] = {
	{"cpu", "pressure on processors", false},
	{"memory", "pressure on memory", true},
	{"io", "pressure on input and output", true},
};
#define RESOURCES ((int)(sizeof(resources) / sizeof(resources[0])))

struct state {
	struct jm_ctx *ctx;
	int64_t last_ns;
	int fd[RESOURCES];		      /* -1 = it cannot be read */
	struct jm_reading last[RESOURCES][2]; /* some, full */
};

static void psi_close(void *state)
{
	struct state *s = state;

	for (int i = 0; s && i < RESOURCES; i++)
		if (s->fd[i] >= 0)
			close(s->fd[i]);
	free(s);
}

static int add_resource(struct state *s, int i, struct jm_meters *set, struct jm_err *err)
{
	struct jm_signal signal = {.quantity = JM_Q_STALL_TIME,
		.step = 1e-6,
		.refresh_ns = REFRESH_NS,
		.accuracy = NAN};
	struct jm_meter meter = {.source = "psi", .scope = JM_SCOPE_CONTEXT, .origin = JM_MEASURED};
	int rc;

	snprintf(meter.id, sizeof(meter.id), "psi:" FOLDER "/%s", resources[i].file);
	snprintf(meter.label, sizeof(meter.label), "%s", resources[i].label);
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = jm_meters_add_signal(set, &signal, err);
	signal.quantity = JM_Q_FULL_STALL_TIME;
	if (rc >= 0 && resources[i].full)
		rc = jm_meters_add_signal(set, &signal, err);
	s->last[i][0].value = s->last[i][1].value = NAN;
	return rc;
}

/* Without psi=1 some kernels have files that cannot be read. -1: errno says why */
static int open_readable(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), why;
	char byte;

	if (fd < 0 || pread(fd, &byte, 1, 0) >= 0)
		return fd;
	why = errno;
	close(fd);
	errno = why;
	return -1;
}

static int psi_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc = 0, found = 0, why = ENOENT;
	char path[400];

	(void)options;
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the source psi.");
	s->ctx = ctx;
	for (int i = 0; i < RESOURCES; i++) {
		snprintf(path, sizeof(path), "%s" FOLDER "/%s", ctx->root, resources[i].file);
		s->fd[i] = open_readable(path);
		why = s->fd[i] < 0 ? errno : why;
	}
	for (int i = 0; i < RESOURCES && rc >= 0; i++) {
		found += s->fd[i] >= 0;
		rc = s->fd[i] < 0 ? 0 : add_resource(s, i, set, err);
	}
	if (rc >= 0 && !found)
		rc = jm_err_set(err, why == EACCES ? JM_EPERM : JM_ENOENT,
			"Cannot read " FOLDER ": %s; the kernel must have CONFIG_PSI, and on some "
			"distributions the boot parameter psi=1.",
			strerror(why));
	if (rc < 0) {
		psi_close(s);
		return rc;
	}
	*ret_state = s;
	return 0;
}

static void read_resource(struct state *s, int i)
{
	int64_t now = jm_ctx_now(s->ctx);
	char text[256];
	ssize_t n = pread(s->fd[i], text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	for (int full = 0; full < 2; full++)
		s->last[i][full] = (struct jm_reading){
			.value = jm_parse_pressure(text, full ? "full" : "some"), .t_ns = now};
}

static int psi_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	int64_t now = jm_ctx_now(s->ctx);
	bool due = !s->last_ns || now - s->last_ns >= REFRESH_NS - JM_MILLISECOND;
	int out = 0;

	(void)err;
	if (due)
		s->last_ns = now;
	for (int i = 0; i < RESOURCES; i++) {
		if (s->fd[i] < 0)
			continue;
		if (due)
			read_resource(s, i);
		sink->give(sink, out, 1 + resources[i].full, s->last[i]);
		out += 1 + resources[i].full;
	}
	return 0;
}

const struct jm_source jm_source_psi = {
	.name = "psi",
	.summary = "pressure: how long tasks waited for processors, memory, input and output",
	.origin = JM_MEASURED,
	.on_request = true,
	.open = psi_open,
	.read = psi_read,
	.close = psi_close,
};
