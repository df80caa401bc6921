/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a record, of work whose setting was tuned while it ran: "tune", and "budget". See
 * record_keys.c. */
#include "result/record_keys_parts.h"

#include "meter/meter.h"

#include <limits.h>

#define NAME(name, text) text,
static const char *const origins[] = {JM_ORIGINS(NAME) NULL};
static const char *const stages[] = {"coarse", "golden", "confirm", "hold", NULL};
static const char *const choices[] = {"open", "better", "flat", "found", "unclear", NULL};
static const char *const progress_words[] = {"items", "gpu", NULL};
static const char *const shares[] = {"equal", "proportional", "marginal", NULL};

static const struct jm_key visit_keys[] = {
	{NUMBER("start_s", 0), .unit = "s", .meaning = "since the session began"},
	{WORD("stage", 0), .words = stages,
		.meaning = "coarse: a grid over the range; golden: a golden section of a part of "
			   "it; confirm: the best against the setting found"},
	{FLAG("found", 0), .meaning = "the setting found was in force"},
	{NUMBER("value", JM_KEY_NULL), .meaning = "of the knob; null = no number"},
	{NUMBER("second", JM_KEY_NULL | JM_KEY_OPTIONAL), .meaning = "of the second knob"},
	{POSITIVE("seconds", 0), .unit = "s", .meaning = "from report to report of progress"},
	{POSITIVE("items", 0), .meaning = "done in them"},
	{POSITIVE("joules", 0), .unit = "J",
		.meaning = "used in them: the sum over the topmost meters of `origin`"},
	{POSITIVE("error_sampling_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "uncertainty (95 %) by sampling; that of the sensor itself is the same "
			   "for all settings"},
	{NUMBER("objective", JM_KEY_NULL),
		.meaning = "by that of the setting found in the same search"},
	{FLAG("aside", 0),
		.meaning =
			"it differs from others of its setting by more than 15 % in energy or "
			"time per item, as where the work was interrupted, and counts for nothing"},
	{POSITIVE("objective_error", JM_KEY_NULL),
		.meaning = "half its 95 % interval, by the scatter of all visits of the search"},
	{0},
};

#define CHANGE(NAME, WHAT)                                                                         \
	{NUMBER(NAME "_percent", JM_KEY_NULL), .unit = "%",                                        \
		.meaning = "change of " WHAT                                                       \
			   " from the setting found to the best other one, by the last "           \
			   "comparison of both; null: there was none"},                            \
	{                                                                                          \
		POSITIVE(NAME "_error_percent", JM_KEY_NULL), .unit = "%",                         \
							      .meaning = "half its 95 % interval"  \
	}

/* Of a knob and its range. */
#define KNOB_KEYS                                                                                  \
	{TEXT("knob", 0), .meaning = "that was moved"},                                            \
		{TEXT("unit", 0), .meaning = "of its values"},                                     \
		{TEXTS("devices", 0), .meaning = "that have the knob"},                            \
		{NUMBER("min", 0), .meaning = "the least value that was allowed"},                 \
		{NUMBER("max", 0), .meaning = "the greatest one"},                                 \
	{                                                                                          \
		POSITIVE("step", 0), .meaning = "between values; 0 = any"                          \
	}

static const struct jm_key second_keys[] = {
	KNOB_KEYS,
	{NUMBER("found", JM_KEY_NULL), .meaning = "the value before; null = no number"},
	{NUMBER("chosen", JM_KEY_NULL), .meaning = "as that of the first knob"},
	{0},
};

const struct jm_key jm__tune_keys[] = {
	{TEXT("objective", 0), .meaning = "what is minimized, as --objective has it"},
	KNOB_KEYS,
	{NUMBER("found", JM_KEY_NULL),
		.meaning = "the value before, the highest of the devices; null = no number"},
	{WORD("progress", 0), .words = progress_words,
		.meaning = "what counts as work: items that were reported, or a billion cycles of "
			   "busy GPUs, which is an estimate"},
	{WORD("origin", 0), .words = origins, .meaning = "of the meters whose energy counts"},
	{POSITIVE("window_s", 0), .unit = "s", .meaning = "least length of a visit"},
	{POSITIVE("within_s", 0), .unit = "s", .meaning = "longest search"},
	{WORD("choice", 0), .words = choices,
		.meaning =
			"better: than the setting found; flat, found, unclear: the setting found "
			"is held; open: there is no choice"},
	{TEXT("why", 0), .meaning = "a sentence on that"},
	{FLAG("chosen_found", 0), .meaning = "what is held is the setting found"},
	{NUMBER("chosen", JM_KEY_NULL),
		.meaning = "the value that is held; where there is no choice the best so far"},
	{OBJECT("second", JM_KEY_OPTIONAL), .keys = second_keys,
		.meaning = "where two knobs were moved: the second one"},
	{COUNT("searches", 0), .meaning = "begun"},
	{COUNT("drifts", 0), .meaning = "times that energy or time per item moved while holding"},
	{COUNT("lost", 0),
		.meaning = "visits without an objective, or that another program spoilt by a "
			   "setting of its own"},
	{COUNT("outliers", 0), .meaning = "visits that were set aside, and made again"},
	{POSITIVE("warmup_s", 0), .unit = "s",
		.meaning = "of windows under the setting found, before the work ran evenly"},
	{POSITIVE("search_s", 0), .unit = "s",
		.meaning = "of visits of searches, with their waits"},
	{POSITIVE("hold_s", 0), .unit = "s", .meaning = "of visits while holding"},
	{TEXT("stopped", JM_KEY_NULL),
		.meaning = "why tuning ended before the work; null: it did not"},
	CHANGE("objective", "the objective"),
	CHANGE("energy", "energy per item"),
	CHANGE("time", "time per item"),
	{NUMBER("saved_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "while a better setting was held, against the setting found: energy of "
			   "the visits and energy_percent; null: none was held"},
	{POSITIVE("saved_error_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "half its 95 % interval"},
	{LIST("visits", 0), .keys = visit_keys, .meaning = "of searches, in their order"},
	{0},
};

static const char *const classes[] = {"compute", "memory", "link", "mixed", NULL};
static const char *const class_origins[] = {"stated", "name", "activity", "unknown", NULL};

static const struct jm_key curve_keys[] = {
	{FLAG("found", 0), .meaning = "the setting found"},
	{NUMBER("value", JM_KEY_NULL), .meaning = "of the knob; null = no number"},
	{COUNT("visits", 0), .meaning = "occurrences of the phase under it, during the search"},
	{POSITIVE("joules", JM_KEY_NULL), .unit = "J", .meaning = "per item, or per occurrence"},
	{POSITIVE("seconds", JM_KEY_NULL), .unit = "s", .meaning = "per item, or per occurrence"},
	{0},
};

static const struct jm_key policy_phase_keys[] = {
	{TEXT("name", 0), .meaning = "of its marks"},
	{WORD("class", 0), .words = classes, .meaning = "what bounds it"},
	{WORD("class_by", 0), .words = class_origins,
		.meaning = "how that is known: stated by --class, by its name, by the activity of "
			   "the devices, or not at all"},
	{COUNT("occurrences", 0), .meaning = "that have ended"},
	{COUNT("too_short", 0),
		.meaning = "of them, those that were not switched because the phase is shorter "
			   "than three latencies of the knob, or than refresh period and window of "
			   "the sensor together"},
	{POSITIVE("seconds", JM_KEY_NULL), .unit = "s", .meaning = "mean of an occurrence"},
	{FLAG("by_items", 0),
		.meaning = "energy and time count per item; false: per occurrence, because no "
			   "items of it were reported"},
	{FLAG("found", 0), .meaning = "the setting found is held in this phase"},
	{NUMBER("value", JM_KEY_NULL),
		.meaning = "held in this phase; null = no number, or the phase is not switched"},
	{LIST("curve", 0), .keys = curve_keys, .meaning = "over the values of the knob"},
	{0},
};

static const struct jm_key class_keys[] = {
	{WORD("class", 0), .words = classes, .meaning = "of phases"},
	{FLAG("found", 0), .meaning = "its value is the setting found"},
	{NUMBER("value", JM_KEY_NULL), .meaning = "the best one; null = no number"},
	{0},
};

const struct jm_key jm__policy_keys[] = {
	{TEXT("objective", 0), .meaning = "of all phases together, as --objective has it"},
	KNOB_KEYS,
	{NUMBER("found", JM_KEY_NULL),
		.meaning = "the value before, the highest of the devices; null = no number"},
	{WORD("origin", 0), .words = origins, .meaning = "of the meters whose energy counts"},
	{POSITIVE("within_s", 0), .unit = "s",
		.meaning = "longest time of the search, and again of the comparison"},
	{POSITIVE("latency_s", JM_KEY_NULL), .unit = "s",
		.meaning = "mean time from the mark of a phase until a new value was in force"},
	{COUNT("switches", 0), .meaning = "changes of the knob"},
	{COUNT("too_short", 0),
		.meaning = "occurrences of phases that were not switched because they are too "
			   "short"},
	{COUNT("lost", 0),
		.meaning = "occurrences whose energy is unknown, or in which another program "
			   "changed the knob"},
	{POSITIVE("search_s", 0), .unit = "s", .meaning = "time of the search in marked phases"},
	{WORD("choice", 0), .words = choices, .meaning = "with the meanings of tune.choice"},
	{TEXT("why", 0), .meaning = "the reason for the choice, as a sentence"},
	{FLAG("held", 0),
		.meaning = "the values of the classes are held; false: the setting found"},
	{TEXT("stopped", JM_KEY_NULL),
		.meaning = "why tuning ended before the work; null: it did not"},
	CHANGE("objective", "the objective"),
	CHANGE("energy", "the energy of all phases"),
	CHANGE("time", "the time of all phases"),
	{NUMBER("saved_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "while the values were held, against the setting found; null: they "
			   "were not"},
	{POSITIVE("saved_error_joules", JM_KEY_NULL), .unit = "J",
		.meaning = "half its 95 % interval"},
	{FLAG("one_found", 0),
		.meaning = "the best value for all phases alike is the setting found"},
	{NUMBER("one", JM_KEY_NULL),
		.meaning = "the best value for all phases alike, by the visits of the search; null "
			   "= no number"},
	{LIST("classes", 0), .keys = class_keys, .meaning = "with their best values"},
	{LIST("phases", 0), .keys = policy_phase_keys,
		.meaning = "that have ended, in the order of --class and of their first marks"},
	{0},
};

static const struct jm_key limit_keys[] = {
	{TEXT("device", 0), .meaning = "that has the limit"},
	{NUMBER("found", JM_KEY_NULL), .unit = "W", .meaning = "its limit before"},
	{POSITIVE("limit", 0), .unit = "W", .meaning = "that is held, or the best so far"},
	{POSITIVE("watts", JM_KEY_NULL), .unit = "W",
		.meaning = "its mean power in the last visit"},
	{0},
};

static const struct jm_key change_keys[] = {
	{NUMBER("start_s", 0), .unit = "s",
		.meaning = "since the session began; the first ones before it are negative"},
	{NUMBERS("watts", JM_KEY_NULLS), .unit = "W",
		.meaning =
			"that the devices said they enforce from then on, in the order of limits"},
	{0},
};

const struct jm_key jm__budget_keys[] = {
	{POSITIVE("watts", 0), .unit = "W", .meaning = "of all devices together"},
	{WORD("share", 0), .words = shares, .meaning = "how it was shared, as --share has it"},
	{TEXT("knob", 0), .meaning = "the limits"},
	{WORD("progress", 0), .words = progress_words, .meaning = "as of tune"},
	{LIST("limits", 0), .keys = limit_keys, .meaning = "of the devices"},
	{POSITIVE("enforced_most_watts", 0), .unit = "W",
		.meaning =
			"the highest sum of the limits that the devices said they enforce, after "
			"each change"},
	{LIST("changes", JM_KEY_OPTIONAL), .keys = change_keys,
		.meaning = "of the limits: those that fall, then those that rise"},
	{FLAG("holds", 0), .meaning = "nothing was tried any more in the end"},
	{POSITIVE("first_rate", JM_KEY_NULL), .meaning = "items/s under the first limits"},
	{POSITIVE("rate", JM_KEY_NULL),
		.meaning = "items/s under the last ones; null: not measured"},
	{COUNT("visits", 0), .meaning = "with items"},
	{COUNT("moves", 0), .meaning = "of power between devices, tried"},
	{COUNT("moves_kept", 0), .meaning = "of them, those that did no harm"},
	{COUNT("lost", 0), .meaning = "visits without items, or that another program spoilt"},
	{POSITIVE("warmup_s", 0), .unit = "s", .meaning = "as of tune"},
	{TEXT("stopped", JM_KEY_NULL),
		.meaning = "why sharing ended before the work; null: it did not"},
	{0},
};
