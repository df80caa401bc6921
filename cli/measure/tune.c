/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark tune: find the best setting of a knob while a command runs, and hold it. */
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "cli/frame/json_option.h"
#include "cli/settings/found_option.h"
#include "cli/settings/probe.h"
#include "cli/settings/hold.h"
#include "measure.h"
#include "policy_plan.h"
#include "tune_run.h"

#include "base/files/output.h"
#include "base/process/child_process.h"
#include "meter/source.h"

#define LEAST_WINDOWS 10 /* in the time of a search */
#define LEAST_OF_TWO  25 /* of one over two knobs */

struct tune {
	struct measurement m;
	struct jm_tune_run run;
	bool objective_given, window_given, progress_given; /* and no defaults */
};

static const struct jm_option options[] = {
	{.name = "objective",
		.usual = true,
		.heading = "Search",
		JM_BIND(JM_TEXT, struct tune, run.objective),
		JM_GIVEN(struct tune, objective_given),
		.argument = "NAME",
		.fallback = "edp",
		.help = "what is minimized, with e = joules per item and d = seconds per item: "
			"energy (e), edp (e d), ed2p (e d^2), eds:K, zeus:ETA, or slowdown:5%, the "
			"least e at which d grows by at most 5 %"},
	{.name = "budget",
		.usual = true,
		JM_BIND(JM_REAL, struct tune, run.budget_watts),
		.unit = "W",
		.min = 1,
		.max = 1e7,
		.argument = "WATTS",
		.help = "in place of an objective: share this power among the limits of the "
			"devices, such as 2400W; what they enforce together is never above it"},
	{.name = "share",
		.usual = true,
		JM_BIND(JM_CHOICE, struct tune, run.share),
		.choices = jm_share_names,
		.fallback = "marginal",
		.needs = "budget",
		.help = "of the budget: equal, proportional to the highest limit of each device, "
			"or marginal: moved while the command runs to where it does most"},
	{.name = "knob",
		.usual = true,
		JM_BIND(JM_TEXT, struct tune, run.knobs),
		.argument = "KNOB",
		.repeat = true,
		.help = "what is moved, on all devices of this job; gpu.power@0 on one device, "
			"gpu.power=250:600+25W between these values; without it gpu.power. Given "
			"twice, both are moved: --knob gpu.power --knob gpu.clock"},
	{.name = "per-phase",
		.usual = true,
		JM_BIND(JM_FLAG, struct tune, run.per_phase),
		.help = "one value for each class of the phases that the command marks (compute-, "
			"memory- or link-bound, mixed), set when such a phase begins"},
	{.name = "class",
		JM_BIND(JM_TEXT, struct tune, run.classes),
		.argument = "PHASE=CLASS",
		.repeat = true,
		.needs = "per-phase",
		.help = "class of a phase: compute, memory, link or mixed; without it by the name "
			"of the phase (prefill, gemm, decode, stream, allgather...), else by the "
			"activity of the devices"},
	{.name = "policy",
		.usual = true,
		JM_BIND(JM_TEXT, struct tune, run.policy),
		.argument = "FILE",
		.needs = "per-phase",
		.help = "write the values of the phases, with the class of each, as a plan that "
			"compares them with the setting found and with one value for all: "
			"'joulemark run FILE'"},
	{.name = "within",
		.usual = true,
		JM_BIND(JM_DURATION, struct tune, run.within_s),
		.unit = "s",
		.min = 1,
		.max = 86400,
		.argument = "TIME",
		.help = "time of a search, such as 5min; its first visits of all values, and the "
			"comparison at its end, are made whole and may take longer; noisy work "
			"needs more; without it 1min, of two knobs 3min, with --per-phase 5min"},
	{.name = "window",
		JM_BIND(JM_DURATION, struct tune, run.window_s),
		JM_GIVEN(struct tune, window_given),
		.unit = "s",
		.min = 0.1,
		.max = 3600,
		.argument = "TIME",
		.fallback = "2",
		.help = "least time for which a setting is held to measure it; it begins and ends "
			"with a report of items"},
	{.name = "progress",
		.usual = true,
		JM_BIND(JM_CHOICE, struct tune, run.progress),
		JM_GIVEN(struct tune, progress_given),
		.choices = jm_tune_progress_names,
		.fallback = "items",
		.help = "what counts as work: items that the command reports, or gpu, the cycles "
			"of the GPUs while they are busy, which is an estimate"},
	{JM_FOUND_ROW, JM_BIND(JM_TEXT, struct tune, run.found)},
	{JM_PROBE_LOAD_ROW, JM_BIND(JM_TEXT, struct tune, run.probe_load)},
	{JM_DEVICE_ROW, .usual = true, .heading = "Devices",
		JM_BIND(JM_TEXT, struct tune, m.device)},
	{JM_CONTROL_ROW, JM_BIND(JM_TEXT, struct tune, run.control)},
	JM_SOURCE_OPTION(struct tune, m.source_texts),
	{JM_INTERVAL_ROW, JM_BIND(JM_DURATION, struct tune, m.interval_ns)},
	{JM_ITEMS_REGEX_ROW, .usual = true, .heading = "Items",
		JM_BIND(JM_TEXT, struct tune, m.items.regex)},
	{JM_ITEMS_JSON_ROW, .usual = true, JM_BIND(JM_TEXT, struct tune, m.items.json)},
	JM_ITEM_KIND_OPTION(struct tune, m.items.kind, 0),
	JM_ITEM_UNIT_OPTION(struct tune, m.items.unit, 0),
	{JM_JSON_ROW("write the record as JSON; without a file to standard output"), .usual = true,
		.heading = "Files", JM_BIND(JM_TEXT, struct tune, m.json),
		.takes_next = jm_hold_json_next},
	{.name = "store",
		JM_BIND(JM_TEXT, struct tune, m.store_path),
		.argument = "FILE",
		.help = "add the record and its trace to this SQLite file"},
	{.name = "csv",
		JM_BIND(JM_TEXT, struct tune, m.csv),
		.argument = "DIR",
		.help = "write every reading, and watts.csv with a column for each meter"},
	{JM_METERS_ROW, JM_BIND(JM_FLAG, struct tune, m.text.meters)},
	{0},
};

