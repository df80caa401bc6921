/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Energy of AMD MI300A sockets and of their parts, from the metrics table of HSMP (protocol version
 * 6) that Linux' driver amd_hsmp puts into metrics_bin of each socket
 * (Documentation/arch/x86/amd_hsmp.rst; layout: struct hsmp_metric_table of the driver's UAPI
 * header). Reading the file makes the firmware fill the table. Its accumulators count 2^-16 J in 64
 * bits: the socket, its CPU dies (CCD), its compute dies of the GPU (XCD), its I/O dies (AID) and
 * its HBM; the socket is their sum. Its time stamp counts the firmware's 10 ns and has no relation
 * to the node's clocks, so it only tells whether the table is new. Not verified on hardware: how
 * often the accumulators change, and whether a reset of the firmware puts them back.
 */
#include "base/ctx.h"
#include "base/files/find_files.h"
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

#define DRIVER	    "/sys/devices/platform/amd_hsmp"
#define MAX_SOCKETS 8
#define PARTS	    5

static const struct {
	const char *name, *label;
	enum jm_scope scope;
	const char *covers; /* of socket 0 for example; %d: the socket */
} parts[PARTS] = {
	{"socket", "", JM_SCOPE_MODULE, NULL},
	{"ccd", " CPU dies", JM_SCOPE_CORE, "cpu/%d/ccd"},
	{"xcd", " GPU dies", JM_SCOPE_GPU_CORE, "gpu/socket%d/xcd"},
	{"aid", " I/O dies", JM_SCOPE_GPU_IO, "sysio/%d"},
	{"hbm", " HBM", JM_SCOPE_GPU_MEMORY, "dram/%d"},
};

struct socket {
	int number, fd;
	uint64_t stamp;
	int64_t t_ns;
	struct jm_hsmp_table table;
};

struct state {
	struct jm_ctx *ctx;
	int n, error; /* error: errno of a table that could not be opened */
	bool other;   /* a table of another layout was seen */
	struct socket socket[MAX_SOCKETS];
};

static bool read_table(struct state *s, struct socket *k)
{
	uint8_t bytes[JM_HSMP_TABLE + 1];
	ssize_t n = pread(k->fd, bytes, sizeof(bytes), 0);

	if (n < 0 || !jm_parse_hsmp(bytes, (size_t)n, &k->table))
		return false;
	if (k->table.stamp != k->stamp || !k->t_ns)
		k->t_ns = jm_ctx_now(s->ctx);
	k->stamp = k->table.stamp;
	return true;
}

static void add_socket(struct state *s, const char *path, int number)
{
	struct socket *k = &s->socket[s->n];

	*k = (struct socket){.number = number, .fd = open(path, O_RDONLY | O_CLOEXEC)};
	if (k->fd < 0) {
		s->error = errno;
	} else if (!read_table(s, k)) {
		s->other = true;
		close(k->fd);
	} else {
		s->n++;
	}
}

/* By number: socket0 to socket7 of the platform driver. */
static void find_sockets(struct state *s)
{
	for (int i = 0; i < MAX_SOCKETS; i++) {
		char path[400];

		snprintf(path, sizeof(path), "%s" DRIVER "/socket%d/metrics_bin", s->ctx->root, i);
		if (!access(path, F_OK))
			add_socket(s, path, i);
	}
}

/* Of the driver by ACPI (Linux 6.11 and later): one device a socket, in the order of their
 * names. */
static void find_devices(struct state *s)
{
	glob_t found;

	jm_find_files(&found, "%s/sys/bus/platform/devices/AMDI0097:*/metrics_bin", s->ctx->root);
	for (size_t i = 0; i < found.gl_pathc && s->n < MAX_SOCKETS; i++)
		add_socket(s, found.gl_pathv[i], (int)i);
	globfree(&found);
}

static void find(struct state *s)
{
	find_sockets(s);
	if (!s->n)
		find_devices(s);
}

/* ---- opening ---- */

