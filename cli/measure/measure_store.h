/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements in a store: a case of each command, one more repeat for each run. */
#ifndef JM_MEASURE_STORE_H
#define JM_MEASURE_STORE_H

#include "base/option.h"
#include "measure/command/item_kind.h"
#include "measure/session/session.h"
#include "run/plan/plan.h"
#include "store/store.h"

#define JM_STORED_COMMANDS 26

struct jm_measure_store {
	const char *path;	   /* NULL = none */
	struct jm_store_file file; /* as it was before the command ran */
	struct jm_plan plan[JM_STORED_COMMANDS];
	int n;	    /* commands */
	int before; /* blocks of earlier calls; -1 = not known yet */
};

/* A run of one of the commands. */
struct jm_stored_run {
	int command;	      /* index */
	int block, position;  /* of several commands, from 1; 0 = each repeat is a block */
	int64_t t0_ns, t1_ns; /* the part of the session's trace that is its own; 0 = all of it */
	json_t *record;	      /* borrowed, and completed */
};

/* How items are found in a command's output, as launch.h has it; NULL = not given. */
struct jm_item_options {
	const char *regex, *json, *kind, *unit;
};

/* The same as in the request of a plan. */
json_t *jm_command_throughput(const struct jm_item_options *o);
/* Rows of options of `measure` and `run`, bound to a const char *. USE: of jm_option.use */
#define JM_ITEMS_REGEX_ROW                                                                         \
	.name = "items-regex", .argument = "REGEX",                                                \
	.help = "count items in what the command prints: the number in the first group of "        \
		"this regular expression (PCRE2), or 1 where it has no group"
#define JM_ITEMS_JSON_ROW                                                                          \
	.name = "items-json", .argument = "KEY",                                                   \
	.help = "count items in JSON that the command prints: a key such as result.tokens"
#define JM_ITEM_KIND_OPTION(STRUCT, FIELD, USE)                                                    \
	{                                                                                          \
		.name = "items-kind", .use = USE, JM_BIND(JM_CHOICE, STRUCT, FIELD),               \
		.choices = jm_item_kind_names,                                                     \
		.help = "what these numbers are: the amount since the one before, or the total "   \
			"so far. Without it, numbers that count up (1, 2, 3) are totals, "         \
			"others amounts; the exact rule is in docs/measuring.md"                   \
	}
#define JM_ITEM_UNIT_OPTION(STRUCT, FIELD, USE)                                                    \
	{                                                                                          \
		.name = "unit", .use = USE, JM_BIND(JM_TEXT, STRUCT, FIELD), .argument = "WORD",   \
		.help = "what an item of the command is, such as token or image"                   \
	}

/* Nothing is made or locked: a store that cannot be written is an error before the command has run,
 * one that is locked is not. */
int jm_measure_store_open(struct jm_measure_store *s, const char *path, struct jm_err *err);
/* The next command; command, throughput: as in the request of a plan. Takes both. tuned: what its
 * settings were tuned for ("edp"), which makes it another case, as settings[{knob, selector, unit,
 * values}] do; NULL = none. */
int jm_measure_store_add(struct jm_measure_store *s, json_t *command, json_t *throughput,
	const char *tuned, json_t *settings, struct jm_err *err);
/*
 * Makes the records some of cases, and stores them with their traces; session: after its end, NULL
 * = without a trace. Waits for another writer, at most about 10 s. A record that the store does not
 * take is written to a file beside it, which the error then names.
 */
int jm_measure_store_finish(struct jm_measure_store *s, struct jm_ctx *ctx,
	struct jm_session *session, const struct jm_stored_run *run, int n, struct jm_err *err);
/*
 * The same for those of n runs that the store takes at once, while the session goes on; *ret_done:
 * how many, from the first on. The others are for a later call.
 */
int jm_measure_store_some(struct jm_measure_store *s, struct jm_session *session,
	const struct jm_stored_run *run, int n, int *ret_done, struct jm_err *err);
void jm_measure_store_close(struct jm_measure_store *s);

#endif
