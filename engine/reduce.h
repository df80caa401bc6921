/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of gradients over the ranks of a gang; each rank has its own samples.
 *
 * The backward pass finishes gradients one after the other. After the unit that completes a bucket
 * (enough adjacent gradients of a slab) a node starts the sum of this interval, while the backward
 * pass continues; a node at the start of the update waits for all.
 */
#ifndef JM_REDUCE_H
#define JM_REDUCE_H

#include "comm/comm.h"
#include "program.h"

#define JM_BUCKET_BYTES                                                                            \
	((size_t)25 << 20) /* as large as torch.nn.parallel.DistributedDataParallel's */

/* Of a step. */
struct jm_reduce_cost {
	int buckets;
	double bytes; /* of gradients that are summed */
	double exposed; /* seconds that computation waits for sums, the mean of the steps so far; NAN = unknown */
};

bool jm_reduce_is_start(const struct jm_unit *u);
bool jm_reduce_is_node(const struct jm_unit *u);
/* Inserts the nodes into a program that is scheduled; nothing where one rank trains alone. */
int jm_program_add_reduction(struct jm_program *p, struct jm_err *err);

/* Before the first step of a program of several ranks: the communicator that sums, open as long as the program. */
int jm_reduce_open(struct jm_program *p, const struct jm_comm *comm, struct jm_err *err);
void jm_reduce_close(struct jm_program *p); /* one without, too */
/* A unit for which jm_reduce_is_node holds. */
int jm_reduce_run(struct jm_program *p, const struct jm_unit *u, struct jm_err *err);
/* Waits for the device. */
struct jm_reduce_cost jm_reduce_cost(struct jm_program *p);
void jm_reduce_reset(struct jm_program *p); /* forgets the steps so far */

/* The name of the transport for the device's memory: "local", "nccl"; NULL = there is none. */
const char *jm_reduce_transport(const struct jm_device *d);

#endif
