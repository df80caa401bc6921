/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a record that describe meters: energy, signals, phases, quality, shares, repeats. */
#include "result/record_keys_parts.h"

#include "energy/energy.h"
#include "meter/meter.h"

#include <limits.h>
#include <stddef.h>

#define NAME(name, text) text,
static const char *const scopes[] = {JM_SCOPES(NAME) NULL};
static const char *const origins[] = {JM_ORIGINS(NAME) NULL};
static const char *const faults[] = {JM_FAULTS(NAME) NULL};
static const char *const grade_words[] = {"A", "B", "C", "D", "none", NULL};

#define NO_TOTAL "null: there is none, one of them is unknown, or two of them share a part"
#define TOTAL(ORIGIN)                                                                              \
	{                                                                                          \
		NUMBER("joules_" ORIGIN, JM_KEY_NULL),                                             \
			.unit = "J",                                                               \
			.meaning = "sum over the " ORIGIN                                          \
				   " meters that no other one includes; " NO_TOTAL,                \
			.column = "joules_" ORIGIN                                                 \
	}

const struct jm_key jm__idle_gpus_keys[] = {
	{COUNT("n", 0), .meaning = "how many"},
	{POSITIVE("watts", JM_KEY_NULL), .unit = "W", .meaning = "their power",
		.column = "idle_gpus_W"},
	{POSITIVE("joules", JM_KEY_NULL), .unit = "J", .meaning = "their energy, in no total",
		.column = "idle_gpus_J"},
	{POSITIVE("joules_with", JM_KEY_NULL), .unit = "J",
		.meaning = "the total of the origin from which the energy of the run is, and "
			   "theirs"},
	{0},
};

