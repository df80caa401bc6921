/* SPDX-License-Identifier: Apache-2.0 */
/* The state of workload serve, which its files share. */
#ifndef JM_SERVE_H
#define JM_SERVE_H

#include "arrivals.h"
#include "engine/run/cache.h"
#include "run/workload.h"
#include "serving/scheduler.h"
#include "workloads/parts/prompts.h"
#include "workloads/parts/weights_load.h"

/* What the scheduler does not know of a request. Times: ns of the clock; 0 = not yet. */
struct answer {
	int64_t arrived, first, end;
	int32_t *token; /* [output] */
	int64_t *made;	/* [output]: when */
};

/* Sums over the steps that had rows. */
struct jm_serve_usage {
	double seconds, running, pages; /* of steps; these by requests and by pages in use */
	int64_t rows, computed;		/* computed: with those that are padding */
};

struct serve {
	struct jm_work *work;
	const char *model_name, *input_text, *output_text, *lengths, *csv, *answers;
	struct jm_prompts_source source;
	struct jm_prompts prompts;
	struct jm_safetensors from;
	struct jm_weights_loaded loaded;
	int requests, running, step_tokens, pages, threads, profile;
	struct jm_program *profiled; /* NULL = none */
	struct jm_arrivals arrivals;
	int64_t begin_ns;  /* of the first step; arrivals count from it; 0 = not yet */
	double ttft, tpot; /* bounds of goodput, s; NAN = none */
	struct jm_serve_usage usage;
	struct jm_values dims;
	struct jm_training training;
	struct jm_device device;
	struct jm_cache cache;
	struct jm_scheduler *scheduler;
	struct answer *answer; /* [requests of the scheduler] */
	int cap;
	int64_t vocab;
};

#endif
