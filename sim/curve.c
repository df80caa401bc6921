/* SPDX-License-Identifier: Apache-2.0 */
/* Monotone piecewise cubic interpolation: F. N. Fritsch and J. Butland, SIAM J. Sci. Stat. Comput.
 * 5 (1984). */
#include "curve.h"

#include <math.h>
#include <string.h>

/* The slope at a point between two pieces of widths h, k and rises per width d, e. */
static double inner_slope(double h, double k, double d, double e)
{
	if (d * e <= 0)
		return 0;
	return 3 * (h + k) / ((2 * k + h) / d + (k + 2 * h) / e);
}

/* The slope at an end: the parabola through three points, held back to what keeps the piece
 * monotone. */
static double end_slope(double h, double k, double d, double e)
{
	double slope = ((2 * h + k) * d - h * e) / (h + k);

	if (slope * d <= 0)
		return 0;
	if (d * e <= 0 && fabs(slope) > 3 * fabs(d))
		return 3 * d;
	return slope;
}

void jm_sim_curve_init(struct jm_sim_curve *c, int n, const double *x, const double *y)
{
	double h[JM_SIM_POINTS_MAX] = {0}, d[JM_SIM_POINTS_MAX] = {0};

	c->n = n;
	memcpy(c->x, x, (size_t)n * sizeof(*x));
	memcpy(c->y, y, (size_t)n * sizeof(*y));
	for (int i = 0; i < n - 1; i++) {
		h[i] = x[i + 1] - x[i];
		d[i] = (y[i + 1] - y[i]) / h[i];
	}
	c->slope[0] = c->slope[n - 1] = d[0];
	if (n == 2)
		return;
	for (int i = 1; i < n - 1; i++)
		c->slope[i] = inner_slope(h[i - 1], h[i], d[i - 1], d[i]);
	c->slope[0] = end_slope(h[0], h[1], d[0], d[1]);
	c->slope[n - 1] = end_slope(h[n - 2], h[n - 3], d[n - 2], d[n - 3]);
}

double jm_sim_curve_at(const struct jm_sim_curve *c, double x)
{
	int i = 0;
	double h, t, s;

	if (x <= c->x[0])
		return c->y[0];
	if (x >= c->x[c->n - 1])
		return c->y[c->n - 1];
	while (x >= c->x[i + 1])
		i++;
	h = c->x[i + 1] - c->x[i];
	t = (x - c->x[i]) / h;
	s = 1 - t;
	return s * s * ((1 + 2 * t) * c->y[i] + t * h * c->slope[i]) +
	       t * t * ((3 - 2 * t) * c->y[i + 1] - s * h * c->slope[i + 1]);
}
