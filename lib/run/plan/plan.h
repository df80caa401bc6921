/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan: which cases, and in which order. It is made from a request, the JSON that the store
 * keeps, so that the same command continues where it was interrupted:
 *
 *	what	decides the cases; its hash is the plan's key
 *		workload, or command[], environment{} and throughput{}; device[], precision[],
 *		options{name: [text...]}, settings[{knob, selector, phase, unit, values[text...]}],
 *		exclude[{settings: {knob: [text...]}}], warmup, steps, seconds
 *		or parts[what...]: the cases of all of them together
 *	found	[{knob, device, unit, value}]: the knobs of the settings as they were before the
 *		first run
 *	how	sources[], control, interval_s, timeout_s, real_time: how it is measured;
 *		until_interval, max_repeat, cooldown_s, retries{class: times}, order
 *	run	{run, tags[], template[]}: of a plan file, for the records; template: the command
 *		with its {names}, where its cases have other words in their place
 *	repeat, seed
 *
 * Cases come in complete blocks, one block per repeat. Each holds every combination of device,
 * precision, options and settings once, in an order drawn from the seed and the block. Where
 * settings are swept each combination of the rest has a reference: the point that equals the values
 * found, otherwise an additional case that leaves the knobs as they were found.
 */
#ifndef JM_PLAN_H
#define JM_PLAN_H

#include "result/case_id.h"

struct jm_plan_case {
	char id[JM_CASE_ID];
	json_t *parameters;
	bool reference;
};

struct jm_plan {
	json_t *request; /* an own copy */
	char key[JM_CASE_ID];
	struct jm_plan_case *cases; /* of one block, in the order of the product */
	int n;
	int repeat;	   /* blocks, at most */
	int least_repeat;  /* blocks before the first check of the intervals; repeat = no check */
	double until;	   /* relative half width of the intervals that suffices; 0 = not checked */
	bool in_order;	   /* the blocks hold the cases in the order of the product */
	double cooldown_s; /* pause before each case but the first */
	uint64_t seed;
	int prefix; /* digits that distinguish the cases; at least 4 */
};

/* Is the request one that a plan can be made from? what: names it in the sentence. JM_EFORMAT. */
int jm_plan_check(const json_t *request, const char *what, struct jm_err *err);
/* Do these parameters of a case name a simulated node, and is the device part of another one? */
bool jm_plan_other_node(const json_t *parameters, const char *device);
/* The i-th part of a request's "what": of one without parts it is the only one. NULL: there are no
 * more. */
json_t *jm_plan_part(const json_t *what, size_t i);
int jm_plan_new(const json_t *request, struct jm_plan *ret, struct jm_err *err);
void jm_plan_done(struct jm_plan *plan);
/* The order of block b (0...): a permutation of the case indices; room for plan->n. */
void jm_plan_order(const struct jm_plan *plan, int block, int *ret_order);
/* The seed of a workload in repeat r (1...): the first repeat has the plan's. */
uint64_t jm_plan_seed(const struct jm_plan *plan, int repeat);

#endif