static int add_signal(
	struct jm_meters *set, enum jm_quantity quantity, double step, struct jm_err *err)
{
	struct jm_signal signal = {.quantity = quantity,
		.step = step,
		.window_ns = quantity == JM_Q_POWER ? -1 : 0,
		.accuracy = NAN};

	return jm_meters_add_signal(set, &signal, err);
}

static int add_part(const struct socket *k, int part, struct jm_meters *set, struct jm_err *err)
{
	char covers[128];
	struct jm_meter meter = {.source = "hsmp",
		.scope = parts[part].scope,
		.origin = JM_MEASURED,
		.covers = covers};
	int n = k->number, rc;

	if (parts[part].covers)
		snprintf(covers, sizeof(covers), parts[part].covers, n);
	else
		snprintf(
			covers, sizeof(covers), "cpu/%d dram/%d gpu/socket%d sysio/%d", n, n, n, n);
	snprintf(meter.id, sizeof(meter.id), "hsmp:socket%d/%s", n, parts[part].name);
	snprintf(meter.label, sizeof(meter.label), "MI300A socket %d%s", n, parts[part].label);
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = add_signal(set, JM_Q_ENERGY, JM_HSMP_JOULE, err);
	if (rc >= 0 && !part)
		rc = add_signal(set, JM_Q_POWER, JM_HSMP_WATT, err);
	if (rc >= 0 && !part)
		rc = add_signal(set, JM_Q_LIMIT, JM_HSMP_WATT, err);
	return rc < 0 ? rc : 0;
}

static void hsmp_close(void *state)
{
	struct state *s = state;

	for (int i = 0; s && i < s->n; i++)
		close(s->socket[i].fd);
	free(s);
}

static int nothing_usable(const struct state *s, struct jm_err *err)
{
	if (s->error == EACCES || s->error == EPERM)
		return jm_err_set(err, JM_EPERM,
			"The metrics table of HSMP (metrics_bin in %s" DRIVER
			") may not be read; run as root, or let your group read it by a udev rule.",
			s->ctx->root);
	if (s->other)
		return jm_err_set(err, JM_ENOSUP,
			"The metrics table of HSMP in %s" DRIVER
			" has another layout than that of protocol version 6 (MI300A), so it is "
			"not read.",
			s->ctx->root);
	return jm_err_set(err, JM_ENOENT,
		"There is no metrics table of HSMP in %s" DRIVER
		"; only AMD MI300A has one (protocol version 6), by the kernel module amd_hsmp.",
		s->ctx->root);
}

static int hsmp_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc = 0;

	(void)options;
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for HSMP.");
	s->ctx = ctx;
	find(s);
	if (!s->n)
		rc = nothing_usable(s, err);
	for (int i = 0; !rc && i < s->n; i++)
		for (int part = 0; !rc && part < PARTS; part++)
			rc = add_part(&s->socket[i], part, set, err);
	if (rc)
		hsmp_close(s);
	else
		*ret_state = s;
	return rc;
}

static int hsmp_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	int signal = 0;

	(void)err;
	for (int i = 0; i < s->n; i++) {
		struct socket *k = &s->socket[i];
		bool known = read_table(s, k);
		int64_t t_ns = known ? k->t_ns : jm_ctx_now(s->ctx);

		for (int part = 0; part < PARTS; part++) {
			jm_give(sink, signal++, known ? k->table.joules[part] : NAN, t_ns);
			if (part)
				continue;
			jm_give(sink, signal++, known ? k->table.watts : NAN, t_ns);
			jm_give(sink, signal++, known ? k->table.limit : NAN, t_ns);
		}
	}
	return 0;
}

const struct jm_source jm_source_hsmp = {
	.name = "hsmp",
	.summary = "AMD MI300A sockets: energy of CPU dies, GPU dies, I/O dies and HBM (HSMP)",
	.origin = JM_MEASURED,
	.open = hsmp_open,
	.read = hsmp_read,
	.close = hsmp_close,
};
