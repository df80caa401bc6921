/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a step of a transformer that GPUs of one node train in data parallel, layer by layer:
 * the sum of a layer's gradients over the GPUs begins when all of them have computed it and the
 * links are free, and goes on beside the rest of the backward pass. No state; docs/simulation.md
 * says what is assumed.
 */
#ifndef JM_SIM_TRAINING_H
#define JM_SIM_TRAINING_H

struct jm_sim_training {
	long layers, hidden;
	long batch, seq; /* sequences on each GPU, and their tokens */
};

/* Of one GPU, seconds of a step. */
struct jm_sim_training_time {
	double compute, exposed; /* their sum is the step */
	double overlapped;	 /* part of compute beside which gradients travelled */
};

/* Of the gradients on each GPU. */
double jm_sim_training_bytes(const struct jm_sim_training *t);
/* Seconds of a step of n GPUs. flop_rate: FLOP/s of each; bus_rate: B/s that each sends around a
 * ring */
double jm_sim_training_step(const struct jm_sim_training *t, int n, const double *flop_rate,
	double bus_rate, struct jm_sim_training_time *ret);

#endif
