/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate: how the power sensors of this machine behave, by a load whose beginnings and ends are
 * known. */
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"
#include "cli/frame/interrupts.h"
#include "meter/source_list.h"

#include "base/ctx.h"
#include "base/clock.h"
#include "base/text/json.h"
#include "base/files/output.h"
#include "measure/session/sensors_file.h"
#include "report/format/text.h"
#include "result/case_id.h"
#include "run/calibration.h"
#include "run/calibration_fit.h"

#include <errno.h>
#include <math.h>
#include <string.h>

struct call {
	struct jm_calibrate how;
	char *const *sources;
	const char *from, *json; /* NULL = no file */
	bool no_keep, forget;
};

static const struct jm_option options[] = {
	{.name = "device",
		JM_BIND(JM_TEXT, struct call, how.device),
		.argument = "DEVICE",
		.fallback = "cpu",
		.help = "the device that runs the load: cuda:0, cpu, sim:h100x1"},
	JM_SOURCE_OPTION(struct call, sources),
	{.name = "workload",
		JM_BIND(JM_TEXT, struct call, how.workload),
		.argument = "NAME",
		.help = "workload that is the load; without it stream (passes over memory), which "
			"stays below the power limit, or sim on a simulated device"},
	{.name = "precision",
		JM_BIND(JM_TEXT, struct call, how.precision),
		.argument = "P",
		.fallback = "f32",
		.help = "precision of the load"},
	{.name = "seconds",
		JM_BIND(JM_DURATION, struct call, how.seconds),
		.unit = "s",
		.min = 10,
		.max = 3600,
		.argument = "TIME",
		.fallback = "60s",
		.help = "total duration of the alternating loads and pauses"},
	{.name = "interval",
		JM_BIND(JM_DURATION, struct call, how.interval_ns),
		.unit = "s",
		.min = 0.0005,
		.max = 1,
		.argument = "TIME",
		.fallback = "2ms",
		.help = "time between readings"},
	{.name = "seed",
		JM_BIND(JM_INT, struct call, how.seed),
		.argument = "N",
		.min = 0,
		.max = 1e9,
		.fallback = "1",
		.help = "seed of the random durations of loads and pauses"},
	{.name = "from",
		JM_BIND(JM_TEXT, struct call, from),
		.argument = "FILE",
		.help = "analyse a file that --json wrote on this machine or another one; no load "
			"is run and nothing is stored"},
	{JM_JSON_ROW("write readings and findings as JSON; without a file to standard output"),
		JM_BIND(JM_TEXT, struct call, json), .takes_next = jm_json_next},
	{.name = "no-keep",
		JM_BIND(JM_FLAG, struct call, no_keep),
		.help = "only print the findings; later measurements do not use them"},
	{.name = "forget",
		JM_BIND(JM_FLAG, struct call, forget),
		.help = "remove the stored findings about all sensors, and do nothing else"},
	{0},
};

/* ---- the simulated clock, the sources ---- */

static int observe(struct jm_cli *cli, const struct call *c, json_t **ret)
{
	const char *own[] = {c->how.device, NULL};
	bool simulated = jm_case_simulated(c->how.device);
	struct jm_source_list sources = {0};
	struct jm_calibrate how = c->how;
	struct jm_ctx ctx = cli->ctx;
	int rc = jm_source_list_take(&sources, c->sources, &cli->err), fd;

	if (!how.workload)
		how.workload = simulated ? "sim" : "stream";
	if (!rc)
		rc = jm_catch_interrupts(&cli->ctx, &fd, &cli->err);
	if (rc)
		return rc;
	ctx.interrupts = cli->ctx.interrupts;
	how.sources = sources.n ? (const char *const *)sources.name : simulated ? own : NULL;
	if (simulated)
		ctx.clock = jm_clock_new_simulated(jm_clock_wall(cli->ctx.clock));
	rc = ctx.clock ? jm_calibrate_observe(&ctx, &how, ret, &cli->err)
		       : jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for a simulated clock.");
	if (ctx.clock != cli->ctx.clock)
		jm_clock_free(ctx.clock);
	jm_source_list_done(&sources);
	return rc;
}

static int read_again(struct jm_cli *cli, const char *path, json_t **ret)
{
	FILE *f = fopen(path, "re");
	json_error_t why;
	int failed = 0;

	if (f) {
		*ret = json_loadf(f, JSON_REJECT_DUPLICATES, &why);
		failed = ferror(f) ? errno : 0;
		fclose(f);
	}
	if (!f || failed)
		return jm_err_set(&cli->err, failed ? JM_EIO : JM_ENOENT, "%s cannot be read: %s.",
			path, strerror(failed ? failed : errno));
	if (*ret)
		return 0;
	return jm_err_set(
		&cli->err, JM_EFORMAT, "%s could not be read as JSON: %s.", path, why.text);
}

/* ---- the table ---- */

/* In milliseconds. */
static void put_time(FILE *out, const json_t *fit, const char *name)
{
	char key[64], text[32] = "-";
	double ms, error;

	snprintf(key, sizeof(key), "%s_s", name);
	ms = 1e3 * jm_json_real_of(fit, key);
	snprintf(key, sizeof(key), "%s_error_s", name);
	error = 1e3 * jm_json_real_of(fit, key);
	if (!isnan(ms) && isnan(error))
		snprintf(text, sizeof(text), "%.0f", ms);
	else if (!isnan(ms))
		snprintf(text, sizeof(text), "%.*f ± %.*f", error < 10, ms, error < 10, error);
	fprintf(out, " %*s%s", 12 - jm_text_width(text), "", text);
}

