/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power, temperature and energy of one GPU while its inputs stay the same, in closed form:
 *
 *	lag_P  dP/dt = target - P		the cap's control loop; target rises with T by
 *						leakage
 *	lag_T  dT/dt = ambient + R P - T	one thermal mass
 *
 * Both are linear, so the state at any later time comes straight from the segment's start: it does
 * not matter how often anybody looks.
 */
#ifndef JM_SIM_PHYSICS_H
#define JM_SIM_PHYSICS_H

#include "sim_model.h"

struct jm_sim_state {
	double watts, celsius;
	double joules; /* since the simulation began */
};

struct jm_sim_segment {
	int64_t t0_ns;
	double watts, celsius; /* where it tends to */
	double mode_watts[2];  /* amplitudes of the two modes at t0 */
	double mode_celsius[2];
	double mode_rate[2]; /* 1/s, negative */
	double joules;	     /* at t0 */
};

/* The state that lasts for ever at that power. */
struct jm_sim_state jm_sim_steady(const struct jm_sim_gpu *gpu, double watts);
/*
 * From state `from` at t0_ns towards `watts` (in thermal steady state). regulated: a cap holds the
 * power there, leakage costs clock; otherwise leakage costs power.
 */
void jm_sim_segment_init(struct jm_sim_segment *ret, const struct jm_sim_gpu *gpu, int64_t t0_ns,
	const struct jm_sim_state *from, double watts, bool regulated);
/* t_ns >= t0_ns */
struct jm_sim_state jm_sim_segment_at(const struct jm_sim_segment *segment, int64_t t_ns);
double jm_sim_segment_joules(const struct jm_sim_segment *segment, int64_t t_ns);

#endif
