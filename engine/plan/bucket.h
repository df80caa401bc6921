/* SPDX-License-Identifier: Apache-2.0 */
/* Which gradients are summed over ranks at once, and when (run/reduce.h). */
#ifndef JM_BUCKET_H
#define JM_BUCKET_H

#include "program_plan.h"

bool jm_reduce_is_start(const struct jm_unit *u);  /* of a sum of gradients */
bool jm_reduce_is_gather(const struct jm_unit *u); /* of shares */
bool jm_reduce_is_node(const struct jm_unit *u);
bool jm_reduce_is_shared(const struct jm_node *n); /* by ranks that share a model */
/* Estimates of the time of such an exchange, and of a product; INFINITY: the peak is unknown. */
double jm_reduce_shared_seconds(const struct jm_graph *g, const struct jm_node *n);
double jm_reduce_product_seconds(
	const struct jm_graph *g, const struct jm_device *d, const struct jm_node *n);
/* Inserts the nodes into a scheduled program; does nothing for a single rank. */
int jm_program_add_reduction(struct jm_program *p, struct jm_err *err);

/*
 * Describes what all ranks must have in common, although each makes its own plan: order and places
 * of the sums, places and layouts of the parameters. 0 = nothing is summed.
 */
uint64_t jm_reduce_digest(const struct jm_program *p);

/* True if the exchanges of a step through the memory of the host are estimated to take at most a
 * fourth of its products with parameters. g: with a sharded update, by_host, and rounds_sums as
 * they would be. */
bool jm_reduce_fits_host(const struct jm_graph *g, const struct jm_device *d);

#endif
