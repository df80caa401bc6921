/* SPDX-License-Identifier: Apache-2.0 */
/* A smooth curve through points that never overshoots between them: exact at each, flat outside. */
#ifndef JM_SIM_CURVE_H
#define JM_SIM_CURVE_H

#define JM_SIM_POINTS_MAX 8

struct jm_sim_curve {
	int n;
	double x[JM_SIM_POINTS_MAX], y[JM_SIM_POINTS_MAX], slope[JM_SIM_POINTS_MAX];
};

/* x rises; 2 <= n <= JM_SIM_POINTS_MAX. */
void jm_sim_curve_init(struct jm_sim_curve *curve, int n, const double *x, const double *y);
double jm_sim_curve_at(const struct jm_sim_curve *curve, double x);

#endif
