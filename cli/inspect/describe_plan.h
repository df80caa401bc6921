/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a program as text, as JSON and as a drawing, and of several side by side. */
#ifndef JM_DESCRIBE_PLAN_H
#define JM_DESCRIBE_PLAN_H

#include <jansson.h>
#include <stdio.h>

#include "base/option.h"
#include "engine/graph/model.h"
#include "engine/run/served_model.h"
#include "engine/run/program.h"
#include "result/power_fit.h"

/* Serving instead of training: what is asked for, then what describe_serve_plan found. */
struct describe_serve {
	bool on;
	double memory; /* GB; NAN = that of the device */
	enum jm_cache_type kv;
	int running, step_tokens;
	int64_t request_tokens;	    /* of a prompt and its answer; 0 = the context */
	struct jm_step_shape shape; /* without pages */
	int64_t parameters, pages;
	size_t budget, weight_bytes, arena_bytes, page_bytes, peak_bytes;
};

/* The mean power of the training, estimated from runs on the same device. */
struct describe_power {
	const char *store; /* NULL = not asked for */
	struct jm_power_fit fit;
	struct jm_power_estimate estimate;
	int n_runs;
	bool simulated;
};

/* All that is known once a program is planned. */
struct describe_plan {
	const char *name, *precision;
	const char *init;
	const char *device_name, *json, *svg; /* NULL = not given */
	bool lists_graph, keep_most;
	double remake;		 /* percent; NAN = not given */
	struct jm_values values; /* of the command, and of the model */
	struct jm_values dims;
	struct jm_training training;
	struct jm_device device;
	struct describe_serve serve;
	struct describe_power power;
	/* of a training; with stages, of the one that needs most memory */
	struct jm_graph *graph;
	struct jm_program *program;
	double flops_model, flops_executed, bytes; /* of a step, of all stages */
};

static inline int describe_ranks_n(const struct describe_plan *plan)
{
	return plan->training.tp * plan->training.pp * plan->training.ranks;
}

#endif