static int n_knobs(const struct tune *t)
{
	int n = 0;

	while (t->run.knobs && t->run.knobs[n])
		n++;
	return n;
}

static int check_search(struct jm_cli *cli, const struct tune *t)
{
	int n = n_knobs(t), least = n > 1 ? LEAST_OF_TWO : LEAST_WINDOWS;

	if (n > JM_TUNE_KNOBS)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--knob is given %d times; one search moves at most %d knobs.", n,
			JM_TUNE_KNOBS);
	if (t->run.per_phase && (n > 1 || t->run.budget_watts > 0))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--per-phase moves one knob and supports no budget; give one --knob, and "
			"omit "
			"--budget.");
	if (n > 1 && t->run.budget_watts > 0)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--budget shares a power among the limits of one knob; give one --knob.");
	if (!t->run.per_phase && t->run.within_s < least * t->run.window_s)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"A search of %g s has no time for %d windows of %g s; give a longer "
			"--within or a shorter --window.",
			t->run.within_s, least, t->run.window_s);
	return 0;
}

static int check(struct jm_cli *cli, const struct tune *t)
{
	struct jm_objective o;

	if (!cli->command)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"There is no command to tune. Usage: 'joulemark tune [options] -- "
			"CMD...'.");
	if (check_search(cli, t))
		return cli->err.code;
	if (t->run.per_phase &&
		(t->m.items.regex || t->m.items.json || t->progress_given || t->window_given))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"With --per-phase the marks of the command begin phases and report their "
			"items; omit --items-regex, --items-json, --progress and --window.");
	if (t->run.progress == JM_TUNE_GPU && (t->m.items.regex || t->m.items.json))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--progress gpu counts no items of the output; omit it, or --items-regex "
			"and --items-json.");
	if (t->run.budget_watts > 0 && t->objective_given)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"With --budget the rate of items is what counts; omit it, or --objective.");
	return jm_objective_parse(t->run.objective, &o, &cli->err);
}

static int tune(struct jm_cli *cli)
{
	struct tune t = {.m = {.cli = cli, .command = cli->command}};
	int status;

	JM_FILL(&cli->values, &t);
	t.m.tune = &t.run;
	if (isnan(t.run.within_s))
		t.run.within_s = t.run.per_phase ? 300 : n_knobs(&t) > 1 ? 180 : 60;
	if (check(cli, &t) || (t.run.policy && jm_output_try(t.run.policy, &cli->err)))
		return jm_cli_fail(cli);
	if (jm_hold_check(cli->command, &cli->err)) {
		jm_cli_fail(cli);
		return jm_proc_status_of(cli->err.code);
	}
	status = jm_measure(&t.m);
	if (t.run.policy && t.run.json &&
		jm_policy_plan_write(t.run.policy, t.run.json,
			t.run.knobs ? t.run.knobs[0] : "gpu.power", t.m.device, cli->command,
			&cli->err))
		status = jm_cli_fail(cli);
	json_decref(t.run.json);
	return status;
}

static bool any_word(const struct jm_cli *cli, const char *word)
{
	(void)cli;
	(void)word;
	return true;
}

const struct jm_command jm_command_tune = {
	.name = "tune",
	.summary = "find the best setting of a knob while a command runs, and hold it",
	.usage = "[options] [--] CMD...",
	.description =
		"Runs CMD as 'measure' does, and searches meanwhile for the value of a knob with "
		"the lowest objective: a grid over its range, a golden section, then the best "
		"against the setting found. Each value is held for a window whose energy and items "
		"are measured; two values are visited in turns until their 95 % intervals "
		"separate. The best is held until CMD ends, or the setting found if nothing is "
		"better than that. Where energy or time per item move, it looks again.\n\n"
		"With --budget, the limits of several devices share a power instead, so that the "
		"rate of items is as high as it allows.\n\n"
		"With --per-phase, each phase that CMD marks has the value of its class.\n\n"
		"CMD reports its items with marks ('joulemark mark'), or they are counted in what "
		"it prints. Native work reports its steps: 'joulemark tune -- joulemark run "
		"gpt-117m'.\n\n"
		"The values found are restored when CMD has ended, even if joulemark is killed. "
		"Visits, choice and savings are in the record. The exit status is that of CMD; "
		"125 is a failure of joulemark itself.",
	.example = "joulemark tune --objective slowdown:5% -- python train.py\n"
		   "joulemark tune --items-regex 'tokens: (\\d+)' -- ./train\n"
		   "joulemark tune --knob gpu.power=250:600+25W --within 5min -- ./train\n"
		   "joulemark tune --knob gpu.power@0 --knob gpu.power@1 -- ./train\n"
		   "joulemark tune --budget 1kW -- ./train\n"
		   "joulemark tune --per-phase --policy plan.yaml -- ./train\n"
		   "joulemark tune --device sim:h100x4 -- joulemark run sim \\\n"
		   "  --device sim:h100x4 --real-time --seconds 60",
	.options = options,
	.max_args = 0,
	.takes_command = true,
	.begins_command = any_word,
	.run = tune,
};
