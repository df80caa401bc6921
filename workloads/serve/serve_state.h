/* SPDX-License-Identifier: Apache-2.0 */
/* The state of workload serve, which its files share. */
#ifndef JM_SERVE_STATE_H
#define JM_SERVE_STATE_H

#include <limits.h>

#include "completion_request.h"
#include "request_load.h"
#include "request_queue.h"
#include "engine/run/served_model.h"
#include "run/workload.h"
#include "serving/scheduler.h"
#include "workloads/parts/gang.h"
#include "workloads/parts/prompts.h"
#include "workloads/parts/weights_load.h"

/* --phase: what steps compute. */
enum jm_serve_phase { JM_SERVE_BOTH, JM_SERVE_PREFILL, JM_SERVE_DECODE };

#define JM_SERVE_VERIFIED 8 /* requests that are repeated alone at the end */

/* What a client asked for, beside its answer. */
struct jm_client_request {
	int place; /* on the desk; -1 = this replica is done with it */
	struct jm_rule rule;
	bool has_seed;
	uint64_t seed;
};

/* The requests of clients that this replica has. */
struct jm_client_requests {
	struct jm_client_request *at; /* [n], as the answers of the load */
	int n, cap;
	int *open; /* [n_open]: numbers of those that have a place */
	int n_open, cap_open;
	int n_kept; /* that are done, with their tokens */
};

/* Sums over the steps that had rows. */
struct jm_serve_usage {
	/* of steps; the others by requests, and by the share of the pages that are in use */
	double seconds, running, pages;
	double idle; /* s that the device waited for a step while requests were under way */
	double rows, computed; /* computed: with those that are padding */
};

/* What one rank has done. */
struct jm_serve_share {
	double requests, tokens; /* whose answers are complete; their tokens of answers */
	double running;		 /* mean number of requests in a step; NAN = it had no step */
};

/* A token that a step makes: number `token` of the answer of `request`; request -1: the slot makes
 * none. */
struct jm_serve_made {
	int request, token;
};

/* A step that was launched; its tokens are not known yet. */
struct jm_serve_flight {
	struct jm_serve_made *made; /* [running]: of each slot */
	int64_t begin_ns, rows;
	int size;			     /* its program */
	int pieces, pages;		     /* pages: in use */
	int ends;			     /* requests whose last token it makes */
	bool more;			     /* requests are unfinished after it */
	double flops_prompts, flops_answers; /* of its rows */
	int answers;			     /* rows of answers */
	/* tokens whose keys and values it reads (of each request once) or writes */
	double cached;
};

/* FLOPs of a row of a step: of products that all rows need, and for each key that it sees; both of
 * what is added if it makes a token. */
struct jm_serve_row_flops {
	double row, key, made, made_key;
};

/* A step that is done. */
struct jm_serve_timed {
	int64_t end_ns;
	double seconds, prompts; /* prompts: their share of its FLOPs */
	int answers;		 /* its rows of answers */
};
#define JM_SERVE_FLIGHTS 2

struct serve {
	struct jm_work *work;
	const char *model_name, *answers_file, *listen;
	char answers_name[PATH_MAX]; /* of this run */
	struct jm_prompts_source source;
	struct jm_prompts prompts;
	struct jm_safetensors from;
	struct jm_weights_loaded loaded;
	enum jm_serve_phase phase;
	enum jm_cache_type kv;
	int running, step_tokens, pages, threads, profile;
	struct jm_program *profiled;   /* NULL = none */
	struct jm_load load;	       /* its answers: [requests of the scheduler] */
	struct jm_gang gang;	       /* replicas; each is a rank */
	struct jm_request_queue queue; /* theirs, and that of clients */
	struct jm_client_requests clients;
	bool in_phase;	  /* steps of this one are under way: replicas.h */
	int64_t credited; /* rank 0: tokens of all that steps have returned */
	int64_t ended_ns; /* when the latest phase ended */
	/* rank 0, at the end: requests of all replicas, or of clients */
	struct jm_answers gathered;
	struct jm_serve_share *share; /* [world]: of each rank; NULL = one alone */
	struct jm_answers *all;	      /* the same, or of one rank those of `load` */
	struct jm_serve_usage usage;
	struct jm_serve_row_flops row_flops[JM_SERVED_SIZES]; /* of each size of a step */
	struct jm_serve_timed *timed; /* [n_timed], of serve_split.h; NULL = none are kept */
	int n_timed;
	uint64_t timed_mask; /* steps are kept whose random bits are 0 in it */
	double ahead_wanted; /* of the option; NAN = by the device */
	/* steps that are launched before the tokens of the one before are known: 0 or 1 */
	int ahead;
	struct jm_serve_flight flight[JM_SERVE_FLIGHTS]; /* in the order of their launch */
	int n_flights;
	bool owes;	   /* a step was begun that has not been returned: jm_workload.step */
	bool awaited_more; /* the step whose tokens were taken last left requests unfinished */
	int64_t taken_ns;  /* when that was */
	struct jm_values dims;
	struct jm_training training;
	struct jm_device device;
	struct jm_simulated_steps *simulated; /* simulated_steps.h; NULL = the device computes */
	struct jm_served_model served;
	struct jm_rule rule; /* of tokens, unless a client has its own */
	struct jm_scheduler_limits limits;
	struct jm_scheduler *scheduler;
	struct jm_listener *listener; /* rank 0 with --listen (listen.h) */
	int64_t vocab;
};

#endif
