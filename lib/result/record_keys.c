/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of a record (joulemark.run/1): types, ranges, units, meaning. What is read from a file
 * or a store is checked by this table, and these are made from it: what a record has before
 * anything is known, the columns of the store's view `results`, docs/record.schema.json and
 * docs/record_keys.md.
 */
#include "result/record_keys.h"
#include "result/failure.h"
#include "result/record_keys_parts.h"

#include "energy/energy.h"
#include "measure/command/item_kind.h"
#include "meter/meter.h"

#include <limits.h>
#include <stddef.h>

#define NAME(name, text) text,
static const char *const origins[] = {JM_ORIGINS(NAME) NULL};
static const char *const clock_words[] = {"real", "simulated", NULL};
static const char *const found_words[] = {"stated", "probed", NULL};
static const char *const state_words[] = {"binding", "not reached", "violated", "unknown", NULL};
static const char *const status_words[] = {"ok", "failed", NULL};

static const struct jm_key profile_line_keys[] = {
	{TEXT("name", 0), .meaning = "the ops that run as one: \"linear + gelu\""},
	{TEXT("result", JM_KEY_OPTIONAL), .meaning = "of a node: the tensor it makes"},
	{POSITIVE("calls", JM_KEY_NULL), .meaning = "runs in a step"},
	{POSITIVE("seconds", JM_KEY_NULL), .unit = "s",
		.meaning = "in a step, waited for after each node"},
	{POSITIVE("share", JM_KEY_NULL), .meaning = "of the time of a step, 0 to 1"},
	{POSITIVE("flops_per_s", JM_KEY_NULL), .unit = "FLOP/s",
		.meaning = "executed FLOPs; null where it has none"},
	{POSITIVE("bytes_per_s", JM_KEY_NULL), .unit = "B/s",
		.meaning = "operands read and results written; null for exchanges between ranks"},
	{POSITIVE("roofline", JM_KEY_NULL),
		.meaning = "the time that peak FLOP/s or memory speed would allow at best, by the "
			   "time taken; above 1 where operands were in a cache, null for exchanges "
			   "between ranks"},
	{POSITIVE("joules_model", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",
		.meaning = "of the phase that total describes, divided by time: a model, not a "
			   "measurement"},
	{0},
};

static const struct jm_key case_keys[] = {
	{TEXT("id", 0), .meaning = "hash of the parameters", .column = "case_id"},
	{OBJECT("parameters", 0), .meaning = "what the case is, without the machine"},
	{COUNT("repeat", 0), .meaning = "which run of the case, from 1", .column = "repeat"},
	{COUNT("block", 0), .meaning = "which block of the plan, from 1", .column = "block"},
	{COUNT("position", 0), .meaning = "place within the block, from 1", .column = "position"},
	{FLAG("reference", 0), .meaning = "the case that others are compared with",
		.column = "reference"},
	{SCALAR("seed", 0), .meaning = "of the random numbers", .column = "seed"},
	{TEXT("run", JM_KEY_OPTIONAL), .meaning = "name of the run in its plan file"},
	{TEXTS("tags", JM_KEY_OPTIONAL), .meaning = "of that run"},
	{TEXTS("template", JM_KEY_OPTIONAL),
		.meaning = "the command as the plan file has it, with {names} in place of values"},
	{0},
};

static const struct jm_key setting_keys[] = {
	{TEXT("knob", 0), .meaning = "gpu.power, of one phase decode/gpu.power..."},
	{TEXT("phase", JM_KEY_OPTIONAL), .meaning = "the phase in which alone it was in force"},
	{TEXT("device", JM_KEY_NULL), .meaning = "that has the knob"},
	{TEXT("unit", 0), .meaning = "of the three values"},
	{NUMBER("requested", JM_KEY_NULL), .meaning = "what the user asked for"},
	{NUMBER("accepted", JM_KEY_NULL),
		.meaning = "the value that the device accepted: rounded, clamped"},
	{NUMBER("enforced", JM_KEY_NULL), .meaning = "the value in the device; null = unknown"},
	{TEXT("value", JM_KEY_OPTIONAL),
		.meaning =
			"what was accepted, where it is no number: 1200:1500MHz, unlocked...; of "
			"a range the three values are its upper end, of a word null"},
	{WORD("found", JM_KEY_OPTIONAL), .words = found_words,
		.meaning = "how the value that is restored is known, where the device does not "
			   "report it"},
	{WORD("state", 0), .words = state_words, .meaning = "outcome: docs/running.md"},
	{0},
};

static const struct jm_key change_keys[] = {
	{NUMBER("at_s", 0), .unit = "s",
		.meaning = "since the session began: when the device had it, read back"},
	{TEXT("phase", 0), .meaning = "that began"},
	{TEXT("knob", 0), .meaning = "gpu.power..."},
	{TEXT("device", JM_KEY_NULL), .meaning = "that has the knob"},
	{TEXT("unit", 0), .meaning = "of the three values"},
	{NUMBER("requested", JM_KEY_NULL), .meaning = "what the case has in that phase"},
	{NUMBER("accepted", JM_KEY_NULL),
		.meaning = "the value that the device accepted: rounded, clamped"},
	{NUMBER("enforced", JM_KEY_NULL), .meaning = "the value in the device; null = unknown"},
	{TEXT("value", JM_KEY_OPTIONAL), .meaning = "as in settings"},
	{WORD("found", JM_KEY_OPTIONAL), .words = found_words, .meaning = "as in settings"},
	{0},
};

static const struct jm_key plan_keys[] = {
	{INTEGER("batch", 0), .min = 1, .max = INT_MAX,
		.meaning = "samples of a micro-step; with --batch max the largest that fits"},
	{INTEGER("parameters", 0), .min = 1, .max = JM_KEY_HUGE,
		.meaning = "elements, of frozen parts, too"},
	{INTEGER("parameters_frozen", JM_KEY_OPTIONAL), .min = 0, .max = JM_KEY_HUGE,
		.meaning = "of these, elements that are not trained"},
	{INTEGER("frozen_bytes", JM_KEY_OPTIONAL), .min = 0, .max = JM_KEY_HUGE, .unit = "B",
		.meaning = "of the latter"},
	{INTEGER("peak_bytes", 0), .min = 0, .max = JM_KEY_HUGE, .unit = "B",
		.meaning = "of device memory"},
	{INTEGER("persistent_bytes", 0), .min = 0, .max = JM_KEY_HUGE, .unit = "B",
		.meaning = "of these, what stays between steps"},
	{INTEGER("memory_bytes", JM_KEY_DETAIL), .min = 0, .max = JM_KEY_HUGE, .unit = "B",
		.meaning = "that the plan might take; 0 = unknown"},
	{FLAG("keep_all", JM_KEY_OPTIONAL),
		.meaning = "true: all results are kept for gradients and none is recomputed"},
	{TEXT("gradients", JM_KEY_OPTIONAL), .meaning = "type of the gradients of matrices"},
	{TEXT("residual", JM_KEY_OPTIONAL), .meaning = "type of a transformer's residual stream"},
	{POSITIVE("open_s", JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "that opening the device took, with the creation of its context"},
	{POSITIVE("plan_s", 0), .unit = "s",
		.meaning = "that choosing the batch and planning took"},
	{POSITIVE("build_s", JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "that the choice of kernels (timed where the plan cache has none), "
			   "their build and the start values took"},
	{0},
};

static const struct jm_key step_series_keys[] = {
	{INTEGER("every", 0), .min = 1, .max = INT_MAX,
		.meaning = "steps of an element of the lists, but for the last one: 1 up to 1000 "
			   "steps; longer runs have 2, 4, 8..., so that there are at most 1000 "
			   "elements"},
	{COUNT("steps", 0), .meaning = "of all phases, warm-up included; warmup_steps come first"},
	{NUMBERS("end_s", 0), .unit = "s",
		.meaning = "since the session began: when the last step of the element was done"},
	{NUMBERS("throughput", JM_KEY_NULLS),
		.meaning = "items/s of the steps of the element, over all devices; pauses between "
			   "steps count, time between phases does not"},
	{NUMBERS("loss", JM_KEY_NULLS | JM_KEY_OPTIONAL),
		.meaning = "of the last step of the element; null = it was not finite"},
	{0},
};

static const struct jm_key energy_keys[] = {
	{TEXT("model", 0), .meaning = "what is assumed"},
	{WORD("origin", 0), .words = origins, .meaning = "of these joules"},
	{POSITIVE("joules", 0), .unit = "J", .meaning = "of the phase that total describes"},
	{0},
};

static const struct jm_key profile_keys[] = {
	{POSITIVE("step_s", JM_KEY_NULL), .unit = "s",
		.meaning = "sum over nodes, each timed by itself"},
	{POSITIVE("whole_step_s", JM_KEY_NULL), .unit = "s",
		.meaning = "of the steps between those, which ran as without a profile (on a GPU "
			   "as recorded graphs)"},
	{POSITIVE("peak_flops_per_s", JM_KEY_NULL), .unit = "FLOP/s",
		.meaning = "of the device in this precision, for the roofline"},
	{POSITIVE("peak_bytes_per_s", JM_KEY_NULL), .unit = "B/s",
		.meaning = "of its memory: the device's, else measured by updating long vectors"},
	{LIST("kinds", 0), .keys = profile_line_keys,
		.meaning = "the one with the most time first"},
	{LIST("nodes", 0), .keys = profile_line_keys, .meaning = "in the order of running"},
	{OBJECT("energy", JM_KEY_OPTIONAL), .keys = energy_keys,
		.meaning = "what joules_model shares out"},
	{0},
};

static const struct jm_key hardware_keys[] = {
#define X(name, key, what, text)                                                                   \
	{POSITIVE(key, JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = what, .meaning = text},
	JM_HARDWARE(X)
#undef X
		{0},
};

static const struct jm_key provenance_device_keys[] = {
	{TEXT("id", 0), .max = 255, .meaning = "stable identity: GPU UUID, sysfs path"},
	{TEXT("name", 0), .max = 255, .meaning = "index and model"},
	{TEXT("source", 0), .max = 255, .meaning = "that reads it"},
	{OBJECT("hardware", JM_KEY_OPTIONAL), .keys = hardware_keys,
		.meaning = "of the device, as far as its source knows it"},
	{0},
};

static const struct jm_key provenance_keys[] = {
	{TEXT("joulemark", 0), .max = 255, .meaning = "its version"},
	{TEXT("host", 0), .max = 255, .meaning = "name of the node", .column = "host"},
	{TEXT("kernel", JM_KEY_NULL), .max = 255, .meaning = "release"},
	{TEXT("cpu", JM_KEY_NULL), .max = 255, .meaning = "model of the processor"},
	{COUNT("cores", JM_KEY_NULL), .meaning = "that are online"},
	{INTEGER("memory_bytes", JM_KEY_NULL), .min = 0, .max = JM_KEY_HUGE, .unit = "B",
		.meaning = "of the node"},
	{TEXT("os", JM_KEY_NULL), .max = 255, .meaning = "name of the system"},
	{TEXT("boot_id", JM_KEY_NULL), .max = 255,
		.meaning = "of the kernel, new with every start of the machine"},
	{LIST("devices", JM_KEY_NULL), .keys = provenance_device_keys,
		.meaning = "that meters read"},
	{OBJECT("drivers", JM_KEY_NULL),
		.meaning = "kernel modules of GPUs and accelerators: version"},
	{OBJECT("libraries", JM_KEY_NULL), .meaning = "shared objects: version"},
	{0},
};

static const struct jm_key ran_on_keys[] = {
	{TEXT("uuid", 0), .meaning = "of the device; of a part of a GPU its own"},
	{TEXT("bus", JM_KEY_NULL), .meaning = "its PCI address"},
	{TEXT("name", 0), .meaning = "as its backend names it"},
	{TEXT("meter", JM_KEY_NULL),
		.meaning = "id of the meter that reads it; null: none, and totals are unknown"},
	{FLAG("slice", 0),
		.meaning = "true: the device is a part (MIG) of the GPU that the meter reads"},
	{0},
};

static const struct jm_key peer_keys[] = {
	{TEXT("device", 0), .meaning = "as given to --device"},
	{TEXT("uuid", JM_KEY_NULL), .meaning = "of the device; null = it has none"},
	{TEXT("bus", JM_KEY_NULL), .meaning = "its PCI address"},
	{TEXT("name", 0), .meaning = "as its backend names it"},
	{FLAG("access", 0),
		.meaning = "true: both GPUs access each other's memory; false: copies go over the "
			   "host's memory"},
	{0},
};

static const struct jm_key rank_keys[] = {
	{COUNT("rank", 0), .meaning = "from 0"},
	{TEXT("device", JM_KEY_NULL), .meaning = "as given to --device"},
	{TEXT("uuid", JM_KEY_NULL), .meaning = "of the device; null = it has none"},
	{TEXT("name", JM_KEY_NULL), .meaning = "as its backend names it"},
	{TEXT("host", JM_KEY_OPTIONAL), .meaning = "on which it ran; absent: that of the run"},
	{0},
};

static const struct jm_key host_phase_keys[] = {
	{TEXT("name", 0), .meaning = "as in phases of the record"},
	{NUMBER("start_s", JM_KEY_NULL), .unit = "s", .meaning = "on the axis of the record"},
	{NUMBER("end_s", JM_KEY_NULL), .unit = "s", .meaning = "on the axis of the record"},
	{0},
};

static const struct jm_key host_keys[] = {
	{TEXT("name", 0), .meaning = "of the host"},
	{TEXT("machine", JM_KEY_NULL), .meaning = "boot id of its kernel: hosts that have it in "
						  "common are one machine, whose "
						  "sensors count once"},
	{NUMBERS("ranks", 0), .meaning = "that ran there; the first of them measured"},
	{NUMBER("start_s", JM_KEY_NULL), .unit = "s",
		.meaning = "when its session began, on the axis of the record, which begins with "
			   "that of rank 0; by comparing clocks before and after the case"},
	{POSITIVE("start_doubt_s", JM_KEY_NULL), .unit = "s",
		.meaning = "largest error of start_s: half of the longer exchange, and half of the "
			   "drift between both"},
	{LIST("phases", JM_KEY_DETAIL), .keys = host_phase_keys,
		.meaning = "as the host has seen them"},
	{LIST("settings", JM_KEY_NULL | JM_KEY_DETAIL), .keys = setting_keys,
		.meaning = "of its knobs, as those of the record are of the first host"},
	{0},
};

static const struct jm_key affinity_rank_keys[] = {
	{COUNT("rank", 0), .meaning = "of the gang"},
	{TEXT("device", 0), .meaning = "that it computes on"},
	{TEXT("gpu", JM_KEY_NULL), .meaning = "its address on the PCI bus"},
	{TEXT("cpus", 0), .meaning = "processors (hardware threads) as the kernel numbers them"},
	{TEXT("nodes", JM_KEY_NULL),
		.meaning = "NUMA nodes that the rank's memory comes from first; null: not bound"},
	{0},
};

static const char *const affinity_words[] = {"near", "given", "none", NULL};

static const struct jm_key affinity_keys[] = {
	{WORD("by", 0), .words = affinity_words,
		.meaning = "near: next to the GPUs, given: listed by --affinity, none: nothing was "
			   "bound"},
	{LIST("ranks", 0), .keys = affinity_rank_keys, .meaning = "of the host that measured"},
	{TEXT("sampler", JM_KEY_NULL),
		.meaning = "processors of the threads that read sensors; null: not bound"},
	{TEXT("reason", JM_KEY_NULL), .meaning = "why nothing was bound, or no memory"},
	{0},
};

static const struct jm_key gang_keys[] = {
	{INTEGER("world", 0), .min = 1, .max = INT_MAX, .meaning = "how many ranks there were"},
	{COUNT("rank", 0), .meaning = "the rank that wrote this record, which describes all ranks"},
	{TEXT("launcher", JM_KEY_NULL), .meaning = "how the ranks were started"},
	{LIST("ranks", 0), .keys = rank_keys, .meaning = "one object per rank"},
	{0},
};

static const struct jm_key order_keys[] = {
	{NUMBER("at_s", 0), .unit = "s", .meaning = "since the session began"},
	{TEXT("order", 0), .meaning = "stop, setting or note"},
	{TEXT("text", 0), .meaning = "text of the order"},
	{0},
};

static const char *const hold_words[] = {"held", "not reached", "missed", "unknown", NULL};

static const struct jm_key soft_keys[] = {
	{COUNT("units", JM_KEY_OPTIONAL), .meaning = "multiprocessors that computed (--sm-share)"},
	{COUNT("units_of", JM_KEY_OPTIONAL), .meaning = "multiprocessors that the device has"},
	{POSITIVE("hold_watts", JM_KEY_OPTIONAL), .unit = "W",
		.meaning = "mean power that pauses between steps were to hold (--hold-power)"},
	{NUMBER("busy_share", JM_KEY_OPTIONAL | JM_KEY_NULL), .min = 0, .max = 1,
		.meaning = "share of the measured phase that steps took; the rest are pauses"},
	{POSITIVE("watts", JM_KEY_OPTIONAL | JM_KEY_NULL), .unit = "W",
		.meaning = "mean power of the measured phase by the meters that the pauses follow"},
	{WORD("state", JM_KEY_OPTIONAL), .words = hold_words,
		.meaning = "held: watts is within 3 % of hold_watts; not reached: uninterrupted "
			   "work drew less; missed: neither"},
	{0},
};

static const struct jm_key alignment_keys[] = {
	{POSITIVE("error_ns", 0), .unit = "ns",
		.meaning = "largest error of the device's time stamps after their conversion to "
			   "the clock of the record"},
	{NUMBER("drift_ppm", JM_KEY_NULL),
		.meaning = "how much faster the device's clock runs than that of the host, in "
			   "parts per million"},
	{COUNT("anchors", 0), .meaning = "number of comparisons of both clocks"},
	{POSITIVE("noticed_late_ns", 0), .unit = "ns",
		.meaning = "how much later than the device's stamp the host noticed the end of the "
			   "phase"},
	{0},
};

static const struct jm_key steady_keys[] = {
	{FLAG("reached", 0), .meaning = "the rule held before the limit of time"},
	{POSITIVE("waited_s", 0), .unit = "s", .meaning = "time for which the rule was checked"},
	{POSITIVE("limit_s", 0), .unit = "s",
		.meaning = "longest time for which the rule is checked (--steady)"},
	{POSITIVE("window_s", 0), .unit = "s", .meaning = "length of the window of the rule"},
	{NUMBER("kelvin", JM_KEY_NULL), .unit = "K",
		.meaning = "rise of the temperature over the window; the rule: at most 1"},
	{NUMBER("watts_share", JM_KEY_NULL),
		.meaning = "rise of the power over the window, as a share of its mean; the rule: "
			   "at most 0.01"},
	{0},
};

static const struct jm_key selftest_keys[] = {
	{FLAG("passed", 0), .meaning = "no operation was wrong"},
	{COUNT("cases", 0), .meaning = "operations of the work that were compared"},
	{COUNT("refused", 0),
		.meaning = "operations that the device does not support in these shapes"},
	{COUNT("left_out", 0), .meaning = "operations for which no time was left"},
	{POSITIVE("worst", JM_KEY_NULL),
		.meaning = "largest difference from the reference as a multiple of the tolerance "
			   "for rounding; null: a result is not a number"},
	{POSITIVE("seconds", 0), .unit = "s",
		.meaning = "time that the test took during the setup"},
	{0},
};

const struct jm_key jm_record_keys[] = {
	{TEXT("schema", 0), .max = 64, .meaning = "joulemark.run/1"},
	{ID("id", JM_KEY_NULL), .meaning = "of the case; null for a measurement"},
	{TEXT("started", JM_KEY_NULL), .meaning = "ISO 8601, UTC", .column = "started"},
	{INTEGER("start_ns", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "ns",
		.meaning = "the clock when the session began; phases count from it"},
	{POSITIVE("sampler_cpu_s", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "processor time that reading the sensors took, of the whole "
			   "measurement; null in simulated time"},
	{POSITIVE("wall_s", JM_KEY_NULL), .unit = "s",
		.meaning = "of the command from exec to exit, or of the work", .column = "wall_s"},
	{POSITIVE("wall_least_s", JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "joulemark itself stood still when the command ended: it took at least "
			   "this and at most wall_s, until which its energy is given"},
	{POSITIVE("user_s", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "processor time of the command and of its children that it waited for, "
			   "outside of the kernel; of all runs where there are several"},
	{POSITIVE("system_s", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "the same within the kernel"},
	{INTEGER("exit_status", JM_KEY_NULL), .min = 0, .max = 255,
		.meaning = "as a shell reports it: 128 + signal"},
	{INTEGER("signal", JM_KEY_NULL), .min = 1, .max = INT_MAX,
		.meaning = "that ended the command"},
	{TEXTS("command", JM_KEY_NULL | JM_KEY_NULLS),
		.meaning = "its arguments; null for a native workload; an argument that is not "
			   "UTF-8 is null"},
	{OBJECT("attached", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = jm__attached_keys,
		.meaning = "where no command was run: what was measured while it ran already"},
	{OBJECT("own_share", JM_KEY_OPTIONAL), .keys = jm__own_share_keys,
		.meaning =
			"the part that the command of 'measure' had in the time and energy of the "
			"processors, whose meters include all else that ran; of all its runs"},
	{OBJECT("job", JM_KEY_OPTIONAL), .keys = jm__job_keys,
		.meaning = "to which a command that 'measure' ran belongs: a report adds records "
			   "of one job that overlap in time up to one run"},
	{OBJECT("repeats", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = jm__repeats_keys,
		.meaning = "where the command was run several times: of one run. The meters, total "
			   "and phases are those of all runs and the pauses between them"},
	{OBJECT("tune", JM_KEY_OPTIONAL), .keys = jm__tune_keys,
		.meaning = "where 'tune' moved a knob while the work ran: what was tried, chosen "
			   "and saved"},
	{OBJECT("policy", JM_KEY_OPTIONAL), .keys = jm__policy_keys,
		.meaning =
			"where 'tune --per-phase' moved a knob with the phases of the work: what "
			"was tried, chosen and saved"},
	{OBJECT("budget", JM_KEY_OPTIONAL), .keys = jm__budget_keys,
		.meaning = "where 'tune --budget' shared a power among devices while the work ran"},
	{WORD("clock", 0), .words = clock_words, .meaning = "of times and phases"},
	{TEXT("phase", JM_KEY_NULL),
		.meaning = "the phase that meters, total and quality describe"},
	{LIST("meters", 0), .keys = jm__meter_keys, .meaning = "what was measured, over the phase"},
	{LIST("context", JM_KEY_OPTIONAL), .keys = jm__context_keys,
		.meaning = "circumstances that draw no power themselves, over the phase"},
	{OBJECT("total", 0), .keys = jm__total_keys, .meaning = "over the phase"},
	{OBJECT("idle_gpus", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = jm__idle_gpus_keys,
		.meaning = "GPUs that were read and on which the work did not run, over the phase"},
	{OBJECT("quality", 0), .keys = jm__quality_keys,
		.meaning = "grade of the measurement, with reasons"},
	{LIST("phases", 0), .keys = jm__phase_keys,
		.meaning = "of the work, in the order in which they began"},
	{OBJECT("provenance", JM_KEY_NULL), .keys = provenance_keys,
		.meaning = "where the figures come from"},
	{POSITIVE("items", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "done in the phase",
		.column = "items"},
	{OBJECT("items_from", JM_KEY_OPTIONAL), .keys = jm__items_from_keys,
		.meaning = "where a server counted them"},
	{WORD("items_kind", JM_KEY_OPTIONAL), .words = jm_item_kind_names,
		.meaning = "of a command whose output has numbers of items: each was taken as the "
			   "amount since the one before, or as the total so far"},
	{POSITIVE("throughput", JM_KEY_NULL | JM_KEY_OF_CASE),
		.meaning = "items/s, over all devices; of a command between its first mark and its "
			   "last",
		.column = "throughput_per_s"},
	{POSITIVE("throughput_per_device", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "items/s",
		.column = "throughput_per_device_per_s"},
	{OBJECT("figures", JM_KEY_OPTIONAL), .keys = jm__figures_keys,
		.meaning = "price and carbon intensity, where 'measure' was given them, and what "
			   "follows from them"},
	{TEXT("workload", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "null of a command",
		.column = "workload"},
	{OBJECT("options", JM_KEY_NULL | JM_KEY_OF_CASE),
		.meaning = "of the workload, as they were given"},
	{TEXT("device", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "that the workload ran on",
		.column = "device"},
	{TEXT("precision", JM_KEY_NULL | JM_KEY_OF_CASE),
		.meaning = "that the workload computed in", .column = "precision"},
	{TEXT("unit", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "of an item", .column = "unit"},
	{COUNT("devices", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "how many it ran on",
		.column = "devices"},
	{COUNT("steps", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "of the steady phase"},
	{COUNT("warmup_steps", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "before the steady phase"},
	{NUMBER("loss_first", JM_KEY_NULL | JM_KEY_OF_CASE),
		.meaning = "of the first step, warm-up included", .column = "loss_first"},
	{NUMBER("loss_last", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "of the last step",
		.column = "loss_last"},
	{FLAG("verified", JM_KEY_NULL | JM_KEY_OF_CASE),
		.meaning = "whether the work checked its result; null: unknown",
		.column = "verified"},
	{TEXT("verify_reason", JM_KEY_NULL | JM_KEY_OF_CASE),
		.meaning = "what was wrong, or why it is unknown"},
	{POSITIVE("flops_model_per_item", JM_KEY_NULL | JM_KEY_OF_CASE), .unit = "FLOP",
		.meaning = "what the mathematics needs"},
	{POSITIVE("flops_executed_per_item", JM_KEY_NULL | JM_KEY_OF_CASE), .unit = "FLOP",
		.meaning = "what was computed, recomputation included"},
	{POSITIVE("bytes_per_item", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "B",
		.meaning = "operands read and results written, to and from memory or a cache, by "
			   "the plan of the work"},
	{TEXT("detail", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "one line on the work"},
	{TEXT("note", JM_KEY_NULL | JM_KEY_OF_CASE),
		.meaning = "what the user must know, such as a fallback"},
	{OBJECT("case", JM_KEY_NULL | JM_KEY_OF_CASE), .keys = case_keys,
		.meaning = "the point of the plan; null for a measurement"},
	{LIST("settings", JM_KEY_NULL | JM_KEY_OF_CASE), .keys = setting_keys,
		.meaning = "one line per knob and device"},
	{WORD("status", JM_KEY_OF_CASE), .words = status_words, .meaning = "how the case ended",
		.column = "status"},
	{TEXT("reason", JM_KEY_NULL | JM_KEY_OF_CASE), .meaning = "why it failed",
		.column = "reason"},
	{WORD("failure", JM_KEY_NULL | JM_KEY_OPTIONAL), .words = jm_failure_words,
		.meaning = "of a case that failed: what kind of failure (--retries)"},
	{OBJECT("ran_on", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = ran_on_keys,
		.meaning = "the GPU that computed; meters of others count in no total"},
	{OBJECT("peer", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = peer_keys,
		.meaning =
			"of copies between two GPUs: the second one, whose energy counts as well"},
	{OBJECT("gang", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = gang_keys,
		.meaning = "of a case of several ranks: their hosts and devices"},
	{OBJECT("affinity", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = affinity_keys,
		.meaning = "processors and NUMA nodes that ranks were bound to (--affinity)"},
	{LIST("hosts", JM_KEY_OPTIONAL), .keys = host_keys,
		.meaning =
			"of ranks that were started apart (--launcher started): their hosts. The "
			"meters, totals and phases of the record are those of all of them"},
	{OBJECT("communication", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = jm__communication_keys,
		.meaning = "of a training of several ranks: the sums of gradients over them, and "
			   "what a "
			   "sharded update gathers"},
	{OBJECT("transfer", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = jm__transfer_keys,
		.meaning = "of allreduce, allgather, reducescatter, broadcast, alltoall and p2p: "
			   "the mean of the "
			   "transfers"},
	{OBJECT("overlap", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = jm__overlap_keys,
		.meaning = "of the workload overlap: products and transfers of a pair, each alone "
			   "and both at once. Times are means of the steady steps on the device of "
			   "rank 0; energy is that of the phases product, collective and both of "
			   "the first 32 steps"},
	{FLAG("interrupted", JM_KEY_OPTIONAL),
		.meaning = "true: the run ended early on request; the figures are those of the "
			   "completed steps"},
	{LIST("changes", JM_KEY_NULL | JM_KEY_DETAIL | JM_KEY_OPTIONAL), .keys = change_keys,
		.meaning = "settings that were changed while the work ran, because a phase began"},
	{LIST("orders", JM_KEY_NULL | JM_KEY_DETAIL | JM_KEY_OPTIONAL), .keys = order_keys,
		.meaning = "orders that the worker received while it ran"},
	{OBJECT("selftest", JM_KEY_NULL | JM_KEY_DETAIL | JM_KEY_OPTIONAL), .keys = selftest_keys,
		.meaning = "operations compared with the reference before the first step"},
	{OBJECT("soft", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = soft_keys,
		.meaning = "soft control, which needs no special rights and sets no limit in the "
			   "driver"},
	{OBJECT("alignment", JM_KEY_NULL | JM_KEY_DETAIL | JM_KEY_OPTIONAL), .keys = alignment_keys,
		.meaning = "of phases that end at time stamps of the device: its clock compared "
			   "with the host's"},
	{OBJECT("steady", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = steady_keys,
		.meaning = "thermal steady state before the measured phase (--steady)"},
	{OBJECT("plan", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = plan_keys,
		.meaning = "of a training: known before the first step"},
	{OBJECT("step_series", JM_KEY_NULL | JM_KEY_DETAIL | JM_KEY_OPTIONAL),
		.keys = step_series_keys, .meaning = "of native work: speed and loss of each step"},
	{OBJECT("loss_scale", JM_KEY_NULL | JM_KEY_DETAIL | JM_KEY_OPTIONAL),
		.keys = jm__loss_scale_keys, .meaning = "of a training whose loss is scaled"},
	{OBJECT("weights", JM_KEY_NULL | JM_KEY_DETAIL | JM_KEY_OPTIONAL), .keys = jm__weights_keys,
		.meaning = "of a training that starts from given weights or goes on from a "
			   "checkpoint"},
	{LIST("evaluations", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = jm__evaluation_keys,
		.meaning = "of a training with --eval-every"},
	{OBJECT("until", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = jm__until_keys,
		.meaning = "of a training with --until: what it cost until an evaluation found the "
			   "figure"},
	{OBJECT("data", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = jm__data_keys,
		.meaning = "of a training on pictures: what loading cost"},
	{OBJECT("profile", JM_KEY_NULL | JM_KEY_DETAIL | JM_KEY_OPTIONAL), .keys = profile_keys,
		.meaning = "of a training with --profile: where the time of a step goes"},
	{OBJECT("serving", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = jm__serving_keys,
		.meaning = "of the workload serve: requests, and how long they waited"},
	{0},
};

int jm_record_check(const json_t *record, const char *what, struct jm_err *err)
{
	return jm_keys_check(jm_record_keys, record, what, err);
}
