/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats until the intervals are narrow enough. */
#include "repeat_until.h"

#include "base/stat/stat.h"
#include "result/metric.h"

#include <math.h>
#include <stdlib.h>

double jm_until_level(int looks)
{
	return 1 - 0.05 / (looks > 1 ? looks : 1);
}

double jm_until_half_width(const double *values, int n, double level)
{
	struct jm_stat s;

	jm_stat_of(values, n, &s);
	if (s.n < 2 || s.mean == 0)
		return NAN;
	return jm_stat_t_quantile(1 - (1 - level) / 2, s.n - 1) * s.sd / sqrt(s.n) / fabs(s.mean);
}

/* Of one case, all blocks. */
struct figures {
	double *seconds, *joules; /* per item */
	int n;
};

static void take(struct figures *f, const json_t *record)
{
	struct jm_measured m;

	jm_metric_measure(record, 0, false, &m);
	f->seconds[f->n] = m.seconds_item;
	f->joules[f->n] = m.joules / m.items;
	f->n++;
}

static double widest(const struct figures *f, double level)
{
	double time = jm_until_half_width(f->seconds, f->n, level);

	return fmax(time, jm_until_half_width(f->joules, f->n, level)); /* NAN loses */
}

bool jm_until_reached(json_t *const *records, int n_cases, int stride, int blocks, double width,
	double level, double *ret_worst)
{
	struct figures f = {.seconds = calloc((size_t)blocks + 1, sizeof(double)),
		.joules = calloc((size_t)blocks + 1, sizeof(double))};

	*ret_worst = NAN;
	for (int i = 0; i < n_cases && f.seconds && f.joules; i++) {
		f.n = 0;
		for (int b = 0; b < blocks; b++)
			if (records[i * stride + b])
				take(&f, records[i * stride + b]);
		*ret_worst = fmax(*ret_worst, widest(&f, level));
	}
	free(f.seconds);
	free(f.joules);
	return *ret_worst <= width;
}
