/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a record on transfers between ranks. */
#include "result/record_keys_parts.h"

#include <limits.h>

#define TRANSPORTS                                                                                 \
	"local: memory of the host, by processors; host: the same, by copy engines of GPUs; "      \
	"nccl: between GPUs; net: TCP; mpi: Open MPI; sim: of a simulated node"

static const struct jm_key communication_kind_keys[] = {
	{TEXT("kind", 0),
		.meaning =
			"sum: gradients; gather: parameters and norms of a sharded update; "
			"tp-sum, tp-scatter, tp-gather: of ranks that share a model, a sum, one "
			"of which each rank receives a part, a gather; stage: with other stages"},
	{POSITIVE("busy_s", JM_KEY_NULL), .unit = "s",
		.meaning = "of a step in which such a transfer went on, waits for slower ranks "
			   "included"},
	{POSITIVE("exposed_s", JM_KEY_NULL), .unit = "s",
		.meaning = "of a step in which computation waited for it"},
	{POSITIVE("overlapped_s", JM_KEY_NULL), .unit = "s",
		.meaning = "busy_s - exposed_s, at least 0: it went on beside computation"},
	{0},
};

static const struct jm_key communication_rank_keys[] = {
	{POSITIVE("step_s", JM_KEY_NULL), .unit = "s",
		.meaning = "of a step, between the first waits of two steps; mean"},
	{POSITIVE("compute_s", JM_KEY_NULL), .unit = "s",
		.meaning =
			"of a step without the waits below: computation, also beside transfers, "
			"and pauses; null = unknown: the waits are longer than the step, because a "
			"device rounds its times"},
	{POSITIVE("exposed_s", JM_KEY_NULL), .unit = "s",
		.meaning = "of a step: the rank waited for transfers of the update and did not "
			   "compute; null = there were none"},
	{POSITIVE("tp_exposed_s", JM_KEY_NULL), .unit = "s",
		.meaning = "of a step: the rank waited for exchanges of the ranks that share its "
			   "model, and did not compute; null = there were none"},
	{POSITIVE("stage_s", JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "of a step of a model in stages: exchanges with other stages, and waits "
			   "for them"},
	{POSITIVE("late_ranks_s", JM_KEY_NULL), .unit = "s",
		.meaning = "estimated part of exposed_s and tp_exposed_s in which the rank waited "
			   "for slower ranks: what it has of them beyond the rank with the least"},
	{POSITIVE("overlapped_s", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "s",
		.meaning =
			"part of compute_s beside which transfers went on: the sum of the kinds"},
	{LIST("kinds", JM_KEY_OPTIONAL), .keys = communication_kind_keys,
		.meaning = "the transfers of a step by kind"},
	{0},
};

const struct jm_key jm__communication_keys[] = {
	{TEXT("transport", 0), .meaning = TRANSPORTS},
	{FLAG("rounded", JM_KEY_OPTIONAL), .meaning = "gradients travelled in bf16"},
	{FLAG("shard_update", JM_KEY_OPTIONAL),
		.meaning = "true: each rank updates a share of the parameters, false: all of them"},
	{TEXT("whole_update_reason", JM_KEY_OPTIONAL),
		.meaning = "why each rank updates all parameters; absent = each updates a share"},
	{COUNT("buckets", 0),
		.meaning = "sums per step, each over a contiguous part of the gradients"},
	{POSITIVE("bytes_per_step", 0), .unit = "B",
		.meaning = "gradients that rank 0 contributes"},
	{POSITIVE("gathered_bytes_per_step", JM_KEY_OPTIONAL), .unit = "B",
		.meaning = "data that each rank has after the gathers of a sharded update: "
			   "parameters, norms and, by transport host, sums of the gradients "
			   "of tables; 0 = every rank updates all parameters"},
	{COUNT("tp", JM_KEY_OPTIONAL),
		.meaning = "ranks that share each model, or each stage of one (tensor parallel)"},
	{POSITIVE("tp_bytes_per_step", JM_KEY_OPTIONAL), .unit = "B",
		.meaning = "activations and their gradients that rank 0 contributes to sums over "
			   "the ranks that share its model; a gather, and a sum of which each rank "
			   "receives a part, count half"},
	{COUNT("pp", JM_KEY_OPTIONAL),
		.meaning = "stages of each model, on different ranks (pipeline parallel)"},
	{COUNT("pp_chunks", JM_KEY_OPTIONAL), .meaning = "parts of the network in each stage"},
	{COUNT("pp_last", JM_KEY_OPTIONAL),
		.meaning = "blocks of the last part, which computes the loss, too"},
	{COUNT("micro_steps", JM_KEY_OPTIONAL),
		.meaning = "of a step, which go through the stages"},
	{POSITIVE("pp_bytes_per_step", JM_KEY_OPTIONAL), .unit = "B",
		.meaning = "activations and their gradients, and those of a table that both ends "
			   "have, which "
			   "all ranks send to other stages"},
	{POSITIVE("bubble", JM_KEY_OPTIONAL),
		.meaning = "share of a step in which each stage has to wait, if all are equally "
			   "fast and transfers take no time: (p - 1) / (m v + p - 1) of p stages "
			   "with v parts and m micro-steps"},
	{POSITIVE("bubble_measured", JM_KEY_NULL | JM_KEY_OPTIONAL),
		.meaning = "share of a step in which ranks waited for other stages, exchanges "
			   "included: the mean of stage_s / step_s; null = there were not enough "
			   "steps"},
	{POSITIVE("exposed_s_per_step", JM_KEY_NULL), .unit = "s",
		.meaning =
			"time for which rank 0 waited for sums and gathers of the update and did "
			"not compute; mean of all measured steps but the last; null = there were "
			"none"},
	{POSITIVE("tp_exposed_s_per_step", JM_KEY_NULL), .unit = "s",
		.meaning = "the same for exchanges of ranks that share a model"},
	{POSITIVE("concurrent_share", JM_KEY_NULL | JM_KEY_OPTIONAL),
		.meaning = "share of a step in which ranks computed and transferred at once: the "
			   "mean of overlapped_s / step_s; null = there were not enough steps",
		.column = "concurrent_share"},
	{LIST("ranks", JM_KEY_OPTIONAL), .keys = communication_rank_keys,
		.meaning =
			"where the time of a step went, by the clock of each rank's device; means "
			"of all measured steps but the last"},
	{0},
};

const struct jm_key jm__transfer_keys[] = {
	{TEXT("transport", 0), .meaning = TRANSPORTS},
	{POSITIVE("bytes", 0), .unit = "B",
		.meaning = "of the array that each rank sends or receives, whichever is larger"},
	{POSITIVE("seconds", 0), .unit = "s",
		.meaning = "mean time of one transfer on the device of rank 0, without the first "
			   "step"},
	{POSITIVE("bytes_per_s", 0), .unit = "B/s", .meaning = "bytes / seconds"},
	{POSITIVE("bus_bytes_per_s", 0), .unit = "B/s",
		.meaning =
			"bytes_per_s times the bytes that a ring of W ranks moves per byte: 2 "
			"(W - 1)/W in an all-reduce, (W - 1)/W in an all-gather, a reduce-scatter "
			"and an all-to-all, 1 in a broadcast and from rank to rank"},
	{0},
};

#define ENERGY(of)                                                                                 \
	{POSITIVE("watts", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "W",                            \
		.meaning = "mean of the phases, of all devices that the record's total counts; "   \
			   "null where the bound is as large: the turns are too short",            \
		.column = "overlap_" of "_W"},                                                     \
		{POSITIVE("error_watts", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "W",              \
			.meaning = "bound of watts"},                                              \
		{POSITIVE("joules", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",                   \
			.meaning = "of a pair of one rank", .column = "overlap_" of "_J"},         \
	{                                                                                          \
		POSITIVE("error_joules", JM_KEY_NULL | JM_KEY_OPTIONAL),                           \
			.unit = "J", .meaning = "bound of joules"                                  \
	}
#define SIDE(of, other)                                                                            \
	{POSITIVE("seconds", 0), .unit = "s", .meaning = "of a pair, alone",                       \
		.column = "overlap_" of "_s"},                                                     \
		{POSITIVE("beside_s", 0), .unit = "s", .meaning = "of a pair, beside the " other}, \
	{                                                                                          \
		POSITIVE("slowdown", 0), .meaning = "beside_s / seconds",                          \
					 .column = "overlap_" of "_slowdown"                       \
	}

static const struct jm_key product_keys[] = {
	SIDE("product", "transfers"),
	{POSITIVE("per_s", 0), .unit = "1/s", .meaning = "products of one rank, alone"},
	{POSITIVE("beside_per_s", 0), .unit = "1/s",
		.meaning = "products of one rank, beside the transfers"},
	ENERGY("product"),
	{0},
};

static const struct jm_key collective_keys[] = {
	SIDE("collective", "products"),
	{POSITIVE("bytes_per_s", 0), .unit = "B/s", .meaning = "bytes / time of a transfer, alone"},
	{POSITIVE("beside_bytes_per_s", 0), .unit = "B/s",
		.meaning = "the same beside the products"},
	ENERGY("collective"),
	{0},
};

static const struct jm_key both_keys[] = {
	{POSITIVE("seconds", 0), .unit = "s",
		.meaning = "of a pair, from the begin of the first of the two to the end of the "
			   "last",
		.column = "overlap_both_s"},
	{NUMBER("exposed_s", 0), .unit = "s", .min = -JM_KEY_HUGE, .max = JM_KEY_HUGE,
		.meaning = "both.seconds - product.seconds: what the transfers add to the products",
		.column = "overlap_exposed_s"},
	{NUMBER("overlapped_s", 0), .unit = "s", .min = -JM_KEY_HUGE, .max = JM_KEY_HUGE,
		.meaning = "product.seconds + collective.seconds - both.seconds: what is saved by "
			   "running both at once",
		.column = "overlap_overlapped_s"},
	{POSITIVE("of_longer", 0),
		.meaning = "both.seconds / the longer of product.seconds and collective.seconds: 1 "
			   "= the shorter one is hidden"},
	ENERGY("both"),
	{0},
};

const struct jm_key jm__overlap_keys[] = {
	{TEXT("kind", 0), .meaning = "of the transfers: allgather..."},
	{TEXT("transport", 0), .meaning = TRANSPORTS},
	{POSITIVE("bytes", 0), .unit = "B",
		.meaning = "of the array that each rank sends or receives in a transfer, whichever "
			   "is larger"},
	{COUNT("products", 0), .meaning = "of a pair"},
	{COUNT("transfers", 0), .meaning = "of a pair"},
	{COUNT("pairs", 0), .meaning = "measured of each of the three"},
	{OBJECT("product", 0), .keys = product_keys, .meaning = "the products of a pair"},
	{OBJECT("collective", 0), .keys = collective_keys, .meaning = "the transfers of a pair"},
	{OBJECT("both", 0), .keys = both_keys, .meaning = "products and transfers at once"},
	{0},
};
