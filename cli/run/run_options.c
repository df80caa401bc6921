/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `run`, besides those of the workload. */
#include "run_options.h"
#include "cli/frame/json_option.h"
#include "cli/measure/measure_store.h"
#include "cli/settings/found_option.h"
#include "cli/settings/probe.h"
#include "plan_file_options.h"
#include "run_words.h"

static const char *const orders[] = {"random", "given", NULL};
static const char *const launchers[] = {"local", "srun", "started", NULL};

const struct jm_option jm_run_options[] = {
	{.name = "device",
		.usual = true,
		.heading = "What runs",
		.use = JM_OPTION_SWEPT | JM_OPTION_OF_WORK,
		JM_BIND(JM_TEXT, struct jm_run_given, device),
		.fallback = "cpu",
		.argument = "DEVICE,...",
		.help = "device that the workload runs on: cpu, ref, cuda:0, or a simulated node "
			"such as sim:h100x4; several are compared, except with --ranks and in "
			"copies between two GPUs, which use all of them at once. For a command: "
			"the device whose power is measured and set, this machine by default"},
	{.name = "precision",
		.usual = true,
		.use = JM_OPTION_SWEPT | JM_OPTION_OF_WORK,
		JM_BIND(JM_TEXT, struct jm_run_given, precision),
		JM_GIVEN(struct jm_run_given, precision_given),
		.fallback = "f32",
		.argument = "PRECISION,...",
		.help = "precision of the arithmetic: f32, tf32, f64, bf16 and fp16 (both with f32 "
			"parameters), bf16-true (also matrices and their moments, with stochastic "
			"rounding), fp8 and fp8-true (as bf16 and bf16-true, with the products "
			"inside blocks in 8 bits, which serve keeps its weights in); 'joulemark "
			"doctor' lists those of each device"},
	{.name = "seconds",
		.usual = true,
		.use = JM_OPTION_OF_WORK,
		JM_BIND(JM_DURATION, struct jm_run_given, seconds),
		.unit = "s",
		.min = 0.001,
		.max = 1e7,
		.help = "length of the measured phase, such as 10min; the last step is finished"},
	{.name = "steps",
		.usual = true,
		.use = JM_OPTION_OF_WORK,
		JM_BIND(JM_INT, struct jm_run_given, steps),
		.min = 1,
		.max = 1e9,
		.help = "steps of the measured phase; if neither --steps nor --seconds is given, "
			"it has at least 3 steps and lasts at least 10 s"},
	{.name = "warmup",
		.use = JM_OPTION_OF_WORK,
		JM_BIND(JM_TEXT, struct jm_run_given, warmup),
		.argument = "N|TIME",
		.help = "steps, or a time such as 5s, before the measured phase; without it 2 "
			"steps and at least 1 s"},
	{.name = "epochs",
		.use = JM_OPTION_OF_WORK,
		JM_BIND(JM_INT, struct jm_run_given, epochs),
		.min = 1,
		.max = 1e6,
		.help = "run this many epochs of --epoch-steps steps; the first is the warm-up, "
			"each of the others is a measured phase. A single one is measured without "
			"a warm-up, and with --warmup 0 all are"},
	{.name = "epoch-steps",
		.use = JM_OPTION_OF_WORK,
		JM_BIND(JM_INT, struct jm_run_given, epoch_steps),
		.min = 1,
		.max = 1e9,
		.help = "steps per epoch; when not given: those that --data needs for all of its "
			"pictures, else 50"},
	{.name = "steady",
		.use = JM_OPTION_OF_WORK,
		JM_BIND(JM_DURATION, struct jm_run_given, steady),
		.unit = "s",
		.min = 1,
		.max = 1e5,
		.help = "warm up until temperature and power are steady, for at most this long, "
			"such as 5min"},
	{.name = "selftest",
		.use = JM_OPTION_OF_WORK,
		JM_BIND(JM_DURATION, struct jm_run_given, selftest),
		.unit = "s",
		.min = 0,
		.max = 3600,
		.help = "longest time, before the first step, for comparing operations of the work "
			"with the reference; 0 omits this test; without this option 200ms"},
	{.name = "fast",
		.use = JM_OPTION_OF_WORK,
		JM_BIND(JM_FLAG, struct jm_run_given, fast),
		.help = "allow algorithms on a GPU whose results may differ in their last bits "
			"from "
			"run to run; the same as --env JM_CUDA_FAST=1, which the record names"},
	{.name = "env",
		JM_BIND(JM_TEXT, struct jm_run_given, env),
		.argument = "NAME=VALUE",
		.repeat = true,
		.help = "environment variable of the command, or of the process in which the "
			"workload runs"},
	{.name = "timeout",
		JM_BIND(JM_DURATION, struct jm_run_given, timeout),
		.unit = "s",
		.min = 0.01,
		.max = 1e7,
		.help = "time limit of a case; a case that takes longer fails"},
	{.name = "real-time",
		.use = JM_OPTION_OF_WORK,
		JM_BIND(JM_FLAG, struct jm_run_given, real_time),
		.help = "run a simulated device in real time instead of simulated time"},
	{.name = "set",
		.usual = true,
		.heading = "Settings",
		JM_BIND(JM_TEXT, struct jm_run_given, set),
		.argument = "KNOB=VALUES",
		.repeat = true,
		.help = "sweep a knob: gpu.power=300W,400W or gpu.power=200:700+100W; each block "
			"also holds the unchanged setting, as the reference. "
			"PHASE/KNOB=VALUES applies in one phase only, as decode/gpu.power=300W: "
			"warmup, steady or verify of a workload, or a phase that a command marks"},
	{.name = "control",
		JM_BIND(JM_TEXT, struct jm_run_given, control),
		.argument = "CONTROL,...",
		.help = "controls whose knobs --set uses; without it those of the machine, or of "
			"the simulated device"},
	{JM_FOUND_ROW, .use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_run_given, sweep.stated)},
	{JM_PROBE_LOAD_ROW, .use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_run_given, probe_load)},
	{.name = "sm-share",
		.use = JM_OPTION_SWEPT | JM_OPTION_OF_WORK,
		.type = JM_TEXT,
		.argument = "PERCENT,...",
		.help = "soft control, which needs no special rights: compute on this share of the "
			"GPU's multiprocessors; several values are swept"},
	{.name = "hold-power",
		.use = JM_OPTION_SWEPT | JM_OPTION_OF_WORK,
		.type = JM_TEXT,
		.argument = "WATTS,...",
		.help = "soft control, which needs no special rights: pause between steps so that "
			"the mean power of the computing devices has this value; several values "
			"are swept"},
	{.name = "affinity",
		.use = JM_OPTION_SWEPT | JM_OPTION_OF_WORK,
		.type = JM_TEXT,
		.argument = "near|none|CPUS,...",
		.help = "processors that each rank runs on, and NUMA nodes that its memory comes "
			"from first: near = those next to its GPU, which is also the default and "
			"needs hwloc; none = whatever this call may use; or a list for each rank, "
			"as in 0-11+96-107/12-23+108-119, with nodes behind @, as in 0-11@0; "
			"several values are swept, and --dry-run shows what becomes of them"},
	{.name = "repeat",
		.usual = true,
		.heading = "Repeats",
		JM_BIND(JM_INT, struct jm_run_given, repeat),
		JM_GIVEN(struct jm_run_given, repeat_given),
		.min = 1,
		.max = 10000,
		.fallback = "1",
		.help = "number of blocks; each holds every case once, in random order"},
	{.name = "until-interval",
		.usual = true,
		JM_BIND(JM_TEXT, struct jm_run_given, until_interval),
		.argument = "PERCENT",
		.help = "repeat until half the width of the 95 % interval of each case's speed and "
			"energy is at most this share of the mean, such as 1%; at least 3 repeats, "
			"or --repeat if that is more"},
	{.name = "max-repeat",
		JM_BIND(JM_INT, struct jm_run_given, max_repeat),
		JM_GIVEN(struct jm_run_given, max_repeat_given),
		.min = 1,
		.max = 10000,
		.fallback = "20",
		.help = "with --until-interval: the largest number of repeats"},
	{.name = "order",
		JM_BIND(JM_CHOICE, struct jm_run_given, order),
		JM_GIVEN(struct jm_run_given, order_given),
		.choices = orders,
		.fallback = "random",
		.help = "order of the cases in a block; 'given' is the order of the lists, in "
			"which a drift of the machine looks like an effect of a setting"},
	{.name = "seed",
		JM_BIND(JM_INT, struct jm_run_given, seed),
		JM_GIVEN(struct jm_run_given, seed_given),
		.min = 0,
		.max = 9e15,
		.fallback = "1",
		.help = "seed of the order and of the workload's random numbers"},
	{.name = "cooldown",
		JM_BIND(JM_DURATION, struct jm_run_given, cooldown),
		.unit = "s",
		.min = 0,
		.max = 1e5,
		.help = "pause before each case but the first, such as 30s; none on simulated "
			"devices in simulated time"},
	{.name = "retries",
		JM_BIND(JM_TEXT, struct jm_run_given, retries),
		.argument = "N|KIND=N,...",
		.help = "how often a failed case is run again at once, by the kind of failure: "
			"memory, timeout, crash, device, command, work; N alone: device, timeout "
			"and crash, since insufficient memory is a result"},
	{.name = "source",
		.heading = "Sensors",
		JM_BIND(JM_TEXT, struct jm_run_given, source),
		.argument = "SOURCE,...",
		.repeat = true,
		.help = "power sensors to read; without it all that are available here"},
	{.name = "interval",
		JM_BIND(JM_DURATION, struct jm_run_given, interval),
		.unit = "s",
		.min = 0.0001,
		.max = 60,
		.help = "time between readings, such as 100ms; without it half the refresh period "
			"of the sensors"},
	{.name = "idle-gpus",
		JM_BIND(JM_FLAG, struct jm_run_given, idle_gpus),
		.help = "also count the energy of GPUs on which the work did not run, in what this "
			"command prints and in what 'joulemark report' prints of this store"},
	{.name = "add-watts",
		JM_BIND(JM_REAL, struct jm_run_given, add_watts),
		.unit = "W",
		.min = 0,
		.max = 1e6,
		.help = "assumed power of the rest of each node, added to every case in the table, "
			"as by 'joulemark report'"},
	{JM_ITEMS_REGEX_ROW, .heading = "Items of a command", .use = JM_OPTION_OF_COMMAND,
		JM_BIND(JM_TEXT, struct jm_run_given, items.regex)},
	{JM_ITEMS_JSON_ROW, .use = JM_OPTION_OF_COMMAND,
		JM_BIND(JM_TEXT, struct jm_run_given, items.json)},
	JM_ITEM_KIND_OPTION(struct jm_run_given, items.kind, JM_OPTION_OF_COMMAND),
	JM_ITEM_UNIT_OPTION(struct jm_run_given, items.unit, JM_OPTION_OF_COMMAND),
	{.name = "store",
		.usual = true,
		.heading = "The store",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_run_given, store),
		.argument = "FILE",
		.help = "store records and traces in this SQLite file; cases that are finished in "
			"it are not run again, failed ones only with --retry"},
	{.name = "launcher",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_CHOICE, struct jm_run_given, launcher),
		.choices = launchers,
		.fallback = "local",
		.help = "what starts the ranks of --ranks: local = this call, on this host; "
			"srun = Slurm, one for each task of the allocation in which this call is; "
			"started = mpirun, srun, torchrun or a person starts this call once for "
			"each rank, on one or more hosts (docs/hosts.md)"},
	{.name = "resume",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct jm_run_given, resume),
		.help = "continue the last plan in the store"},
	{.name = "retry",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct jm_run_given, sweep.retry),
		.help = "run failed cases again"},
	{.name = "only-failed",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct jm_run_given, sweep.only_failed),
		.help = "run again only the failed cases of the store"},
	{.name = "rerun",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_run_given, sweep.rerun),
		.argument = "ID",
		.help = "run again only the stored cases whose id begins with this text"},
	{.name = "shard",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_run_given, shard),
		.argument = "K/N",
		.help = "run only every Nth block of --repeat, from the Kth on: N runners, each "
			"with a store of its own, share the repeats of a plan between them, and "
			"'joulemark merge' joins their stores"},
	{.name = "job",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_run_given, job),
		.argument = "FILE:N",
		.help = "run the Nth job, from 0, of a run that 'joulemark submit' wrote to FILE, "
			"in place of a plan; so do the jobs of Slurm that it submits"},
	{JM_JSON_ROW("write the record as JSON, or an array of several; without a file to standard "
		     "output"),
		.usual = true, .heading = "Output", .use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_run_given, json), .takes_next = jm_run_json_next},
	{.name = "columns",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_TEXT, struct jm_run_given, columns),
		.argument = "NAME,...|all",
		.help = "columns of the table, as in 'joulemark report'"},
	{.name = "show-output",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct jm_run_given, show_output),
		.help = "copy the output of commands to standard error; a single run always prints "
			"it"},
	{.name = "dry-run",
		.usual = true,
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct jm_run_given, dry_run),
		.help = "list the cases in the order of the first block, and run nothing"},
	{.name = "fail-fast",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct jm_run_given, sweep.fail_fast),
		.help = "stop after the first failed case"},
	JM_PLAN_FILE_OPTIONS(struct jm_run_given, plan, "Plan files", "with a plan file: "),
	{0},
};

int jm_run_refuse_of_command(struct jm_cli *cli)
{
	for (const struct jm_option *row = jm_run_options; row->name && !cli->command; row++)
		if (row->use & JM_OPTION_OF_COMMAND && jm_cli_given(cli, row->name))
			return jm_err_set(&cli->err, JM_EUSAGE,
				"--%s is of outside commands, and a workload counts its own items; "
				"omit it.",
				row->name);
	return 0;
}
