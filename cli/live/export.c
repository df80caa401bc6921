/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark export: serve watts and joules of each meter over HTTP, for Prometheus. */
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "base/ctx.h"
#include "cli/frame/interrupts.h"
#include "meter/source_list.h"
#include "measure/command/running.h"
#include "measure/session/session.h"
#include "report/text/openmetrics.h"
#include "vendor/http_server.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LABELS 6

struct exporter {
	struct jm_cli *cli;
	const char *address, *host; /* see jm_http_server_start */
	int port;
	int64_t interval_ns; /* 0 = by the sensors */
	const char *device;  /* NULL = not given */
	char *const *source_texts;
	struct jm_source_list sources;
	struct jm_session *session;
	struct jm_running *running;
	struct jm_http_server *server;
	int wake[2]; /* a pipe; a signal writes to it */
};

/* ---- the page ---- */

typedef double value_fn(const struct jm_running_meter *m);

static double watts(const struct jm_running_meter *m)
{
	return m->watts;
}

static double joules(const struct jm_running_meter *m)
{
	return m->joules;
}

static double resets(const struct jm_running_meter *m)
{
	return m->counter ? (double)m->resets : NAN;
}

static double unknown_s(const struct jm_running_meter *m)
{
	return m->counter || isnan(m->joules) ? NAN : m->unknown_s;
}

static const struct {
	const char *name;
	bool counter;
	const char *unit, *help;
	value_fn *value;
} families[] = {
	{"joulemark_power_watts", false, "watts",
		"Power now; do not add meters with covered_by, which another one includes.", watts},
	{"joulemark_energy_joules", true, "joules",
		"Energy since the exporter began; do not add meters with covered_by.", joules},
	{"joulemark_energy_resets", true, "",
		"How often an energy counter was reset; the energy between its last reading and "
		"the reset is missing.",
		resets},
	{"joulemark_energy_unknown_seconds", true, "seconds",
		"Time without a reading of power since the exporter began; its energy is missing.",
		unknown_s},
};

static void put_meter(struct exporter *e, struct jm_openmetrics *o, int i,
	const struct jm_running_meter *m, value_fn *value)
{
	const struct jm_meters *set = jm_session_meters(e->session);
	const struct jm_meter *meter = &set->meter[i];
	const struct jm_metric_label label[MAX_LABELS] = {
		{"meter", meter->id},
		{"label", meter->label},
		{"device", meter->device},
		{"scope", jm_scope_name(meter->scope)},
		{"origin", jm_origin_name(meter->origin)},
		{"covered_by", meter->covered_by < 0 ? "" : set->meter[meter->covered_by].id},
	};

	jm_openmetrics_sample(o, label, MAX_LABELS, value(m));
}

static void put_page(struct exporter *e, struct jm_openmetrics *o)
{
	const struct jm_metric_label version = {"version", JM_VERSION};
	int n = jm_session_meters(e->session)->n;

	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
		jm_openmetrics_family(o, families[f].name, families[f].counter, families[f].unit,
			families[f].help);
		for (int i = 0; i < n; i++) {
			struct jm_running_meter m = jm_running_of(e->running, i);

			put_meter(e, o, i, &m, families[f].value);
		}
	}
	jm_openmetrics_family(
		o, "joulemark_build_info", false, "", "The version of joulemark; always 1.");
	jm_openmetrics_sample(o, &version, 1, 1);
	jm_openmetrics_end(o);
}

static struct jm_http_page page(void *arg, const char *path, const char *accept)
{
	struct jm_http_page made = {NULL, 0, JM_CLASSIC_TYPE};
	struct jm_openmetrics o = {.classic = !strstr(accept, "application/openmetrics-text")};

	if (strcmp(path, "/metrics") != 0 && strcmp(path, "/") != 0)
		return made;
	o.out = open_memstream(&made.text, &made.n);
	if (!o.out)
		return made;
	if (!o.classic)
		made.type = JM_OPENMETRICS_TYPE;
	put_page(arg, &o);
	if (fclose(o.out)) {
		free(made.text);
		made.text = NULL;
	}
	return made;
}

/* ---- the run ---- */

static void on_reading(void *arg, int signal, struct jm_reading reading)
{
	struct exporter *e = arg;

	jm_running_take(e->running, signal, reading);
}

