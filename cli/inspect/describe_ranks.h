/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a training that several ranks run: what one of them exchanges in a step. */
#ifndef JM_DESCRIBE_RANKS_H
#define JM_DESCRIBE_RANKS_H

#include "describe_plan.h"

#define DESCRIBE_RANKS_MOST  100000
#define DESCRIBE_STAGES_MOST 1000

/* Rows of the options. */
#define DESCRIBE_RANKS                                                                             \
	{.name = "tp",                                                                             \
		JM_BIND(JM_INT, struct describe_plan, training.tp),                                \
		.min = 1,                                                                          \
		.max = DESCRIBE_RANKS_MOST,                                                        \
		.fallback = "1",                                                                   \
		.help = "plan one of so many ranks that share a model, as --tp of 'joulemark "     \
			"run'; "                                                                   \
			"parameters and FLOPs are those of the model"},                            \
		{.name = "sequence-parallel",                                                      \
			JM_BIND(JM_FLAG, struct describe_plan, training.sp),                       \
			.needs = "tp",                                                             \
			.help = "with --tp: divide the rows between products among these ranks, "  \
				"too"},                                                            \
		{.name = "pp",                                                                     \
			JM_BIND(JM_INT, struct describe_plan, training.pp),                        \
			.min = 1,                                                                  \
			.max = DESCRIBE_STAGES_MOST,                                               \
			.fallback = "1",                                                           \
			.help = "plan all of so many stages of a model, as --pp of 'joulemark "    \
				"run': memory is that of the stage which needs most, FLOPs are "   \
				"those of all"},                                                   \
		{.name = "pp-chunks",                                                              \
			JM_BIND(JM_INT, struct describe_plan, training.chunks),                    \
			.min = 1,                                                                  \
			.max = JM_CHUNKS_MOST,                                                     \
			.fallback = "1",                                                           \
			.needs = "pp",                                                             \
			.help = "with --pp: parts of the network in each stage"},                  \
		{.name = "pp-last",                                                                \
			JM_BIND(JM_INT, struct describe_plan, training.last_blocks),               \
			.min = 1,                                                                  \
			.max = 100000,                                                             \
			.needs = "pp",                                                             \
			.help = "with --pp: blocks of the last part of the network"},              \
	{                                                                                          \
		.name = "dp", JM_BIND(JM_INT, struct describe_plan, training.ranks), .min = 1,     \
		.max = DESCRIBE_RANKS_MOST, .fallback = "1",                                       \
		.help = "plan one of so many models that train together, each with its own "       \
			"--batch, as --ranks of 'joulemark run' divided by --tp and --pp"          \
	}

/* Threads for jm_device_open: of several ranks the share of one, as if all ran on this host; of one
 * rank 0, which is all. */
int describe_ranks_threads(const struct describe_plan *plan);
/* JM_EUSAGE: ranks with what describes one alone. */
int describe_ranks_check(const struct describe_plan *plan, struct jm_err *err);
/* Makes graph and program, of each stage in turn. */
int describe_ranks_plan(struct describe_plan *plan, struct jm_err *err);
/* Both do nothing for a single rank. */
void describe_ranks_print(const struct describe_plan *plan, FILE *out);
void describe_ranks_json(const struct describe_plan *plan, json_t *o);

#endif
