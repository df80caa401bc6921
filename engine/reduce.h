/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of gradients over the ranks of a gang; each rank has its own samples.
 *
 * The backward pass finishes gradients one after the other. After the unit that completes a bucket
 * (enough adjacent gradients of a slab) a node starts the sum of this interval, while the backward
 * pass continues; a node at the start of the update waits for all. With a sharded update (shard_update.c) each
 * rank receives a share of the sum, and what it updates is gathered.
 */
#ifndef JM_REDUCE_H
#define JM_REDUCE_H

#include "comm/comm.h"
#include "program.h"

/* The default, as large as that of torch.nn.parallel.DistributedDataParallel. */
#define JM_BUCKET_BYTES ((size_t)25 << 20)

/* The cost of the transfers in a step. */
struct jm_reduce_cost {
	int buckets;
	double bytes;	 /* bytes of gradients that are summed */
	double gathered; /* bytes that each rank has after the gathers of a sharded update */
	/* seconds that computation waits for sums, mean of the steps so far; NAN = unknown */
	double exposed;
};

bool jm_reduce_is_start(const struct jm_unit *u);  /* of a sum of gradients */
bool jm_reduce_is_gather(const struct jm_unit *u); /* of shares */
bool jm_reduce_is_node(const struct jm_unit *u);
/* Inserts the nodes into a scheduled program; does nothing for a single rank. */
int jm_program_add_reduction(struct jm_program *p, struct jm_err *err);

/*
 * Describes what all ranks must have in common, although each makes its own plan: order and places of the sums,
 * places and layouts of the parameters. 0 = nothing is summed.
 */
uint64_t jm_reduce_digest(const struct jm_program *p);

/* Sets the communicator before the first step of a program of several ranks; it must stay open as
 * long as the program. */
int jm_reduce_open(struct jm_program *p, const struct jm_comm *comm, struct jm_err *err);
void jm_reduce_close(struct jm_program *p); /* a program without a reduction is allowed */
/* A unit for which jm_reduce_is_node holds. */
int jm_reduce_run(struct jm_program *p, const struct jm_unit *u, struct jm_err *err);
/* Brings all parameters up to date after a sharded update, of which each rank updates a share; all ranks call this
 * between two steps. Waits for the device. */
int jm_reduce_gather(struct jm_program *p, struct jm_err *err);
/* The cost so far; waits for the device. */
struct jm_reduce_cost jm_reduce_cost(struct jm_program *p);
void jm_reduce_reset(struct jm_program *p); /* discards the steps so far */

/* True if the exchanges of a step through the memory of the host are estimated to take at most a fourth of its products
 * with parameters. g: with a sharded update, by_host, and rounds_sums as they would be. */
bool jm_reduce_fits_host(const struct jm_graph *g, const struct jm_device *d);

/* The name of the transport for the device's memory where host is not taken: "local", "nccl". */
const char *jm_reduce_transport(const struct jm_device *d);

#endif