static int start_session(struct exporter *e)
{
	struct jm_session_options o = {
		.sources = (const char *const *)e->sources.name,
		.interval_ns = e->interval_ns,
		.on_reading = on_reading,
		.on_reading_arg = e,
		.no_trace = true,
	};
	struct jm_err *err = &e->cli->err;
	int rc = jm_session_open(&e->cli->ctx, &o, &e->session, err);

	if (!rc)
		rc = jm_running_new(jm_session_meters(e->session), &e->running, err);
	return rc ? rc : jm_session_start(e->session, err);
}

static int start_server(struct exporter *e)
{
	struct jm_cli *cli = e->cli;
	const char *address = e->address;
	bool v6 = strchr(address, ':') != NULL;
	int port, rc;

	rc = jm_http_server_start(address, e->port, e->host, page, e, &e->server, &port, &cli->err);
	if (rc)
		return rc;
	fprintf(cli->out, "http://%s%s%s:%d/metrics\n", v6 ? "[" : "", address, v6 ? "]" : "",
		port);
	fflush(cli->out);
	return 0;
}

static int make_pipe(struct exporter *e)
{
	if (pipe2(e->wake, O_CLOEXEC | O_NONBLOCK))
		return jm_err_set(&e->cli->err, JM_EIO, "Cannot make a pipe: %s.", strerror(errno));
	jm_count_interrupts(&e->cli->ctx, e->wake[1]);
	return 0;
}

static void await_signal(const struct exporter *e)
{
	struct pollfd woken = {.fd = e->wake[0], .events = POLLIN};

	while (!*e->cli->ctx.interrupts)
		poll(&woken, 1, -1);
}

static int export(struct jm_cli *cli)
{
	struct exporter e = {.cli = cli, .wake = {-1, -1}};
	int rc;

	JM_FILL(&cli->values, &e);
	rc = jm_device_sources(e.device, e.source_texts, &e.sources, &cli->err);
	if (!rc)
		rc = make_pipe(&e);
	if (!rc)
		rc = start_session(&e);
	if (!rc)
		rc = start_server(&e);
	if (!rc)
		await_signal(&e);
	jm_http_server_stop(e.server);
	if (!rc)
		rc = jm_session_stop(e.session, &cli->err);
	jm_session_close(e.session);
	jm_running_free(e.running);
	jm_source_list_done(&e.sources);
	return rc ? jm_cli_fail(cli) : 0;
}

static const struct jm_option options[] = {
	{JM_DEVICE_ROW, JM_BIND(JM_TEXT, struct exporter, device)},
	JM_SOURCE_OPTION(struct exporter, source_texts),
	{.name = "interval",
		JM_BIND(JM_DURATION, struct exporter, interval_ns),
		.unit = "s",
		.min = 0.0001,
		.max = 3600,
		.argument = "TIME",
		.help = "time between readings of the sensors, such as 1s; without it half the "
			"refresh period of the sensors"},
	{.name = "address",
		JM_BIND(JM_TEXT, struct exporter, address),
		.argument = "ADDRESS",
		.fallback = "127.0.0.1",
		.help = "address to listen on; with 0.0.0.0 or :: every host of the network can "
			"read the metrics without a password"},
	{.name = "host",
		JM_BIND(JM_TEXT, struct exporter, host),
		.argument = "NAME,...",
		.help = "further host names by which clients may ask, such as node1.example.org; "
			"known without it are localhost, the address, and with 0.0.0.0 or :: also "
			"all addresses and the name of this machine"},
	{.name = "port",
		JM_BIND(JM_INT, struct exporter, port),
		.min = 0,
		.max = 65535,
		.fallback = "9401",
		.argument = "N",
		.help = "TCP port to listen on; 0 selects a free one"},
	{0},
};

const struct jm_command jm_command_export = {
	.name = "export",
	.summary = "serve watts and joules of each meter over HTTP, for Prometheus",
	.usage = "[options]",
	.description = "Reads the sensors until SIGINT or SIGTERM and answers GET /metrics in the "
		       "OpenMetrics format, or in the older text format of Prometheus if the "
		       "client does not accept OpenMetrics. It prints the address when it is ready "
		       "to answer. The number of requests has no influence on how often the "
		       "sensors are read, and memory does not grow with time.\n\n"
		       "Energy is counted from the start of the exporter: by the energy counter of "
		       "the meter if it has one, else by integrating its power.\n\n"
		       "A dashboard for Grafana is installed as "
		       "share/joulemark/grafana-dashboard.json.",
	.example = "joulemark export --source nvml,rapl --port 9401",
	.options = options,
	.run = export,
};
