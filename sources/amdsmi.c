/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD GPUs: one meter per board, known by its UUID, through libamd_smi or librocm_smi64. The energy
 * accumulator has a resolution that the library reports (15.3 uJ) and the driver's time stamp,
 * which counts since boot like CLOCK_BOOTTIME; power is the present one on MI300 and later, a mean
 * on MI200 and earlier. A board with two dies (MI250, MI250X) shows two GPUs: the first one counts
 * the whole board, the second one nothing, so its meter covers both. The GPU of an MI300A reports
 * the power of the whole socket, with its CPU and memory, and covers what the meter of hsmp covers.
 * Not verified on hardware: that the NUMA node of an MI300A's GPU has the number of its socket, how
 * often the counter and power change, the time of the mean, and the reasons of throttling. All GPUs
 * that the driver shows are measured.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "base/text/number.h"
#include "meter/source.h"
#include "vendor/amd.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLOW_NS	    (100 * JM_MILLISECOND)
#define STAMP_SLACK (5 * JM_SECOND)
#define MI300A	    0x74a0

enum {
	ENERGY,
	POWER,
	AVERAGE,
	FAST,
	CAP = FAST,
	CLOCK,
	MEMORY_CLOCK,
	TEMPERATURE,
	BUSY,
	THROTTLE,
	SIGNALS
};

static const enum jm_quantity quantities[SIGNALS] = {JM_Q_ENERGY, JM_Q_POWER, JM_Q_POWER_AVERAGE,
	JM_Q_LIMIT, JM_Q_CLOCK, JM_Q_MEMORY_CLOCK, JM_Q_TEMPERATURE, JM_Q_UTILISATION,
	JM_Q_THROTTLE};

struct board {
	int gpu, second; /* second: of its other die; -1 = none */
	double step;
	bool has[SIGNALS];
	int64_t boot_ns; /* stamp of the energy below */
	struct jm_reading last[SIGNALS];
};

struct state {
	struct jm_ctx *ctx;
	struct jm_amd amd;
	int64_t slow_ns;
	int n;
	struct board *board; /* one per GPU at most */
};

/* ---- reading ---- */

/* CLOCK_BOOTTIME minus our clock, now. */
static int64_t boot_offset(const struct state *s)
{
	return jm_clock_boot() - jm_ctx_now(s->ctx);
}

/* An equal stamp is the same reading. */
static void read_energy(struct state *s, struct board *b)
{
	struct jm_amd_energy energy = jm_amd_energy(&s->amd, b->gpu);
	struct jm_reading *last = &b->last[ENERGY];
	int64_t now = jm_ctx_now(s->ctx), t = energy.boot_ns - boot_offset(s);

	if (energy.boot_ns && energy.boot_ns == b->boot_ns && energy.joules == last->value)
		return;
	if (!energy.boot_ns || t > now || t < now - STAMP_SLACK)
		t = now;
	b->boot_ns = energy.boot_ns;
	*last = (struct jm_reading){energy.joules, t > last->t_ns ? t : now};
}

static void set(struct state *s, struct board *b, int signal, double value)
{
	b->last[signal] = (struct jm_reading){value, jm_ctx_now(s->ctx)};
}

static void read_fast(struct state *s, struct board *b)
{
	struct jm_amd_power power = {NAN, NAN};

	read_energy(s, b);
	if (jm_amd_power_known(&s->amd))
		power = jm_amd_power(&s->amd, b->gpu);
	set(s, b, POWER, power.current);
	set(s, b, AVERAGE, power.average);
}

static double throttle(const struct jm_amd *amd, int gpu)
{
	double why = jm_amd_throttle(amd, gpu);
	int bits = isnan(why) ? 0 : (int)why;

	return isnan(why) ? NAN
			  : (bits & JM_AMD_BY_POWER ? JM_THROTTLE_POWER_CAP : 0) |
				    (bits & JM_AMD_BY_HEAT ? JM_THROTTLE_THERMAL : 0) |
				    (bits & JM_AMD_BY_OTHER ? JM_THROTTLE_OTHER : 0);
}

static void read_slow(struct state *s, struct board *b)
{
	set(s, b, CAP, jm_amd_cap(&s->amd, b->gpu));
	set(s, b, CLOCK, jm_amd_clock(&s->amd, b->gpu, false));
	set(s, b, MEMORY_CLOCK, jm_amd_clock(&s->amd, b->gpu, true));
	set(s, b, TEMPERATURE, jm_amd_temperature(&s->amd, b->gpu));
	set(s, b, BUSY, jm_amd_busy(&s->amd, b->gpu));
	set(s, b, THROTTLE, throttle(&s->amd, b->gpu));
}

static int amdsmi_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	int64_t now = jm_ctx_now(s->ctx);
	bool slow = now - s->slow_ns >= SLOW_NS - JM_MILLISECOND;
	int signal = 0;

	(void)err;
	if (slow)
		s->slow_ns = now;
	for (int i = 0; i < s->n; i++) {
		struct board *b = &s->board[i];

		read_fast(s, b);
		if (slow)
			read_slow(s, b);
		for (int k = 0; k < SIGNALS; k++)
			if (b->has[k])
				jm_give(sink, signal++, b->last[k].value, b->last[k].t_ns);
	}
	return 0;
}

/* ---- opening ---- */

