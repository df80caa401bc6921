/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated node as its sensors show it: the registers, the physics of each GPU, the sensor's
 * habits. */
#ifndef JM_SIM_NODE_H
#define JM_SIM_NODE_H

#include "physics.h"
#include "registers.h"

/* What the sensors of a GPU say since their last refresh. */
struct jm_sim_sample {
	int64_t t_ns;	      /* of that refresh */
	double joules;	      /* counter, in its steps */
	double watts;	      /* mean of the short window */
	double watts_average; /* mean of the long one */
	/* short window; of parts without a sensor meaningless */
	double watts_part[JM_SIM_PARTS];
	double clock_hz, memory_clock_hz, celsius, utilisation;
	unsigned int throttle; /* enum jm_throttle */
	double held_watts, cap_watts;
};

struct jm_sim_node;

/* The GPUs start in the steady state of what the registers say. */
int jm_sim_node_open(
	struct jm_ctx *ctx, const char *name, struct jm_sim_node **ret, struct jm_err *err);
void jm_sim_node_close(struct jm_sim_node *node); /* takes NULL */
const struct jm_sim_name *jm_sim_node_name(const struct jm_sim_node *node);
/* Takes in what happened up to now; then each GPU can be read. */
void jm_sim_node_advance(struct jm_sim_node *node);
const struct jm_sim_sample *jm_sim_node_read(struct jm_sim_node *node, int gpu);
/* The truth behind the sensor, for tests: power, temperature and energy at that very moment. */
struct jm_sim_state jm_sim_node_truth(const struct jm_sim_node *node, int gpu, int64_t t_ns);

#endif
