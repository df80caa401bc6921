/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What power does inside one step of a counter, where the counter does not look. A power reading is
 * the mean of a window w, shorter than the counter's refresh T: the difference of these means from
 * the counter's mean over the same time shows how much the load changes inside a step. For a load
 * that changes at random and faster than T, the energy leaves the straight line through a step of
 * length L by V w L u (1 - u) / (1 - w / T) (J^2, variance) at the share u of the step, where V
 * (W^2) is the mean square of that distance. A periodic load leaves it less. Without a power signal
 * V comes from the means of steps that follow each other, with w = T / 2.
 *
 * A jump of a slow load a second away from the edge gives no information about the step at the
 * edge. So where the means agree in all readings next to the edge, V comes from these readings
 * alone. The same holds for steps without a power signal if jumps are rare in all the steps: a load
 * near the refresh jumps in most of them.
 */
#include "energy/energy_parts.h"
#include "trace/plateaus.h"

#include <math.h>
#include <stdlib.h>

#define SHORTEST 4     /* a window shorter than 1/4 of the refresh counts as that */
#define FEW	 7     /* readings: with fewer of them the estimate of V is poor */
#define NEAR	 3     /* refreshes on each side of an edge */
#define HIDDEN	 0.065 /* of the mean power: what the mean over a window may hide */
/* Shares of the mean power that counts may hide that are all alike, and that many alike counts may
 * hide. */
#define FLAT	     0.25
#define FLAT_OF_MANY 0.165
#define MANY	     8	  /* pairs of steps that follow each other */
#define ALIKE	     0.03 /* of their mean power: steps that are no farther apart do not jump */
#define RARE	     5	  /* jumps are rare if fewer than one in these pairs */

static double seconds(int64_t ns)
{
	return (double)ns * 1e-9;
}

static double square(double x)
{
	return x * x;
}

/* The counter at t, in a straight line between two steps that are near each other; NAN
 * elsewhere. */
static double line_at(const struct jm_runs *counter, int64_t t)
{
	int64_t refresh = counter->signal->refresh_ns;
	const struct jm_plateau *run = counter->run;

	for (int i = 0; i + 1 < counter->n; i++) {
		int64_t a = jm_plateau_start(&run[i]), b = jm_plateau_start(&run[i + 1]);

		if (t < a || t > b || b <= a)
			continue;
		if (b - a > refresh + refresh / 2 || run[i + 1].value < run[i].value)
			return NAN;
		return run[i].value +
		       (run[i + 1].value - run[i].value) * seconds(t - a) / seconds(b - a);
	}
	return NAN;
}

static double more_for_few(double squares, int n)
{
	return squares / n * (1 + (double)FEW / n);
}

/* Sums over the means of the power's window. */
struct seen {
	double squares, sum, most;
	int n;
};

static void see(struct seen *seen, double off, double watts)
{
	seen->squares += square(off);
	seen->most = fmax(seen->most, fabs(off));
	seen->sum += watts;
	seen->n++;
}

/* Sums over all windows, and over those near the edge. */
struct around {
	struct seen all, near;
};

static void see_window(struct around *seen, const struct jm_unseen *u,
	const struct jm_runs *counter, int64_t t, int64_t end, double watts)
{
	int64_t window = llround(u->window * 1e9), reach = NEAR * counter->signal->refresh_ns;
	double joules = line_at(counter, end) - line_at(counter, end - window);

	if (isnan(joules))
		return;
	see(&seen->all, watts - joules / u->window, watts);
	if (llabs(end - window / 2 - t) <= reach)
		see(&seen->near, watts - joules / u->window, watts);
}

/* Enough windows, and the means of all of them are near the counter's mean. */
static bool is_quiet(const struct seen *near)
{
	return near->n >= NEAR && near->most < HIDDEN * near->sum / near->n;
}

static void from_power(
	struct jm_unseen *u, const struct jm_runs *counter, const struct jm_runs *power, int64_t t)
{
	struct around around = {0};
	const struct seen *seen = &around.all;

	/* an unchanged value was refreshed as well */
	for (int i = 0; i < power->n; i++) {
		const struct jm_plateau *run = &power->run[i];

		for (int64_t end = jm_plateau_start(run);
			end <= run->seen || end == jm_plateau_start(run);
			end += counter->signal->refresh_ns)
			see_window(&around, u, counter, t, end, run->value);
	}
	if (is_quiet(&around.near))
		seen = &around.near;
	u->known = seen->n > 0;
	if (!seen->n)
		return;
	u->squares = more_for_few(seen->squares, seen->n) + square(HIDDEN * seen->sum / seen->n);
}

/* Sums over the steps, and over pairs that follow each other. */
struct steps {
	double squares, sum;
	int n, pairs, jumps;
};

static void see_step(struct steps *steps, double mean, double last)
{
	steps->sum += mean;
	steps->n++;
	if (isnan(last))
		return;
	steps->squares += square(mean - last) / 2;
	steps->pairs++;
	steps->jumps += fabs(mean - last) > ALIKE * (mean + last) / 2;
}

static void see_steps(struct steps *steps, const struct jm_runs *counter, int64_t t, int64_t reach)
{
	int64_t refresh = counter->signal->refresh_ns;
	const struct jm_plateau *run = counter->run;
	double last = NAN;

	for (int i = 0; i + 1 < counter->n; i++) {
		int64_t a = jm_plateau_start(&run[i]), b = jm_plateau_start(&run[i + 1]);
		double mean = (run[i + 1].value - run[i].value) / seconds(b - a);

		if (b <= a || b - a > refresh + refresh / 2 || mean < 0) {
			last = NAN;
			continue;
		}
		if (llabs(a + (b - a) / 2 - t) > reach)
			continue;
		see_step(steps, mean, last);
		last = mean;
	}
}

/* No jump near the edge, and few of them elsewhere. */
static bool is_steady(const struct steps *near, const struct steps *all)
{
	return near->n >= NEAR && !near->jumps && all->pairs >= MANY &&
	       all->jumps * RARE < all->pairs;
}

static void from_steps(struct jm_unseen *u, const struct jm_runs *counter, int64_t t)
{
	struct steps all = {0}, near = {0};
	const struct steps *steps = &all;
	double flat = FLAT;

	see_steps(&all, counter, t, INT64_MAX);
	see_steps(&near, counter, t, NEAR * counter->signal->refresh_ns);
	u->known = all.n > 0;
	if (!all.n)
		return;
	if (is_steady(&near, &all)) {
		steps = &near;
		flat = FLAT_OF_MANY;
	}
	if (steps->pairs)
		u->squares = more_for_few(steps->squares, steps->pairs);
	u->squares += square(flat * steps->sum / steps->n);
}

void jm_unseen_init(
	struct jm_unseen *u, const struct jm_runs *counter, const struct jm_runs *power, int64_t t)
{
	double refresh = seconds(counter->signal->refresh_ns);

	*u = (struct jm_unseen){.refresh = refresh};
	if (!counter->signal->refresh_ns)
		return;
	if (power->signal && power->n) {
		u->window = fmax(seconds(power->signal->window_ns), refresh / SHORTEST);
		if (u->window < refresh)
			from_power(u, counter, power, t);
	}
	if (u->known)
		return;
	u->window = refresh / 2;
	from_steps(u, counter, t);
}

double jm_unseen_variance(const struct jm_unseen *u, double length, double share)
{
	if (!u->known)
		return 0;
	return u->squares * u->window * length * share * (1 - share) / (1 - u->window / u->refresh);
}