/* A number in a file of the PCI device, decimal or 0x...; -1 = none. */
static long pci_number(const struct state *s, const char *folder, const char *file)
{
	char path[512], text[32], *end;
	ssize_t n;
	long value;
	int fd;

	snprintf(path, sizeof(path), "%s/sys/%s/%s", s->ctx->root, folder, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	value = strtol(text, &end, 0);
	return end == text ? -1 : value;
}

static long device_of(const struct state *s, int gpu)
{
	char folder[64];

	snprintf(folder, sizeof(folder), "bus/pci/devices/%s", s->amd.gpu[gpu].pci);
	return pci_number(s, folder, "device");
}

static bool has_two_dies(long device)
{
	return device == 0x7408 || device == 0x740c; /* MI250X, MI250 */
}

/* The UUID, else the place on the bus: what a meter is called by. */
static const char *name_of(const struct state *s, int gpu)
{
	const struct jm_amd_gpu *g = &s->amd.gpu[gpu];

	return *g->uuid ? g->uuid : g->pci;
}

static void describe_cover(const struct state *s, const struct board *b, char *out, size_t size)
{
	char folder[64];
	long node;

	snprintf(folder, sizeof(folder), "bus/pci/devices/%s", s->amd.gpu[b->gpu].pci);
	node = pci_number(s, folder, "numa_node");
	if (device_of(s, b->gpu) == MI300A && node >= 0)
		snprintf(out, size, "cpu/%ld dram/%ld gpu/socket%ld sysio/%ld", node, node, node,
			node);
	else if (b->second >= 0)
		snprintf(out, size, "gpu/%s gpu/%s", name_of(s, b->gpu), name_of(s, b->second));
	else
		snprintf(out, size, "gpu/%s", name_of(s, b->gpu));
}

static int add_signals(struct board *b, struct jm_meters *set, struct jm_err *err)
{
	int rc = 0;

	for (int k = 0; rc >= 0 && k < SIGNALS; k++) {
		struct jm_signal signal = {.quantity = quantities[k],
			.step = k == ENERGY		     ? b->step
				: k == POWER || k == AVERAGE ? 1
							     : 0,
			.window_ns = k == POWER || k == AVERAGE ? -1 : 0,
			.accuracy = NAN};

		b->has[k] = !isnan(b->last[k].value);
		if (b->has[k])
			rc = jm_meters_add_signal(set, &signal, err);
	}
	return rc < 0 ? rc : 0;
}

static int add_meter(struct state *s, struct board *b, struct jm_meters *set, struct jm_err *err)
{
	char covers[192];
	bool socket = device_of(s, b->gpu) == MI300A;
	struct jm_meter meter = {.source = "amdsmi",
		.scope = socket ? JM_SCOPE_MODULE : JM_SCOPE_GPU,
		.origin = JM_MEASURED,
		.covers = covers};
	int rc;

	describe_cover(s, b, covers, sizeof(covers));
	snprintf(meter.id, sizeof(meter.id), "amdsmi:%s", name_of(s, b->gpu));
	snprintf(meter.device, sizeof(meter.device), "%s", name_of(s, b->gpu));
	snprintf(meter.label, sizeof(meter.label), "%s %d%s AMD %s",
		socket ? "socket of GPU" : "GPU", b->gpu,
		b->second >= 0 ? " and its second die" : "", s->amd.gpu[b->gpu].pci);
	rc = jm_meters_add(set, &meter, err);
	return rc < 0 ? rc : add_signals(b, set, err);
}

static bool measures(const struct board *b)
{
	return !isnan(b->last[ENERGY].value) || !isnan(b->last[POWER].value) ||
	       !isnan(b->last[AVERAGE].value);
}

/* The boards out of the GPUs: one that measures nothing belongs to the die before it. */
static void find_boards(struct state *s)
{
	for (int i = 0; i < s->amd.n; i++) {
		struct board *b = &s->board[s->n], *before = s->n ? b - 1 : NULL;

		*b = (struct board){.gpu = i, .second = -1};
		read_fast(s, b);
		read_slow(s, b);
		b->step = jm_amd_energy(&s->amd, i).step;
		if (measures(b))
			s->n++;
		else if (before && before->gpu == i - 1 && has_two_dies(device_of(s, i)) &&
			 has_two_dies(device_of(s, i - 1)))
			before->second = i;
	}
}

static void amdsmi_close(void *state)
{
	struct state *s = state;

	if (s) {
		jm_amd_close(&s->amd);
		free(s->board);
	}
	free(s);
}

static int open_boards(struct state *s, struct jm_meters *set, struct jm_err *err)
{
	int rc = jm_amd_open(&s->amd, err);

	if (rc)
		return rc;
	s->board = calloc((size_t)s->amd.n + 1, sizeof(*s->board));
	if (!s->board)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for AMD GPUs.");
	find_boards(s);
	if (!s->n)
		return jm_err_set(err, JM_ENOSUP,
			"None of the %d AMD GPUs reports energy or power by %s; the GPU of a "
			"virtual machine has no counter, and the layout of the power data is known "
			"for versions 23 to 26 (this is %u).",
			s->amd.n, s->amd.library, s->amd.generation);
	if (!jm_amd_power_known(&s->amd))
		jm_log(s->ctx, JM_WARNING,
			"Version %u of libamd_smi has an unknown layout of the power data, so only "
			"the energy counters are read.",
			s->amd.generation);
	for (int i = 0; !rc && i < s->n; i++)
		rc = add_meter(s, &s->board[i], set, err);
	return rc;
}

static int amdsmi_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc;

	(void)options;
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for AMD GPUs.");
	s->ctx = ctx;
	s->slow_ns = INT64_MIN / 2;
	rc = open_boards(s, set, err);
	if (rc)
		amdsmi_close(s);
	else
		*ret_state = s;
	return rc;
}

const struct jm_source jm_source_amdsmi = {
	.name = "amdsmi",
	.summary = "AMD GPUs: energy counter, power, limit, clocks, temperature, use, throttling",
	.origin = JM_MEASURED,
	.open = amdsmi_open,
	.read = amdsmi_read,
	.close = amdsmi_close,
};
