/* SPDX-License-Identifier: Apache-2.0 */
/* The linear system of physics.h, solved by its two modes. */
#include "physics.h"

#include <math.h>

struct jm_sim_state jm_sim_steady(const struct jm_sim_gpu *gpu, double watts)
{
	return (struct jm_sim_state){
		.watts = watts,
		.celsius = gpu->ambient_celsius + gpu->thermal_resistance * watts,
	};
}

/*
 * With p, q the distances of P and T from where they tend to, a = 1/lag_P, b = 1/lag_T, k =
 * leakage:
 *	p' = -a p + a k q	q' = b R p - b q
 * The eigenvalues are real because both couplings are >= 0; (l + b, b R) is the eigenvector of l.
 */
void jm_sim_segment_init(struct jm_sim_segment *ret, const struct jm_sim_gpu *gpu, int64_t t0_ns,
	const struct jm_sim_state *from, double watts, bool regulated)
{
	struct jm_sim_state to = jm_sim_steady(gpu, watts);
	double k = regulated ? 0 : gpu->leakage_watts_per_kelvin;
	double a = 1 / gpu->power_lag_s, b = 1 / gpu->thermal_lag_s;
	double coupling = b * gpu->thermal_resistance;
	double p = from->watts - to.watts, q = from->celsius - to.celsius;
	double half = sqrt((a - b) * (a - b) / 4 + a * k * coupling);
	double rate[2] = {-(a + b) / 2 + half, -(a + b) / 2 - half};
	double det = (rate[0] - rate[1]) * coupling;
	double share[2] = {
		(p * coupling - (rate[1] + b) * q) / det, ((rate[0] + b) * q - p * coupling) / det};

	*ret = (struct jm_sim_segment){
		.t0_ns = t0_ns, .watts = to.watts, .celsius = to.celsius, .joules = from->joules};
	for (int i = 0; i < 2; i++) {
		ret->mode_rate[i] = rate[i];
		ret->mode_watts[i] = share[i] * (rate[i] + b);
		ret->mode_celsius[i] = share[i] * coupling;
	}
}

struct jm_sim_state jm_sim_segment_at(const struct jm_sim_segment *s, int64_t t_ns)
{
	double t = (double)(t_ns - s->t0_ns) * 1e-9;
	struct jm_sim_state at = {s->watts, s->celsius, s->joules + s->watts * t};

	for (int i = 0; i < 2; i++) {
		double decay = expm1(s->mode_rate[i] * t);

		at.watts += s->mode_watts[i] * (1 + decay);
		at.celsius += s->mode_celsius[i] * (1 + decay);
		at.joules += s->mode_watts[i] * decay / s->mode_rate[i];
	}
	return at;
}

double jm_sim_segment_joules(const struct jm_sim_segment *s, int64_t t_ns)
{
	return jm_sim_segment_at(s, t_ns).joules;
}
