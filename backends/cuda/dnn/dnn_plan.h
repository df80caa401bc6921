/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of a cuDNN graph: its heuristics list configurations, which are made into plans on
 * demand. */
#ifndef JM_DNN_PLAN_H
#define JM_DNN_PLAN_H

#include "dnn_graph.h"

/* Finds at most max plans, in cuDNN's order of expected speed. Returns their number; 0 = none, err
 * holds the reason. */
int dnn_plans(struct dnn_graph *g, const struct dnn_want *want, struct dnn_plan *ret, int max,
	struct jm_err *err);
void dnn_plan_drop(const struct cuda_dnn *d, struct dnn_plan *plan);
int dnn_bind(const struct cuda_dnn *d, const struct dnn_plan *plan, int n, const int64_t *id,
	void *const *data, void *workspace, struct dnn_run *ret, struct jm_err *err);
int dnn_run(const struct cuda_dnn *d, const struct dnn_run *run, struct jm_err *err);
void dnn_unbind(const struct cuda_dnn *d, struct dnn_run *run); /* does not free the plan */

#endif
