/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphcore IPUs by the vendor's gcipuinfo library. Its interface is C++ without a stable binary
 * form, so a child process asks its Python binding and writes one line of text a period: for each
 * device the serial number of its board, "ipu power" and "total board power", with '|' between
 * devices (attribute names: "Device attributes" of the command line tools). A value that is 'N/A'
 * leaves the others in their places. Boards of one kind report each IPU, others the whole board,
 * which is one meter for all its IPUs. Not verified on hardware: how often the values change.
 */
#include "base/ctx.h"
#include "base/process/child_process.h"
#include "base/clock.h"
#include "meter/source.h"
#include "parse_reading.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_IPUS  128
#define LINE	  16384
#define NO_MODULE 3		   /* exit status of the script */
#define PATIENCE  (30 * JM_SECOND) /* for the first line: the library looks for all devices */

static const char script[] =
	"import sys, time\n"
	"try:\n"
	"    import gcipuinfo\n"
	"except ModuleNotFoundError:\n"
	"    sys.exit(3)\n"
	"g = gcipuinfo.gcipuinfo()\n"
	"names = ('board serial number', 'ipu power', 'total board power')\n"
	"while True:\n"
	"    g.updateData()\n"
	"    columns = [g.getNamedAttributeForAll(n) for n in names]\n"
	"    rows = ['\\t'.join(str(v).replace('|', ' ') for v in row) for row in zip(*columns)]\n"
	"    print('|'.join(rows), flush=True)\n"
	"    time.sleep(float(sys.argv[1]))\n";

struct ipu {
	char serial[48];
	double watts, board; /* now */
	bool first;	     /* of its board */
	bool has_ipu, has_board;
};

struct state {
	struct jm_ctx *ctx;
	const char *python; /* option, while it is opened */
	struct jm_proc child;
	bool started;
	int64_t period_ns, line_ns; /* line_ns: when the last line came */
	int n, n_boards;
	struct ipu ipu[MAX_IPUS];
	char text[LINE];
	size_t used;
};

/* One device of a line, which is changed. */
static struct ipu parse_device(char *device)
{
	char *power = strchr(device, '\t'), *board = power ? strchr(power + 1, '\t') : NULL;
	struct ipu ipu = {.watts = NAN, .board = NAN};

	if (!board)
		return ipu;
	*power++ = *board++ = '\0';
	snprintf(ipu.serial, sizeof(ipu.serial), "%.47s", device);
	ipu.serial[strcspn(ipu.serial, " /")] = '\0';
	ipu.watts = jm_parse_unit(power, 'W');
	ipu.board = jm_parse_unit(board, 'W');
	return ipu;
}

/* The values of the place, which from the second line on is that of the same board. */
static void take_device(struct state *s, int place, const struct ipu *now)
{
	struct ipu *ipu = &s->ipu[place];

	if (!s->n) {
		*ipu = *now;
		return;
	}
	if (strcmp(now->serial, ipu->serial) != 0)
		return;
	ipu->watts = now->watts;
	ipu->board = now->board;
}

/* A line with another number of devices has some of them in other places, and which ones is not
 * known: then it says nothing. */
static void take_line(struct state *s, char *line)
{
	int n = 1, place = 0;

	for (const char *c = line; (c = strchr(c, '|')) != NULL; c++)
		n++;
	for (int i = 0; i < s->n; i++)
		s->ipu[i].watts = s->ipu[i].board = NAN;
	if (n > MAX_IPUS)
		n = MAX_IPUS;
	for (char *device = line; device && place < n && (!s->n || n == s->n); place++) {
		char *next = strchr(device, '|');
		struct ipu now;

		if (next)
			*next++ = '\0';
		now = parse_device(device);
		take_device(s, place, &now);
		device = next;
	}
	if (!s->n)
		s->n = n;
	s->line_ns = jm_ctx_now(s->ctx);
}

/* What the child wrote; the last whole line counts. */
static void read_child(struct state *s)
{
	for (;;) {
		ssize_t got = read(s->child.out_fd, s->text + s->used, LINE - s->used);
		char *end;

		if (got <= 0)
			return;
		s->used += (size_t)got;
		while ((end = memchr(s->text, '\n', s->used))) {
			size_t whole = (size_t)(end - s->text) + 1;

			*end = '\0';
			take_line(s, s->text);
			s->used -= whole;
			memmove(s->text, s->text + whole, s->used);
		}
		if (s->used == LINE)
			s->used = 0;
	}
}

