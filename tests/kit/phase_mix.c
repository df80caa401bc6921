/* SPDX-License-Identifier: Apache-2.0 */
#include "phase_mix.h"

#include <math.h>
#include <string.h>

const char *const phase_mix_names[PHASE_MIX_PHASES] = {"product", "stream", "all-gather"};
const double phase_mix_caps[PHASE_MIX_CAPS] = {700, 200, 300, 400, 500, 600};

struct phase_mix phase_mix_of(void)
{
	struct phase_mix t = {.gpu = jm_sim_gpus};

	while (strcmp(t.gpu->name, "h100") != 0)
		t.gpu++;
	for (int i = 0; i < PHASE_MIX_PHASES; i++) {
		t.response[i] =
			&t.gpu->response[jm_sim_response_find(t.gpu, phase_mix_names[i], NULL)];
		jm_sim_rate_curve(t.gpu, t.response[i], &t.rate[i]);
		t.items[i] = 2 * jm_sim_curve_at(&t.rate[i], t.response[i]->demand_watts);
	}
	return t;
}

double phase_mix_watts(const struct phase_mix *t, int phase, double cap)
{
	return jm_sim_busy_watts(t->gpu, t->response[phase], cap);
}

double phase_mix_seconds(const struct phase_mix *t, int phase, double cap)
{
	return t->items[phase] / jm_sim_curve_at(&t->rate[phase], phase_mix_watts(t, phase, cap));
}

void phase_mix_cycle(
	const struct phase_mix *t, const double *cap, double *ret_joules, double *ret_s)
{
	*ret_joules = *ret_s = 0;
	for (int i = 0; i < PHASE_MIX_PHASES; i++) {
		*ret_s += phase_mix_seconds(t, i, cap[i]);
		*ret_joules += phase_mix_seconds(t, i, cap[i]) * phase_mix_watts(t, i, cap[i]);
	}
}

int phase_mix_search(const char *objective, struct jm_phase_search **ret, struct jm_err *err)
{
	struct jm_phase_search_options o = {
		.n_values = PHASE_MIX_CAPS, .limit_watts = phase_mix_caps[0], .within_s = 600};
	int rc = jm_objective_parse(objective, &o.objective, err);

	return rc ? rc : jm_phase_search_new(&o, ret, err);
}

int phase_mix_work(struct jm_phase_search *s, const struct phase_mix *t, double noise,
	uint64_t seed, int cycles)
{
	int n = 0;

	for (; n < cycles && jm_phase_search_stage(s) != JM_PHASE_HOLD; n++) {
		for (int i = 0; i < PHASE_MIX_PHASES; i++) {
			int phase = jm_phase_search_phase(s, phase_mix_names[i]);
			int value = jm_phase_search_next(s, phase, 0.1);
			double slow = 1 + noise * jm_sim_noise(seed, 2 * (uint64_t)i, (uint64_t)n);
			double more =
				1 + noise * jm_sim_noise(seed, 2 * (uint64_t)i + 1, (uint64_t)n);
			double cap = phase_mix_caps[value],
			       seconds = slow * phase_mix_seconds(t, i, cap);

			jm_phase_search_add(s, phase, value, seconds, t->items[i],
				more * seconds * phase_mix_watts(t, i, cap));
		}
	}
	return n;
}

double phase_mix_best_single(const struct phase_mix *t, double most_s)
{
	double best = INFINITY;

	for (double cap = 200; cap <= 700; cap++) {
		double joules, seconds;

		phase_mix_cycle(t, (double[]){cap, cap, cap}, &joules, &seconds);
		if (seconds <= most_s)
			best = fmin(best, joules);
	}
	return best;
}

void phase_mix_chosen(const struct jm_phase_search *s, double cap[PHASE_MIX_PHASES])
{
	struct jm_phase_search_result r;

	jm_phase_search_result(s, &r);
	for (int i = 0; i < PHASE_MIX_PHASES; i++)
		cap[i] = phase_mix_caps[r.held ? r.value[jm_phase_class_by_name(phase_mix_names[i])]
					       : 0];
}
