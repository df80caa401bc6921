/* SPDX-License-Identifier: Apache-2.0 */
#include "search_worlds.h"
#include "sim/sim_model.h"

#include <math.h>
#include <string.h>

#define SETTLE 0.3 /* s, before a window */
#define WINDOW 2.
#define HELD   10.

const struct search_world search_worlds[] = {
	{"noisy", "h100", "vit-l16", 0.01, 0, 0, 0, 0, 0},
	{"flat", "h100", "resnet50", 0.005, 0, 150, 100, 0, 0},
	{"drifting", "h200", "llama3-8b-train", 0.005, -0.10, 0, 0, 0, 0},
	{"memory-bound", "h100", "llama3-8b-infer", 0.005, 0, 420, 280, 0, 0},
	{"violated", "mi300x", "llama3-8b-train", 0.005, 0, 0, 0, 0, 0},
	{"quiet", "h100", "llama3-8b-train", 0, 0, 0, 0, 0, 0},
	{.name = NULL},
};

static const struct jm_sim_gpu *gpu_of(const struct search_world *w)
{
	const struct jm_sim_gpu *gpu = jm_sim_gpus;

	while (strcmp(gpu->name, w->gpu) != 0)
		gpu++;
	return gpu;
}

static const struct jm_sim_response *response_of(const struct search_world *w)
{
	const struct jm_sim_gpu *gpu = gpu_of(w);

	return &gpu->response[jm_sim_response_find(gpu, w->response, NULL)];
}

/* Is the work bound by something else than power? */
static bool is_bound(const struct search_world *w, double t)
{
	return w->demand > 0 && (w->change_s <= 0 || t < w->change_s);
}

static double watts_at(const struct search_world *w, double cap, double t)
{
	double watts = jm_sim_busy_watts(gpu_of(w), response_of(w), cap);

	if (is_bound(w, t))
		watts = fmin(jm_sim_held_watts(gpu_of(w), cap), w->demand);
	return watts * (1 + w->drift * t / SEARCH_JOB_S / 2);
}

static double rate_at(const struct search_world *w, double cap, double t)
{
	struct jm_sim_curve curve;
	double idle = gpu_of(w)->idle_watts, rate;

	if (is_bound(w, t)) {
		double share = (watts_at(w, cap, 0) - idle) / (w->bound_watts - idle);

		rate = 1000 * cbrt(fmin(share, 1));
	} else {
		jm_sim_rate_curve(gpu_of(w), response_of(w), &curve);
		rate = jm_sim_curve_at(&curve, jm_sim_busy_watts(gpu_of(w), response_of(w), cap));
	}
	return rate * (1 + w->drift * t / SEARCH_JOB_S);
}

/* The truth: of the cap, relative to the default. */
static double cost(const struct search_world *w, const struct jm_objective *o, double cap, double t)
{
	double full = gpu_of(w)->cap_default_watts;
	double rate = rate_at(w, cap, t) / rate_at(w, full, t);
	double watts = watts_at(w, cap, t) / watts_at(w, full, t);

	return exp(jm_objective_cost(o, watts / rate, 1 / rate, full / watts_at(w, full, t)));
}

static double least_cost(const struct search_world *w, const struct jm_objective *o, double t)
{
	const struct jm_sim_gpu *gpu = gpu_of(w);
	double least = INFINITY;

	for (double cap = gpu->cap_min_watts; cap <= gpu->cap_max_watts; cap += 1)
		least = fmin(least, cost(w, o, cap, t));
	return least;
}

static struct jm_visit visit_of(const struct search_world *w, struct jm_tune_setting setting,
	double *t, double window, uint64_t seed)
{
	double cap = setting.found ? gpu_of(w)->cap_default_watts : setting.value[0];
	double middle = *t + SETTLE + window / 2;
	uint64_t at = (uint64_t)llround(*t * 1000);
	double noise = w->noise * jm_sim_noise(seed, 1, at),
	       more = w->noise / 2 * jm_sim_noise(seed, 2, at);

	bool stalled = jm_sim_hash(seed, 3, at) % 1000 < 1000 * w->stalls;
	double works = stalled ? 0.5 : 1;
	double watts = works * watts_at(w, cap, middle) + (1 - works) * gpu_of(w)->idle_watts;

	*t += SETTLE + window;
	return (struct jm_visit){
		.seconds = window,
		.items = works * window * rate_at(w, cap, middle) * (1 + noise),
		.joules = window * watts * (1 + more),
		.error_joules = 0.002 * window * watts,
		.wall_s = SETTLE + window,
	};
}

int search_world_tune(const struct search_world *w, const struct jm_objective *o, double job_s,
	uint64_t seed, struct search_outcome *ret, struct jm_err *err)
{
	const struct jm_sim_gpu *gpu = gpu_of(w);
	const struct jm_search_options options = {
		.objective = *o,
		.knob[0] = {gpu->cap_min_watts, gpu->cap_max_watts, 5, gpu->cap_default_watts},
		.n = 1,
		.limit_watts = gpu->cap_default_watts,
		.within_s = SEARCH_WITHIN_S,
	};
	struct jm_search *s = NULL;
	int rc = jm_search_new(&options, &s, err);
	double t = 0, cap;

	*ret = (struct search_outcome){.first_search_s = NAN};
	while (!rc && t < job_s) {
		bool holds = jm_search_stage(s) == JM_STAGE_HOLD;
		struct jm_visit v = visit_of(w, jm_search_next(s), &t, holds ? HELD : WINDOW, seed);

		if (holds && isnan(ret->first_search_s))
			ret->first_search_s = t - HELD - SETTLE;
		rc = jm_search_add(s, &v, err);
	}
	if (!rc) {
		jm_search_result(s, &ret->result);
		cap = ret->result.best.found ? gpu->cap_default_watts : ret->result.best.value[0];
		ret->to_default = cost(w, o, cap, t);
		ret->to_best = ret->to_default / least_cost(w, o, t);
	}
	jm_search_free(s);
	return rc;
}