static int start_child(struct state *s, struct jm_err *err)
{
	char period[32];
	char *argv[] = {(char *)s->python, (char *)"-c", (char *)script, period, NULL};
	struct jm_proc_options options = {.argv = argv, .capture = true};
	int64_t begin = jm_ctx_now(s->ctx);
	bool ended = false;
	int rc;

	snprintf(period, sizeof(period), "%g", (double)s->period_ns * 1e-9);
	rc = jm_proc_start(&s->child, s->ctx, &options, err);
	if (rc)
		return rc;
	s->started = true;
	fcntl(s->child.out_fd, F_SETFL, O_NONBLOCK);
	while (!s->line_ns && jm_ctx_now(s->ctx) - begin < PATIENCE) {
		struct pollfd p[2] = {{.fd = s->child.out_fd, .events = POLLIN},
			{.fd = s->child.pidfd, .events = POLLIN}};

		poll(p, 2, 100);
		read_child(s);
		ended = p[1].revents;
		if (!s->line_ns && ended)
			break;
	}
	if (s->line_ns)
		return 0;
	if (ended && !jm_proc_reap(&s->child, s->ctx, err) && s->child.status == NO_MODULE)
		return jm_err_set(err, JM_ENOENT,
			"%s has no module gcipuinfo, which is part of Graphcore's command line "
			"tools; "
			"install them, enable their environment, and check 'gc-info -l'.",
			s->python);
	return jm_err_set(err, JM_ENOENT,
		"%s with the module gcipuinfo reports no IPU (its error message, if any, is "
		"printed above); install Graphcore's command line tools, enable their environment, "
		"and check 'gc-info -l'.",
		s->python);
}

static int add_meter(
	const struct ipu *ipu, int number, bool board, struct jm_meters *set, struct jm_err *err)
{
	char covers[96];
	struct jm_meter meter = {.source = "gcipuinfo",
		.scope = JM_SCOPE_GPU,
		.origin = JM_MEASURED,
		.covers = covers};
	struct jm_signal signal = {.quantity = JM_Q_POWER, .window_ns = -1, .accuracy = NAN};
	int rc;

	if (board)
		snprintf(covers, sizeof(covers), "ipu/%s", ipu->serial);
	else
		snprintf(covers, sizeof(covers), "ipu/%s/%d", ipu->serial, number);
	snprintf(meter.id, sizeof(meter.id), "gcipuinfo:%s", covers + 4);
	snprintf(meter.label, sizeof(meter.label), board ? "IPU board %.40s" : "IPU %.0s%d",
		ipu->serial, number);
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = jm_meters_add_signal(set, &signal, err);
	return rc < 0 ? rc : 0;
}

/* Boards first, so that their IPUs stand inside them. */
static int add_meters(struct state *s, struct jm_meters *set, struct jm_err *err)
{
	int added = 0, rc = 0;

	for (int i = 0; i < s->n; i++) {
		struct ipu *ipu = &s->ipu[i];

		ipu->first = true;
		for (int k = 0; k < i; k++)
			ipu->first = ipu->first && strcmp(s->ipu[k].serial, ipu->serial) != 0;
		ipu->has_ipu = *ipu->serial && !isnan(ipu->watts);
		ipu->has_board = *ipu->serial && ipu->first && !isnan(ipu->board);
	}
	for (int i = 0; !rc && i < s->n; i++) {
		if (s->ipu[i].has_board && ++added)
			rc = add_meter(&s->ipu[i], i, true, set, err);
		if (!rc && s->ipu[i].has_ipu && ++added)
			rc = add_meter(&s->ipu[i], i, false, set, err);
	}
	if (rc || added)
		return rc;
	return jm_err_set(err, JM_ENOSUP,
		"None of the %d IPUs reports its power or that of its board; its attributes are "
		"N/A, as in a "
		"virtual machine.",
		s->n);
}

static void gcipuinfo_close(void *state)
{
	struct state *s = state;

	if (s && s->started)
		jm_proc_done(&s->child);
	free(s);
}

static int gcipuinfo_open(struct jm_ctx *ctx, const struct jm_values *options,
	struct jm_meters *set, void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for IPUs.");
	s->ctx = ctx;
	JM_FILL(options, s);
	rc = start_child(s, err);
	if (!rc)
		rc = add_meters(s, set, err);
	if (rc)
		gcipuinfo_close(s);
	else
		*ret_state = s;
	return rc;
}

static int gcipuinfo_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	int signal = 0;
	int64_t now;
	bool stale;

	(void)err;
	read_child(s);
	now = jm_ctx_now(s->ctx);
	stale = now - s->line_ns > 5 * s->period_ns + JM_SECOND;
	for (int i = 0; i < s->n; i++) {
		if (s->ipu[i].has_board)
			jm_give(sink, signal++, stale ? NAN : s->ipu[i].board,
				stale ? now : s->line_ns);
		if (s->ipu[i].has_ipu)
			jm_give(sink, signal++, stale ? NAN : s->ipu[i].watts,
				stale ? now : s->line_ns);
	}
	return 0;
}

static const struct jm_option options[] = {
	{.name = "python",
		JM_BIND(JM_TEXT, struct state, python),
		.fallback = "python3",
		.argument = "FILE",
		.help = "the Python interpreter that has Graphcore's module gcipuinfo"},
	{.name = "period",
		JM_BIND(JM_DURATION, struct state, period_ns),
		.unit = "s",
		.min = 0.01,
		.max = 60,
		.fallback = "100ms",
		.argument = "TIME",
		.help = "time between two queries"},
	{0},
};

const struct jm_source jm_source_gcipuinfo = {
	.name = "gcipuinfo",
	.summary = "Graphcore IPUs and their boards",
	.options = options,
	.origin = JM_MEASURED,
	.on_request = true, /* it runs a program beside what is measured */
	.open = gcipuinfo_open,
	.read = gcipuinfo_read,
	.close = gcipuinfo_close,
};
