/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipeline parallelism (Narayanan et al., arXiv 2104.04473): g->pp ranks share one model, and each
 * has as many of its blocks: a stage. With g->chunks > 1 a stage is so many parts of the network,
 * and a micro-step comes through each rank as often (interleaved, virtual stages). With
 * g->last_blocks the last part, which computes the loss, too, has so many blocks, and the others
 * share the rest; 0 becomes the number, at most that of the other parts, with which the stage that
 * has most FLOPs has fewest.
 *
 * A model declares the whole network; jm_graph_keep_stage then removes the nodes of other stages.
 * Their parameters stay declared, without memory, so that start values and random numbers are those
 * of the whole network.
 *
 * What is left of the forward pass is one part for each chunk, and the gradients have the same
 * parts in the opposite order. stage-out ends a part, stage-in begins one that receives data, and
 * no node changes its place across them. plan/pipe_schedule.h says when parts run and what is sent
 * then.
 */
#ifndef JM_PIPELINE_PARALLEL_H
#define JM_PIPELINE_PARALLEL_H

#include "graph.h"

/* Between the network and its gradients; loss: of the network. Does nothing for a single stage. */
int jm_graph_keep_stage(struct jm_graph *g, struct jm_tensor *loss, struct jm_err *err);

#endif
