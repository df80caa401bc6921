/* SPDX-License-Identifier: Apache-2.0 */
/* The state of workload serve, which its files share. */
#ifndef JM_SERVE_H
#define JM_SERVE_H

#include "engine/run/cache.h"
#include "run/workload.h"
#include "serving/scheduler.h"
#include "workloads/parts/prompts.h"
#include "workloads/parts/weights_load.h"

enum arrival { ARRIVE_ALL, ARRIVE_SINGLE, ARRIVE_CLOSED };

struct range {
	int from, to;
};

/* What the scheduler does not know of a request. Times: ns of the clock; 0 = not yet. */
struct answer {
	int64_t arrived, first, end;
	int32_t *token; /* [output] */
};

struct serve {
	struct jm_work *work;
	const char *model_name, *input_text, *output_text, *csv, *answers;
	struct jm_prompts_source source;
	struct jm_prompts prompts;
	struct jm_safetensors from;
	struct jm_weights_loaded loaded;
	int requests, running, step_tokens, pages, threads, profile;
	struct jm_program *profiled; /* NULL = none */
	enum arrival arrival;
	struct range input, output;
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