static void put_signal(struct jm_cli *cli, const json_t *signal)
{
	const json_t *fit = json_object_get(signal, "fit");
	const char *why = json_string_value(json_object_get(signal, "why"));

	fprintf(cli->out, "  %-13s", jm_json_text(signal, "quantity"));
	put_time(cli->out, fit, "refresh");
	put_time(cli->out, fit, "window");
	put_time(cli->out, fit, "delay");
	put_time(cli->out, fit, "rise");
	put_time(cli->out, fit, "fall");
	fputc('\n', cli->out);
	if (why)
		fprintf(cli->out, "      %s\n", why);
	else if (!cli->quiet)
		fprintf(cli->out,
			"      %.0f W without the load, %.0f W with it; %.1f W not explained; %d "
			"values\n",
			jm_json_real_of(fit, "low_watts"), jm_json_real_of(fit, "high_watts"),
			jm_json_real_of(fit, "rms_watts"),
			(int)json_integer_value(json_object_get(fit, "changes")));
}

static void put_table(struct jm_cli *cli, const json_t *observed)
{
	const char *last = "";
	const json_t *signal;
	size_t i;

	fprintf(cli->out, "%-15s %12s %12s %12s %12s %12s\n", "", "refresh ms", "window ms",
		"delay ms", "rise ms", "fall ms");
	json_array_foreach(json_object_get(observed, "signals"), i, signal)
	{
		const char *meter = jm_json_text(signal, "meter");

		if (strcmp(meter, last) != 0)
			fprintf(cli->out, "%s (%s)\n", jm_json_text(signal, "label"),
				jm_json_text(signal, "origin"));
		last = meter;
		put_signal(cli, signal);
	}
}

/* ---- together ---- */

static int show_and_keep(struct jm_cli *cli, const struct call *c, const json_t *observed)
{
	bool keep = !c->no_keep && !c->from;
	const char *json = c->json;
	int rc = 0, kept = 0;

	if (!json || strcmp(json, "-") != 0)
		put_table(cli, observed);
	if (json)
		rc = jm_json_put(cli, json_incref((json_t *)observed));
	if (!rc && keep)
		kept = jm_sensors_keep(&cli->ctx, observed, &cli->err);
	if (rc || kept < 0)
		return jm_cli_fail(cli);
	if (keep && !cli->quiet && (!json || strcmp(json, "-") != 0))
		fprintf(cli->out,
			"The findings about %d signals are stored, and later measurements use "
			"them; --forget removes them.\n",
			kept);
	return 0;
}

/* --from and --forget run no load, and --forget finds nothing. */
static int check_options(struct jm_cli *cli, const struct call *c)
{
	static const char *const of_load[] = {
		"device", "source", "workload", "precision", "seconds", "interval", "seed", NULL};
	static const char *const of_findings[] = {"from", "json", "no-keep", NULL};
	const char *idle = NULL;

	if (c->from || c->forget)
		idle = jm_cli_first_given(cli, of_load);
	if (!idle && c->forget)
		idle = jm_cli_first_given(cli, of_findings);
	return idle ? jm_err_set(&cli->err, JM_EUSAGE, "--%s has no effect with --%s; omit it.",
			      idle, c->forget ? "forget" : "from")
		    : 0;
}

static int calibrate(struct jm_cli *cli)
{
	json_t *observed = NULL;
	struct call c = {0};
	int rc;

	JM_FILL(&cli->values, &c);
	if (check_options(cli, &c))
		return jm_cli_fail(cli);
	if (c.forget)
		return jm_sensors_forget(&cli->ctx, &cli->err) ? jm_cli_fail(cli) : 0;
	rc = c.json ? jm_output_try(c.json, &cli->err) : 0;
	if (!rc)
		rc = c.from ? read_again(cli, c.from, &observed) : observe(cli, &c, &observed);
	if (!rc)
		rc = jm_calibrate_fit(observed, &cli->err);
	if (rc == JM_EINTR)
		rc = (jm_cli_fail(cli), 128 + jm_last_interrupt());
	else
		rc = rc ? jm_cli_fail(cli) : show_and_keep(cli, &c, observed);
	json_decref(observed);
	return rc;
}

const struct jm_command jm_command_calibrate = {
	.name = "calibrate",
	.heading = "This machine and joulemark",
	.summary = "find out how the power sensors of this machine behave",
	.usage = "[--device DEVICE] [--source SOURCE,...] [options]",
	.description =
		"Runs a load that begins and ends at known times, reads the sensors meanwhile, and "
		"finds for each signal of power and energy how often it changes (refresh), over "
		"how long it averages (window), how late it is (delay) and how slowly power "
		"follows the load (rise and fall, time constants). Each value has a 95 % "
		"uncertainty.\n\nThe findings are stored by meter and driver in the state folder, "
		"and later measurements on this machine use them: sensors are read at the right "
		"rate, each reading is assigned to the time that it describes, and the bounds of "
		"the energy follow from the real window. A signal that does not follow the load is "
		"reported and not stored. No setting of a device is changed.\n\nThe method is that "
		"of Yang et al., SC'24 (arXiv 2312.02741), with loads and pauses of 0.15 to 0.6 s.",
	.example = "joulemark calibrate --device cuda:0 --source nvml:raw\n"
		   "joulemark calibrate --device cuda:0 --source nvml:raw \\\n"
		   "    --json h100.json --no-keep\n"
		   "joulemark calibrate --from h100.json",
	.options = options,
	.run = calibrate,
};
