/* SPDX-License-Identifier: Apache-2.0 */
#include "measure_options.h"

#include "cli/frame/device_option.h"
#include "cli/frame/json_option.h"
#include "cli/settings/found_option.h"
#include "cli/settings/hold.h"
#include "cli/settings/probe.h"

static const char *const phase_ends[] = {"begin", "end", NULL};

const struct jm_option jm_measure_options[] = {
	{JM_DEVICE_ROW, .usual = true, .heading = "Sensors",
		JM_BIND(JM_TEXT, struct measurement, device)},
	JM_SOURCE_OPTION(struct measurement, source_texts),
	{JM_INTERVAL_ROW, .usual = true, JM_BIND(JM_DURATION, struct measurement, interval_ns)},
	{.name = "set",
		.heading = "Settings",
		JM_BIND(JM_TEXT, struct measurement, settings.set),
		.repeat = true,
		.argument = "KNOB=VALUE",
		.help = "while the command runs: set this knob, as in gpu.power=300W, and restore "
			"what was found; may be given for several knobs"},
	{JM_FOUND_ROW, JM_BIND(JM_TEXT, struct measurement, settings.found), .needs = "set"},
	{JM_PROBE_LOAD_ROW, JM_BIND(JM_TEXT, struct measurement, settings.probe_load)},
	{JM_CONTROL_ROW, JM_BIND(JM_TEXT, struct measurement, settings.control), .needs = "set"},
	{.name = "for",
		.usual = true,
		.heading = "Without a command",
		JM_BIND(JM_DURATION, struct measurement, attach.options.for_ns),
		.unit = "s",
		.min = 0.001,
		.max = 1e9,
		.argument = "TIME",
		.help = "without a command: measure the machine for this time, such as 60s; with "
			"--pid or --cgroup at most for this time"},
	{.name = "all",
		JM_BIND(JM_FLAG, struct measurement, attach.all),
		.help = "without a command: measure the machine until Ctrl-C"},
	{.name = "pid",
		.usual = true,
		JM_BIND(JM_INT, struct measurement, attach.options.pid),
		.min = 1,
		.max = 4194304,
		.argument = "N",
		.help = "without a command: measure until this process ends, or Ctrl-C; its share "
			"of the energy of processors and NVIDIA GPUs is estimated"},
	{.name = "cgroup",
		JM_BIND(JM_TEXT, struct measurement, attach.options.cgroup),
		.argument = "PATH",
		.help = "without a command: measure until this control group is removed, or "
			"Ctrl-C; PATH begins at /sys/fs/cgroup"},
	{.name = "slurm-job",
		JM_BIND(JM_INT, struct measurement, attach.slurm_job),
		.min = 1,
		.max = 4294967295,
		.argument = "ID",
		.help = "without a command: measure until the control group of this Slurm job is "
			"removed on this host, or Ctrl-C"},
	{.name = "repeat",
		.usual = true,
		.heading = "Repeats",
		JM_BIND(JM_INT, struct measurement, repeat.options.runs),
		.min = 2,
		.max = 100000,
		.argument = "N",
		.help = "run the command N times, with shifted starts, and print mean, spread and "
			"range of seconds, joules and watts"},
	{.name = "compare",
		.usual = true,
		JM_BIND(JM_TEXT, struct measurement, repeat.options.compare),
		.repeat = true,
		.argument = "'CMD'",
		.help = "with --repeat: compare the command with this one, both in blocks of "
			"random order"},
	{.name = "until",
		JM_BIND(JM_DURATION, struct measurement, repeat.options.seconds),
		.unit = "s",
		.min = 0.1,
		.max = 86400,
		.argument = "TIME",
		.help = "run the command, with at least four shifted starts, until its runs "
			"together took this time, such as 5s"},
	{.name = "until-interval",
		JM_BIND(JM_TEXT, struct measurement, repeat.options.interval),
		.argument = "PERCENT",
		.help = "run the command until half the width of the 95 % interval of its seconds "
			"and joules is at most this share of the mean, such as 2%; at least 3 "
			"runs, or --repeat if that is more"},
	{.name = "max-repeat",
		JM_BIND(JM_INT, struct measurement, repeat.options.most),
		JM_GIVEN(struct measurement, repeat.options.most_given),
		.min = 3,
		.max = 100000,
		.fallback = "100",
		.help = "with --until-interval: the largest number of runs"},
	{.name = "warmup",
		JM_BIND(JM_INT, struct measurement, repeat.options.warmups),
		.min = 0,
		.max = 100000,
		.argument = "N",
		.help = "with --repeat: runs of each command before the first one that counts"},
	{.name = "prepare",
		JM_BIND(JM_TEXT, struct measurement, repeat.options.prepare),
		.argument = "'CMD'",
		.help = "with --repeat: a command to run before each run, which is not measured"},
	{.name = "ignore-failure",
		JM_BIND(JM_FLAG, struct measurement, repeat.options.ignore_failure),
		.help = "with --repeat: a run that ends with another status than 0 counts, and the "
			"next one follows"},
	{.name = "seed",
		JM_BIND(JM_INT, struct measurement, repeat.options.seed),
		.min = 0,
		.max = 9e15,
		.fallback = "1",
		.help = "with --compare: seed of the order"},
	{JM_ITEMS_REGEX_ROW, .usual = true, .heading = "Items",
		JM_BIND(JM_TEXT, struct measurement, items.regex)},
	{JM_ITEMS_JSON_ROW, JM_BIND(JM_TEXT, struct measurement, items.json)},
	JM_ITEM_KIND_OPTION(struct measurement, items.kind, 0),
	{.name = "items-url",
		JM_BIND(JM_TEXT, struct measurement, items_url.options.url),
		.argument = "URL",
		.help = "count items by a counter of a server, whose metrics are here in the text "
			"format of Prometheus: http://127.0.0.1:8000/metrics; with a command or "
			"without one"},
	{.name = "items-metric",
		JM_BIND(JM_TEXT, struct measurement, items_url.options.metric),
		.argument = "NAME",
		.help = "with --items-url: the counter, such as vllm:generation_tokens_total, as "
			"the "
			"sum of its series; NAME{label=\"value\"} selects some of them"},
	JM_ITEM_UNIT_OPTION(struct measurement, items.unit, 0),
	{.name = "phase-regex",
		.heading = "Phases",
		JM_BIND(JM_TEXT, struct measurement, phase_regex),
		.argument = "REGEX",
		.help = "make phases of what the command prints: a line that this regular "
			"expression "
			"(PCRE2) finds, such as 'Epoch (\\d+)', begins one; its name is the text "
			"that "
			"matches, up to the end of the first group"},
	{.name = "phase-at",
		JM_BIND(JM_CHOICE, struct measurement, phase_at),
		.choices = phase_ends,
		.help = "with --phase-regex: the line stands at the begin of its phase, or at its "
			"end, "
			"as where a program reports an epoch when it is over. Without it, begin"},
	{JM_JSON_ROW("write the record as JSON; without a file to standard output"), .usual = true,
		.heading = "Files", JM_BIND(JM_TEXT, struct measurement, json),
		.takes_next = jm_hold_json_next},
	{.name = "store",
		.usual = true,
		JM_BIND(JM_TEXT, struct measurement, store_path),
		.argument = "FILE",
		.help = "add the record and its trace to this SQLite file, as one more repeat of "
			"the command; 'joulemark report' reads it"},
	{.name = "job",
		JM_BIND(JM_TEXT, struct measurement, job),
		.argument = "NAME",
		.help = "the job that the command is a part of: 'joulemark report' adds records of "
			"one job that overlap in time up to one run; without it, the job and step "
			"of Slurm in which joulemark runs"},
	{.name = "csv",
		.usual = true,
		JM_BIND(JM_TEXT, struct measurement, csv),
		.argument = "DIR",
		.help = "write every reading, and watts.csv with a column for each meter; "
			"'replay:DIR' reads the "
			"readings back"},
	{.name = "hdf5",
		JM_BIND(JM_TEXT, struct measurement, hdf5),
		.argument = "FILE",
		.help = "write every reading, the phases and the record as HDF5"},
	{.name = "metrics",
		JM_BIND(JM_TEXT, struct measurement, metrics),
		.argument = "FILE",
		.help = "write joules of each phase and meter for Prometheus: in the text format "
			"that its node exporter collects if the name of the file ends in .prom, "
			"else in OpenMetrics"},
	{.name = "price",
		.heading = "Cost and carbon",
		JM_BIND(JM_REAL, struct measurement, figures.price),
		.min = 0,
		.max = 1e6,
		.argument = "NUMBER",
		.help = "price of a kWh: prints what the energy costs"},
	{.name = "currency",
		JM_BIND(JM_TEXT, struct measurement, figures.currency),
		.needs = "price",
		.argument = "WORD",
		.help = "currency of the price, such as EUR"},
	{.name = "carbon",
		JM_BIND(JM_REAL, struct measurement, figures.carbon),
		.min = 0,
		.max = 1e5,
		.argument = "NUMBER",
		.help = "carbon intensity of the electricity in gCO2e per kWh: prints the carbon "
			"of "
			"the energy"},
	{.name = "figures-from",
		JM_BIND(JM_TEXT, struct measurement, figures.from),
		.argument = "TEXT",
		.help = "date and source of price and carbon intensity, which the record repeats"},
	{.name = "pue",
		JM_BIND(JM_REAL, struct measurement, figures.pue),
		.min = 1,
		.max = 10,
		.argument = "NUMBER",
		.help = "power usage effectiveness: energy of the facility divided by that of the "
			"machines; cost and carbon are multiplied by it. Without it, 1"},
	{JM_METERS_ROW, JM_BIND(JM_FLAG, struct measurement, text.meters)},
	{.name = "why",
		JM_BIND(JM_FLAG, struct measurement, text.why),
		.help = "print also what keeps the measurement from the next grade of quality"},
	{.name = "residue",
		JM_BIND(JM_FLAG, struct measurement, text.residue),
		.help = "print for each phase the energy of a meter less that of its parts: a GPU "
			"less its memory, a node less its boards"},
	{.name = "bounds",
		JM_BIND(JM_FLAG, struct measurement, text.bounds),
		.help = "print also the two parts of each uncertainty: sampling and calibration"},
	{0},
};

const struct jm_former jm_measure_former[] = {
	{"devices", "write --meters for the phases of each meter, or --device DEVICE for what is "
		    "measured"},
	{"runs", "write --repeat"},
	{"min-runs", "write --repeat, which with --until-interval is the least number of runs"},
	{"max-runs", "write --max-repeat, with --until-interval"},
	{0},
};