const struct jm_key jm__total_keys[] = {
	TOTAL("measured"),
	TOTAL("estimated"),
	TOTAL("simulated"),
	TOTAL("replayed"),
	{POSITIVE("error_measured_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "uncertainty of the sum (95 %): root of the sum of squares of the "
			   "meters' sampling bounds, and of the sum of their calibration bounds; "
			   "null: a part is unknown"},
	{POSITIVE("error_estimated_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "as error_measured_joules"},
	{POSITIVE("error_simulated_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "as error_measured_joules"},
	{POSITIVE("error_replayed_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "as error_measured_joules"},
	{0},
};

static const struct jm_key signal_keys[] = {
	{TEXT("quantity", 0), .meaning = "what it measures: power, energy, clock, temperature..."},
	{TEXT("unit", 0), .meaning = "of the figures of this signal"},
	{POSITIVE("step", JM_KEY_NULL), .meaning = "resolution, in the unit"},
	{POSITIVE("refresh_s", JM_KEY_NULL), .unit = "s",
		.meaning = "how often the sensor changes"},
	{POSITIVE("window_s", JM_KEY_NULL), .unit = "s",
		.meaning = "averaging window; 0 = instantaneous or a counter"},
	{FLAG("calibrated", JM_KEY_OPTIONAL),
		.meaning =
			"refresh and window were found by 'joulemark calibrate' on this machine"},
	{NUMBER("mean", JM_KEY_NULL), .meaning = "over time; null for a counter"},
	{NUMBER("min", JM_KEY_NULL), .meaning = "the smallest reading; in the unit"},
	{NUMBER("max", JM_KEY_NULL), .meaning = "the largest reading; in the unit"},
	{NUMBER("last", JM_KEY_NULL), .meaning = "the last reading; in the unit"},
	{INTEGER("bits", JM_KEY_OPTIONAL), .min = 0, .max = 255,
		.meaning = "of throttle: the bits that any reading had, or-ed: 1 = the power cap, "
			   "2 = heat, 4 = the external power brake, 8 = other reasons"},
	{POSITIVE("increase", JM_KEY_NULL | JM_KEY_OPTIONAL),
		.meaning = "of a counter of seconds, as power-cap-time: what it counted between "
			   "the reading before the phase and the last in it; null for other "
			   "signals, if it was reset, or if no reading shows it"},
	{COUNT("samples", 0),
		.meaning = "readings in the phase; of equal ones in a row the first and the last"},
	{0},
};

const struct jm_key jm__items_from_keys[] = {
	{TEXT("url", 0), .meaning = "of the server's metrics"},
	{TEXT("metric", 0), .meaning = "whose increase the items are"},
	{0},
};

const struct jm_key jm__figures_keys[] = {
	{TEXT("from", 0), .meaning = "their date and source, as the user gave them"},
	{POSITIVE("price_per_kwh", JM_KEY_NULL), .meaning = "of the electricity"},
	{TEXT("currency", JM_KEY_NULL), .meaning = "of the price"},
	{POSITIVE("carbon_g_per_kwh", JM_KEY_NULL), .unit = "g",
		.meaning = "CO2e of the electricity"},
	{POSITIVE("pue", 0), .meaning = "energy of the facility divided by that of the machines"},
	{NUMBER("cost", JM_KEY_NULL),
		.meaning = "of the energy, times pue; of one run where a command was repeated"},
	{NUMBER("carbon_g", JM_KEY_NULL), .unit = "g", .meaning = "the same as CO2e"},
	{0},
};

const struct jm_key jm__job_keys[] = {
	{TEXT("id", 0), .meaning = "of the job of Slurm, or the name that --job gives"},
	{TEXT("step", JM_KEY_NULL), .meaning = "of the job of Slurm"},
	{INTEGER("process", JM_KEY_NULL), .min = 1, .max = INT_MAX,
		.meaning = "that measured; null: several, of which this record is the sum"},
	{COUNT("parts", JM_KEY_OPTIONAL), .meaning = "how many records this one is the sum of"},
	{0},
};

/* of a meter with parts */
#define REST_KEYS                                                                                  \
	{NUMBER("rest_joules", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",                        \
		.meaning = "energy of the meter less that of the meters that it includes; null "   \
			   "if one of them is unknown"},                                           \
	{                                                                                          \
		POSITIVE("rest_error_joules", JM_KEY_NULL | JM_KEY_OPTIONAL),                      \
			.unit = "J",                                                               \
			.meaning = "95 % uncertainty of rest_joules: the sum of the calibration "  \
				   "errors of the meter and of those that it includes"             \
	}

const struct jm_key jm__meter_keys[] = {
	{TEXT("id", 0), .meaning = "stable identity: GPU UUID, sysfs path"},
	{TEXT("label", 0), .meaning = "short name, for people"},
	{TEXT("about", JM_KEY_OPTIONAL),
		.meaning = "how it comes to its values, as an estimate does"},
	{TEXT("device", JM_KEY_NULL),
		.meaning = "that it belongs to, by its stable identity; null = none"},
	{TEXT("source", JM_KEY_DETAIL), .meaning = "that reads it"},
	{WORD("scope", 0), .words = scopes, .meaning = "what it covers"},
	{TEXT("covered_by", JM_KEY_NULL),
		.meaning = "id of the smallest meter that includes this one; null = it counts in "
			   "the total"},
	{TEXT("overlaps", JM_KEY_NULL), .meaning = "id of a meter that shares a part of it"},
	{FLAG("elsewhere", JM_KEY_OPTIONAL), .meaning =
						     "true: a meter of a GPU on which the work "
						     "did not run, or of something outside of the "
						     "node; it counts in no total"},
	{TEXT("host", JM_KEY_OPTIONAL),
		.meaning =
			"of ranks on several hosts: the one whose meter it is; ids of the others "
			"begin with its name"},
	{WORD("origin", 0), .words = origins, .meaning = "origin of its figures"},
	{NUMBER("joules", JM_KEY_NULL), .unit = "J",
		.meaning = "the better of the two below; null where a part of the time is unknown"},
	{NUMBER("joules_counter", JM_KEY_NULL | JM_KEY_DETAIL), .unit = "J",
		.meaning = "by its energy counter; null = it has none, or it was not whole"},
	{NUMBER("joules_integrated", JM_KEY_NULL | JM_KEY_DETAIL), .unit = "J",
		.meaning = "by its power over time; null = no power signal, or a gap"},
	{POSITIVE("error_joules", JM_KEY_NULL | JM_KEY_DETAIL), .unit = "J",
		.meaning = "sampling and calibration combined: the root of the sum of their "
			   "squares; null where one is unknown"},
	{POSITIVE("error_locked_joules", JM_KEY_OPTIONAL | JM_KEY_DETAIL), .unit = "J",
		.meaning = "of energy integrated from power: largest error if the load's period is "
			   "the sensor's refresh interval divided by a whole number"},
	{POSITIVE("error_sampling_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "95 % bound from edges, steps and windows"},
	{POSITIVE("error_calibration_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "the sensor's own accuracy"},
	{POSITIVE("covered_s", 0), .unit = "s",
		.meaning = "seconds of the phase that readings cover"},
	{NUMBER("watts_mean", JM_KEY_NULL), .unit = "W", .meaning = "over the covered part"},
	{NUMBER("watts_median", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "W",
		.meaning = "exceeded half of the covered time"},
	{NUMBER("watts_p99", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "W",
		.meaning = "99th percentile: power was above it for 1 % of the covered time"},
	{NUMBER("watts_max", JM_KEY_NULL), .unit = "W",
		.meaning = "the largest reading; the mean, where the readings are all below it"},
	{COUNT("samples", JM_KEY_DETAIL),
		.meaning = "readings in the phase; of equal ones in a row the first and the last"},
	{COUNT("gaps", JM_KEY_DETAIL), .meaning = "times without a reading"},
	{WORD("fault", JM_KEY_OPTIONAL), .words = faults,
		.meaning = "why some of its readings are not used, or not trusted: "
			   "docs/measuring.md"},
	REST_KEYS,
	{LIST("signals", 0), .keys = signal_keys,
		.meaning = "each signal of the meter in the phase"},
	{0},
};

const struct jm_key jm__context_keys[] = {
	{TEXT("id", 0), .meaning = "stable identity: pressure of a resource, a sensor"},
	{TEXT("label", 0), .meaning = "for people"},
	{TEXT("source", JM_KEY_DETAIL), .meaning = "that reads it"},
	{WORD("origin", 0), .words = origins, .meaning = "origin of its figures"},
	{LIST("signals", 0), .keys = signal_keys, .meaning = "each signal of it in the phase"},
	{0},
};

const struct jm_key jm__quality_keys[] = {
	{WORD("grade", 0), .words = grade_words, .meaning = "A to D, or none: docs/measuring.md",
		.column = "grade"},
	{TEXTS("reasons", 0), .meaning = "what prevents the next grade"},
	{0},
};

static const struct jm_key phase_meter_keys[] = {
	{TEXT("id", 0), .meaning = "of a meter"},
	{NUMBER("joules", JM_KEY_NULL), .unit = "J",
		.meaning = "in this phase; null where a part is unknown"},
	{POSITIVE("error_joules", JM_KEY_NULL | JM_KEY_DETAIL), .unit = "J",
		.meaning = "combined uncertainty (95 %)"},
	{NUMBER("watts_mean", JM_KEY_NULL), .unit = "W",
		.meaning = "over the covered part of the phase"},
	REST_KEYS,
	{0},
};

const struct jm_key jm__phase_keys[] = {
	{TEXT("name", 0), .meaning = "setup, settle, warmup, steady, verify, command, or a mark"},
	{NUMBER("start_s", 0), .unit = "s", .meaning = "since the session began"},
	{NUMBER("end_s", 0), .unit = "s", .meaning = "since the session began"},
	{POSITIVE("items", JM_KEY_NULL), .meaning = "credited to this phase"},
	{LIST("meters", 0), .keys = phase_meter_keys, .meaning = "the energy of each meter in it"},
	{OBJECT("total", 0), .keys = jm__total_keys, .meaning = "of this phase"},
	{OBJECT("settings", JM_KEY_OPTIONAL),
		.meaning = "of a case whose settings change with the phase: those in force in this "
			   "one, by knob"},
	{NUMBER("settings_from_s", JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "since the session began: when they were in force, where a command had "
			   "begun the phase before; else they were when it began"},
	{0},
};

static const char *const share_words[] = {"process-utilisation", "instance-utilisation", NULL};

static const struct jm_key instance_share_keys[] = {
	{TEXT("name", 0), .meaning = "of the instance (MIG): UUID of its first device"},
	{NUMBER("share", JM_KEY_NULL), .min = 0, .max = 1,
		.meaning =
			"of the energy of the GPU; the rest belongs to other instances or to none"},
	{NUMBER("joules_estimated", JM_KEY_NULL), .unit = "J",
		.meaning = "that share: an estimate; in no total"},
	{0},
};

static const struct jm_key gpu_share_keys[] = {
	{TEXT("meter", 0), .meaning = "id of the GPU's meter"},
	{WORD("method", 0), .words = share_words,
		.meaning = "each second's energy is divided as the driver reports the use: by "
			   "processes, or by instances (MIG)"},
	{NUMBER("share", JM_KEY_NULL), .min = 0, .max = 1,
		.meaning = "of the energy of the GPU that goes to the process or group; null: none "
			   "was named, or unknown"},
	{NUMBER("joules_estimated", JM_KEY_NULL), .unit = "J",
		.meaning =
			"that share: an estimate, whatever the origin of the meter; in no total"},
	{TEXT("reason", JM_KEY_NULL), .max = 300, .meaning = "why a share is unknown"},
	{LIST("instances", 0), .keys = instance_share_keys, .meaning = "of a divided GPU (MIG)"},
	{0},
};

const struct jm_key jm__attached_keys[] = {
	{TEXT("what", 0), .meaning = "the process, the control group, or the machine"},
	{POSITIVE("cpu_s", JM_KEY_NULL), .unit = "s",
		.meaning = "processor time of the process or group in the phase; null: none was "
			   "named, or unknown"},
	{POSITIVE("machine_cpu_s", JM_KEY_NULL), .unit = "s",
		.meaning = "processor time of everything that ran meanwhile"},
	{NUMBER("share", JM_KEY_NULL), .min = 0, .max = 1, .meaning = "the one by the other"},
	{NUMBER("joules_estimated", JM_KEY_NULL), .unit = "J",
		.meaning = "that share of the energy of the processors: an estimate, whatever the "
			   "origin of the meters; in no total"},
	{TEXTS("meters", 0), .meaning = "ids of the processors' meters that were shared out"},
	{LIST("gpus", 0), .keys = gpu_share_keys,
		.meaning = "GPUs whose driver was asked who uses them"},
	{0},
};

const struct jm_key jm__own_share_keys[] = {
	{POSITIVE("cpu_s", JM_KEY_NULL), .unit = "s",
		.meaning = "processor time of the command and its children, in all runs"},
	{POSITIVE("machine_cpu_s", JM_KEY_NULL), .unit = "s",
		.meaning = "processor time of everything that ran meanwhile"},
	{NUMBER("share", JM_KEY_NULL), .min = 0, .max = 1,
		.meaning = "the one by the other; null: less than 0.1 s ran"},
	{NUMBER("joules_estimated", JM_KEY_NULL), .unit = "J",
		.meaning = "that share of the energy of the processors: an estimate, whatever the "
			   "origin of the meters; in no total; null of repeated runs"},
	{TEXTS("meters", 0), .meaning = "ids of the processors' meters that were shared out"},
	{NUMBER("watts_before", JM_KEY_NULL), .unit = "W",
		.meaning = "power of the meters of the total when the command began; null: not "
			   "known by then, or repeated runs"},
	{0},
};

static const struct jm_key repeat_energy_keys[] = {
	{WORD("origin", 0), .words = origins, .meaning = "of the meters"},
	{NUMBER("joules", JM_KEY_NULL), .unit = "J",
		.meaning = "of one run, mean over the groups' time; null where a part is unknown"},
	{POSITIVE("error_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "95 %: the larger of the spread and of the groups' sampling bounds, and "
			   "the calibration bound, combined as the root of the sum of squares"},
	{POSITIVE("error_spread_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "half width of the 95 % interval of the mean over the groups; null: "
			   "there is one group"},
	{POSITIVE("error_calibration_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "the sensors' own accuracy"},
	{0},
};

static const struct jm_key spread_keys[] = {
	{NUMBER("mean", JM_KEY_NULL),
		.meaning = "of the runs that count; null: of none it is known"},
	{POSITIVE("sd", JM_KEY_NULL),
		.meaning = "standard deviation (n - 1); null: fewer than two"},
	{POSITIVE("half_width", JM_KEY_NULL),
		.meaning = "of the 95 % interval of the mean, Student's t; null: fewer than two"},
	{NUMBER("median", JM_KEY_NULL), .meaning = "of the same runs"},
	{NUMBER("min", JM_KEY_NULL), .meaning = "the smallest"},
	{NUMBER("max", JM_KEY_NULL), .meaning = "the largest"},
	{0},
};

static const struct jm_key ratio_keys[] = {
	{COUNT("pairs", 0), .meaning = "blocks in which both commands are known"},
	{POSITIVE("ratio", JM_KEY_NULL), .meaning = "of the geometric means"},
	{POSITIVE("low", JM_KEY_NULL),
		.meaning = "95 % interval by Student's t on the logarithms of each block's ratio"},
	{POSITIVE("high", JM_KEY_NULL), .meaning = "its upper end"},
	{NUMBER("p", JM_KEY_NULL), .min = 0, .max = 1,
		.meaning = "of a difference at least as large where there is none"},
	{0},
};

static const struct jm_key repeated_command_keys[] = {
	{TEXTS("command", JM_KEY_NULLS), .meaning = "its arguments"},
	{LIST("energy", 0), .keys = repeat_energy_keys,
		.meaning = "of one run, by origin, over the time of all its runs"},
	{COUNT("runs", 0), .meaning = "of the command"},
	{COUNT("counted", 0),
		.meaning =
			"runs in mean and spread: those that succeeded, or all where none did or "
			"failures are ignored; none that a signal to joulemark ended"},
	{COUNT("failed", 0), .meaning = "runs that ended with another status than 0"},
	{OBJECT("seconds", 0), .unit = "s", .keys = spread_keys, .meaning = "of one run"},
	{OBJECT("joules", 0), .unit = "J", .keys = spread_keys,
		.meaning = "of one run, of the origin that comes first in `energy`; a run that is "
			   "shorter than `refresh_s` has none"},
	{OBJECT("watts", 0), .unit = "W", .keys = spread_keys, .meaning = "of one run"},
	{OBJECT("user_s", 0), .unit = "s", .keys = spread_keys, .meaning = "of one run"},
	{OBJECT("system_s", 0), .unit = "s", .keys = spread_keys, .meaning = "of one run"},
	{OBJECT("ratio_seconds", JM_KEY_OPTIONAL), .keys = ratio_keys,
		.meaning = "of this command to the first, block by block"},
	{OBJECT("ratio_joules", JM_KEY_OPTIONAL), .keys = ratio_keys,
		.meaning = "the same of joules"},
	{OBJECT("ratio_watts", JM_KEY_OPTIONAL), .keys = ratio_keys,
		.meaning = "the same of watts"},
	{0},
};

static const struct jm_key repeated_run_keys[] = {
	{COUNT("command", 0), .meaning = "index in `commands`"},
	{COUNT("block", 0), .meaning = "from 1: of several commands each one is in a block once"},
	{COUNT("position", 0), .meaning = "in its block, from 1"},
	{POSITIVE("start_s", 0), .unit = "s", .meaning = "since the session began"},
	{INTEGER("exit_status", 0), .min = 0, .max = 255, .meaning = "as a shell reports it"},
	{FLAG("counted", 0), .meaning = "is in mean and spread"},
	{POSITIVE("seconds", 0), .unit = "s", .meaning = "from its start to its end"},
	{NUMBER("joules", JM_KEY_NULL), .unit = "J", .meaning = "see `commands`"},
	{NUMBER("watts", JM_KEY_NULL), .unit = "W", .meaning = "joules by seconds"},
	{POSITIVE("user_s", 0), .unit = "s", .meaning = "processor time outside of the kernel"},
	{POSITIVE("system_s", 0), .unit = "s", .meaning = "processor time within it"},
	{0},
};

const struct jm_key jm__repeats_keys[] = {
	{COUNT("runs", 0), .meaning = "of the command"},
	{COUNT("groups", 0),
		.meaning = "of runs one after another; before each there is a pause of another "
			   "part of a refresh"},
	{POSITIVE("seconds", 0), .unit = "s", .meaning = "of the groups, without the pauses"},
	{POSITIVE("refresh_s", 0), .unit = "s", .meaning = "of the slowest sensor"},
	{LIST("energy", 0), .keys = repeat_energy_keys,
		.meaning = "of one run of the first command, by origin"},
	{LIST("commands", JM_KEY_OPTIONAL), .keys = repeated_command_keys,
		.meaning = "the command, and those of --compare"},
	{LIST("each", JM_KEY_OPTIONAL), .keys = repeated_run_keys,
		.meaning = "the runs in the order of their starts, without warm-up"},
	{INTEGER("seed", JM_KEY_OPTIONAL), .min = 0, .max = JM_KEY_HUGE,
		.meaning = "of the order of several commands"},
	{COUNT("warmups", JM_KEY_OPTIONAL), .meaning = "of each command, before the first run"},
	{TEXTS("prepare", JM_KEY_OPTIONAL | JM_KEY_NULLS),
		.meaning = "the command that ran before each run"},
	{NUMBER("until_interval", JM_KEY_OPTIONAL), .min = 0, .max = 1,
		.meaning = "the relative half width of the intervals that was asked for"},
	{0},
};
